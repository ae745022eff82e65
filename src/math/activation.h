/* Activations and their derivatives, elementwise, and how the branches of an FFN use them. Each
 * activation is a table row: a new one is one row and two functions.
 *
 * Same bits in the vector body and in the tail of a loop: one expression serves both. Range-safe
 * over all inputs (infinities give the limit); NaN in, NaN out; relu'(0) is 0; the derivative is
 * that of the very forward (the tanh form's isn't the erf form's).
 *
 * Errors against long double, in units in the last place of a float, over both tails down to
 * denormal results and for every beta: values within ACTIVATION_VALUE_ULP, slopes within
 * ACTIVATION_SLOPE_ULP (near its zero, where a slope has no relative accuracy, in units of 1/4's
 * last place); relu and identity exact. In the f64 build all are within 1e-12 relative. */
#ifndef WEFT_MATH_ACTIVATION_H
#define WEFT_MATH_ACTIVATION_H

#include "base/real.h"

#include <stdbool.h>
#include <stdint.h>

#define ACTIVATION_VALUE_ULP 6
#define ACTIVATION_SLOPE_ULP 9

/* What beta may be. */
#define ACTIVATION_LEAST_BETA 0.01
#define ACTIVATION_MOST_BETA  100

typedef struct {
    const char *name;          /* as in configs and manifests */
    const char *equation;      /* for the manifest */
    const char *beta_equation; /* the same with a beta other than 1; NULL without one */
    bool has_beta;
    /* a[i] = act(z[i]); and da[i] = act'(z[i]). a may be z's place. Rows without it ignore beta. */
    void (*value)(int64_t n, const real *z, double beta, real *a);
    void (*slope)(int64_t n, const real *z, double beta, real *a, real *da);
} Activation;

/* silu, gelu (erf form), gelu_tanh, relu, quick_gelu (of CLIP), sigmoid, identity; ends with a row
 * whose name is NULL. */
extern const Activation activations[];
const Activation *activation_find(const char *name); /* NULL when unknown */

/* What the branches of an FFN do to their preactivations g (gate), u (up), z (of a dense one):
 *
 *     gated   act(min(g, gate_clamp)) * (min(max(u, -linear_clamp), linear_clamp) + linear_offset)
 *     dual    act(g) * act(u)
 *     plain   act(z)
 *
 * A clamp of 0 is none. At its very limit a clamp passes the gradient, as torch.clamp does; NaN is
 * within every limit and stays NaN. */
typedef struct {
    const Activation *activation;
    double beta; /* of silu: z / (1 + exp(-beta z)) (Ramachandran et al. 2017, Swish) */
    double gate_clamp, linear_clamp, linear_offset;
} Branches;

/* h = the product over [n]. */
void activation_gated(const Branches *branches, int64_t n, const real *g, const real *u, real *h);
void activation_dual(const Branches *branches, int64_t n, const real *g, const real *u, real *h);

/* Its derivatives times dh over [n]; dg may be g's place, du may be u's, and either dh's. */
void activation_gated_backward(const Branches *branches, int64_t n, const real *g, const real *u,
                               const real *dh, real *dg, real *du);
void activation_dual_backward(const Branches *branches, int64_t n, const real *g, const real *u,
                              const real *dh, real *dg, real *du);

/* h = act(z) and dz = dh * act'(z); dz may be z's or dh's place. */
void activation_plain(const Branches *branches, int64_t n, const real *z, real *h);
void activation_plain_backward(const Branches *branches, int64_t n, const real *z, const real *dh,
                               real *dz);

#endif
