/* exp for the pointwise kernels, inline so that loops over it vectorise: branch-free, one
 * expression for the vector body and the tail, every rounding written down (fma where fused is
 * meant).
 *
 * real = float: the argument is reduced to n ln 2 + r by Cody and Waite's two-part constant; exp(r)
 * is a polynomial of degree 6, whose coefficients are our own minimax fit (Remez exchange) on |r|
 * <= ln(2)/2, relative error 3.1e-9. Largest error measured over all floats: ELEMENTARY_EXP_ULP.
 * Gradual underflow, infinity on overflow, NaN in, NaN out.
 *
 * real = double: the C library's exp. */
#ifndef WEFT_MATH_ELEMENTARY_H
#define WEFT_MATH_ELEMENTARY_H

#include "base/real.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* tests/unit/test_activation.c holds it against the C library's double exp. */
#define ELEMENTARY_EXP_ULP 1.01

/* Where exp(-x), times any factor below 1e6 or so, is 0. */
#ifdef WEFT_REAL64
#define ELEMENTARY_END ((real)1000)
#else
#define ELEMENTARY_END ((real)150)
#endif

#ifdef WEFT_REAL64

static inline real real_fma(real a, real b, real c) { return fma(a, b, c); }
static inline real real_abs(real x) { return fabs(x); }

/* factor * exp(x + low), |low| << 1. */
static inline real elementary_exp_times(real factor, real x, real low) {
    return factor * (exp(x) * (1 + low));
}

static inline real elementary_exp_lifted(real x, real low) { return exp(x) * (1 + low); }
static inline real elementary_lower(real y) { return y; }

#else

static inline real real_fma(real a, real b, real c) { return fmaf(a, b, c); }
static inline real real_abs(real x) { return fabsf(x); }

static inline uint32_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* 2^n for -126 <= n <= 127. */
static inline float float_power_of_two(int32_t n) {
    uint32_t bits = (uint32_t)(n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

/* x = n ln 2 + r; n stands in the low bits of `shifted`. */
typedef struct {
    float shifted, r;
} Reduced;

static const float reduce_round = 0x1.8p23f; /* adding it rounds to an integer, in the low bits */

static inline Reduced float_reduce(float x, float low) {
    const float log2_e = 0x1.715476p+0f, ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
    float shifted = fmaf(x, log2_e, reduce_round), n = shifted - reduce_round;
    return (Reduced){shifted, fmaf(-n, ln2_low, fmaf(-n, ln2_high, x)) + low};
}

/* exp(r) */
static inline float float_exp_polynomial(float r) {
    float p = 0x1.6a23dp-10f;
    p = fmaf(p, r, 0x1.123a2p-7f);
    p = fmaf(p, r, 0x1.5558f2p-5f);
    p = fmaf(p, r, 0x1.555492p-3f);
    p = fmaf(p, r, 0x1.fffffcp-2f);
    return fmaf(p, r * r, r) + 1;
}

/* factor * exp(x + low) for |low| << 1 and |factor| < 1e6 or so, rounded once where the result is
 * denormal: the factor meets the polynomial before the power of two does. */
static inline real elementary_exp_times(real factor, real x, real low) {
    /* Beyond these, factor * exp(x) is 0 or infinite in any case. */
    const float lowest = -150, highest = 100;
    x = x < lowest ? lowest : x;
    x = x > highest ? highest : x;
    Reduced reduced = float_reduce(x, low);
    float p = float_exp_polynomial(reduced.r);
    /* In two steps, for 2^n itself may be out of range. */
    int32_t power = (int32_t)(float_bits(reduced.shifted) - float_bits(reduce_round));
    int32_t half = power >> 1;
    return factor * p * float_power_of_two(half) * float_power_of_two(power - half);
}

/* The same bits in fewer operations where -150 <= x <= 0 (a little more does no harm):
 *
 *     factor * exp(x + low) = elementary_lower(factor * elementary_exp_lifted(x, low)),
 *
 * exp times 2^100, which is never denormal, so that several factors may share it. A `low` of -0.0
 * costs nothing. */
static inline real elementary_exp_lifted(real x, real low) {
    Reduced reduced = float_reduce(x, low);
    uint32_t bits = (float_bits(reduced.shifted) << 23) + ((uint32_t)(127 + 100) << 23);
    float power;
    memcpy(&power, &bits, sizeof power);
    return float_exp_polynomial(reduced.r) * power;
}
static inline real elementary_lower(real y) { return y * 0x1p-100f; }

#endif

/* exp(x) for x <= 0, or NaN. */
static inline real elementary_decay(real x) {
    return elementary_lower(
        elementary_exp_lifted(x < -ELEMENTARY_END ? -ELEMENTARY_END : x, (real)-0.0));
}

/* y[i] = exp(x[i] - shift), where no x is above the shift; y may be x. */
static inline void elementary_exp(int64_t n, const real *x, real shift, real *y) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = elementary_decay(x[i] - shift);
}

#endif
