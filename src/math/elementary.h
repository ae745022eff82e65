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

#ifdef WEFT_REAL64

static inline real real_fma(real a, real b, real c) { return fma(a, b, c); }
static inline real real_abs(real x) { return fabs(x); }

/* factor * exp(x + low), |low| << 1. */
static inline real elementary_exp_times(real factor, real x, real low) {
    return factor * (exp(x) * (1 + low));
}

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

/* factor * exp(x + low) for |low| << 1 and |factor| < 1e6 or so, rounded once where the result is
 * denormal: the factor meets the polynomial before the power of two does. */
static inline real elementary_exp_times(real factor, real x, real low) {
    /* Beyond these, factor * exp(x) is 0 or infinite in any case. */
    const float lowest = -150, highest = 100;
    const float round = 0x1.8p23f; /* adding it rounds to an integer, in the low bits */
    const float log2_e = 0x1.715476p+0f, ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
    x = x < lowest ? lowest : x;
    x = x > highest ? highest : x;
    float shifted = fmaf(x, log2_e, round);
    float n = shifted - round;
    float r = fmaf(-n, ln2_low, fmaf(-n, ln2_high, x)) + low;
    float p = 0x1.6a23dp-10f;
    p = fmaf(p, r, 0x1.123a2p-7f);
    p = fmaf(p, r, 0x1.5558f2p-5f);
    p = fmaf(p, r, 0x1.555492p-3f);
    p = fmaf(p, r, 0x1.fffffcp-2f);
    p = fmaf(p, r * r, r) + 1;
    /* In two steps, for 2^n itself may be out of range. */
    int32_t power = (int32_t)(float_bits(shifted) - float_bits(round));
    int32_t half = power >> 1;
    return factor * p * float_power_of_two(half) * float_power_of_two(power - half);
}

#endif

/* y[i] = exp(x[i] - shift); y may be x. */
static inline void elementary_exp(int64_t n, const real *x, real shift, real *y) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = elementary_exp_times(1, x[i] - shift, 0);
}

#endif
