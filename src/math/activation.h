/* Activations and their derivatives, elementwise. Each is a table row: a new one is one row and two
 * functions.
 *
 * Same bits in the vector body and in the tail of a loop: one expression serves both. Range-safe
 * over all inputs (infinities give the limit); NaN in, NaN out; relu'(0) is 0; the derivative is
 * that of the very forward (the tanh form's isn't the erf form's).
 *
 * Errors against long double, in units in the last place of a float, over both tails down to
 * denormal results: values within ACTIVATION_VALUE_ULP, slopes within ACTIVATION_SLOPE_ULP (near
 * its zero, where a slope has no relative accuracy, in units of 1/4's last place); relu exact. In
 * the f64 build all are within 1e-12 relative. */
#ifndef WEFT_MATH_ACTIVATION_H
#define WEFT_MATH_ACTIVATION_H

#include "base/real.h"

#include <stdint.h>

#define ACTIVATION_VALUE_ULP 6
#define ACTIVATION_SLOPE_ULP 9

typedef struct {
    const char *name;                                           /* as in configs and manifests */
    const char *equation;                                       /* for the manifest */
    void (*value)(int64_t n, const real *z, real *a);           /* a[i] = act(z[i]) */
    void (*slope)(int64_t n, const real *z, real *a, real *da); /* and da[i] = act'(z[i]) */
} Activation;

/* silu, gelu (erf form), gelu_tanh, relu; ends with a row whose name is NULL. */
extern const Activation activations[];
const Activation *activation_find(const char *name); /* NULL when unknown */

/* h = act(g) * u over [n]. */
void activation_gated(const Activation *activation, int64_t n, const real *g, const real *u,
                      real *h);

/* dg = dh * u * act'(g), du = dh * act(g) over [n]; dg may be g's place, du may be u's, and either
 * dh's. */
void activation_gated_backward(const Activation *activation, int64_t n, const real *g,
                               const real *u, const real *dh, real *dg, real *du);

/* h = act(z) and dz = dh * act'(z); dz may be z's or dh's place. */
void activation_plain(const Activation *activation, int64_t n, const real *z, real *h);
void activation_plain_backward(const Activation *activation, int64_t n, const real *z,
                               const real *dh, real *dz);

#endif
