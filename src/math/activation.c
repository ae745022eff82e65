/* silu, quick_gelu, gelu and gelu_tanh have one shape, z Phi(z) with Phi(z) + Phi(-z) = 1. With t =
 * |z| and the tail T(t) = t Phi(-t):
 *
 *     act(z) = max(z, 0) - T(t),     act'(z) = T'(t) for z <= 0, 1 - T'(t) for z > 0.
 *
 * T is computed without cancellation, so the values keep their relative accuracy far into the
 * negative tail. */
#include "math/activation.h"

#include "base/wide.h"
#include "math/elementary.h"

#include <string.h>

/* Where 2u of tail_gelu_tanh is nearly ELEMENTARY_END. */
#ifdef WEFT_REAL64
#define GELU_TANH_END ((real)23.5)
#else
#define GELU_TANH_END ((real)12.2)
#endif

typedef struct {
    real value, slope;
} Tail;

/* |z|, cut off where every tail is 0; NaN stays NaN. */
static inline real tail_argument(real z, real end) {
    real t = real_abs(z);
    return t > end ? end : t;
}

/* T(t) = t / (1 + exp(v)) for v = high + low and v' = dv/dt:
 * T' = e r (1 - t v' r), e = exp(-v), r = 1 / (1 + e). v is at most ELEMENTARY_END. */
static inline Tail tail_logistic(real t, real high, real low, real v_slope) {
    real lifted = elementary_exp_lifted(-high, -low), r = 1 / (1 + elementary_lower(lifted));
    return (Tail){elementary_lower(t * r * lifted),
                  elementary_lower(r * real_fma(-t * v_slope, r, 1) * lifted)};
}

static inline Tail tail_silu(real z, double beta) {
    (void)beta; /* 1 */
    real t = tail_argument(z, ELEMENTARY_END);
    return tail_logistic(t, t, 0, 1);
}

/* v = beta t, formed in double for the same reason as in tail_gelu_tanh. Cut off by v: for a small
 * beta the tail is long. At beta 1 the bits are tail_silu's. */
static inline Tail tail_swish(real z, double beta) {
    real t = tail_argument(z, (real)((double)ELEMENTARY_END / beta));
    double v = beta * (double)t;
    real high = (real)v;
    return tail_logistic(t, high, (real)(v - high), (real)beta);
}

/* gelu_tanh: 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2u)), u = sqrt(2/pi) (z + 0.044715 z^3) (Hendrycks
 * and Gimpel 2016). 2u is formed in double: its rounding error would be multiplied by its size. */
static inline Tail tail_gelu_tanh(real z, double beta) {
    (void)beta;
    const double linear = 1.5957691216057307, cubic = linear * 0.044715; /* 2 sqrt(2/pi) */
    real t = tail_argument(z, GELU_TANH_END);
    double square = (double)t * t, v = t * (linear + cubic * square);
    real high = (real)v;
    return tail_logistic(t, high, (real)(v - high), (real)(linear + 3 * cubic * square));
}

#ifdef WEFT_REAL64

static inline Tail tail_gelu(real z, double beta) {
    (void)beta;
    const double root_half = 0.70710678118654752, density_at_0 = 0.39894228040143268;
    double t = tail_argument(z, ELEMENTARY_END), normal = 0.5 * erfc(t * root_half);
    return (Tail){t * normal, normal - t * density_at_0 * exp(-0.5 * t * t)};
}

#else

/* Phi(-t) = exp(-t^2/2) G(t) with G(t) = erfcx(t / sqrt(2)) / 2, a smooth function: (t + 4) G(t) is
 * a polynomial of degree 9 in (t - 4) / (t + 4), our own minimax fit (Remez exchange) on 0 <= t <=
 * 16, relative error 1.0e-8. */
static inline Tail tail_gelu(real z, double beta) {
    (void)beta;
    real t = tail_argument(z, 16);
    float inverse = 1 / (t + 4), w = (t - 4) * inverse;
    float p = -0x1.219182p-13f;
    p = fmaf(p, w, 0x1.5da6a6p-13f);
    p = fmaf(p, w, 0x1.9a9b5ap-10f);
    p = fmaf(p, w, -0x1.cb8468p-9f);
    p = fmaf(p, w, -0x1.ecf56ep-8f);
    p = fmaf(p, w, 0x1.eed1c4p-5f);
    p = fmaf(p, w, -0x1.7e005p-3f);
    p = fmaf(p, w, 0x1.8c6da2p-2f);
    p = fmaf(p, w, -0x1.373e38p-1f);
    p = fmaf(p, w, 0x1.82b4bcp-1f);
    float g = p * inverse;
    float square = t * t, high = -0.5f * square, low = -0.5f * fmaf(t, t, -square);
    float lifted = elementary_exp_lifted(high, low);
    return (Tail){elementary_lower(t * g * lifted),
                  elementary_lower(fmaf(t, -0x1.988454p-2f, g) * lifted)};
}

#endif

/* Inlined into each of the functions below. NaN fails the comparison and comes through the tail. */
static inline void tail_value(Tail (*tail)(real, double), int64_t n, const real *z, double beta,
                              real *a) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) a[i] = (z[i] > 0 ? z[i] : 0) - tail(z[i], beta).value;
}

static inline void tail_slope(Tail (*tail)(real, double), int64_t n, const real *z, double beta,
                              real *a, real *da) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        real x = z[i];
        Tail t = tail(x, beta);
        a[i] = (x > 0 ? x : 0) - t.value;
        da[i] = x > 0 ? 1 - t.slope : t.slope;
    }
}

WIDE static void silu_value(int64_t n, const real *z, double beta, real *a) {
    if (beta == 1)
        tail_value(tail_silu, n, z, 1, a);
    else
        tail_value(tail_swish, n, z, beta, a);
}
WIDE static void silu_slope(int64_t n, const real *z, double beta, real *a, real *da) {
    if (beta == 1)
        tail_slope(tail_silu, n, z, 1, a, da);
    else
        tail_slope(tail_swish, n, z, beta, a, da);
}

WIDE static void gelu_value(int64_t n, const real *z, double beta, real *a) {
    tail_value(tail_gelu, n, z, beta, a);
}
WIDE static void gelu_slope(int64_t n, const real *z, double beta, real *a, real *da) {
    tail_slope(tail_gelu, n, z, beta, a, da);
}

WIDE static void gelu_tanh_value(int64_t n, const real *z, double beta, real *a) {
    tail_value(tail_gelu_tanh, n, z, beta, a);
}
WIDE static void gelu_tanh_slope(int64_t n, const real *z, double beta, real *a, real *da) {
    tail_slope(tail_gelu_tanh, n, z, beta, a, da);
}

/* The sigmoid approximation of gelu (Hendrycks and Gimpel 2016, section 2). */
static const double quick_gelu_beta = 1.702;

WIDE static void quick_gelu_value(int64_t n, const real *z, double beta, real *a) {
    (void)beta;
    tail_value(tail_swish, n, z, quick_gelu_beta, a);
}
WIDE static void quick_gelu_slope(int64_t n, const real *z, double beta, real *a, real *da) {
    (void)beta;
    tail_slope(tail_swish, n, z, quick_gelu_beta, a, da);
}

/* With e = exp(-|z|) and r = 1 / (1 + e): r for z > 0, e r below, and the slope is e r^2. */
static inline Tail sigmoid(real z) {
    real lifted = elementary_exp_lifted(-tail_argument(z, ELEMENTARY_END), (real)-0.0);
    real r = 1 / (1 + elementary_lower(lifted));
    return (Tail){z > 0 ? r : elementary_lower(r * lifted), elementary_lower(r * r * lifted)};
}

WIDE static void sigmoid_value(int64_t n, const real *z, double beta, real *a) {
    (void)beta;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) a[i] = sigmoid(z[i]).value;
}
WIDE static void sigmoid_slope(int64_t n, const real *z, double beta, real *a, real *da) {
    (void)beta;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        Tail both = sigmoid(z[i]);
        a[i] = both.value;
        da[i] = both.slope;
    }
}

WIDE static void relu_value(int64_t n, const real *z, double beta, real *a) {
    (void)beta;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) a[i] = z[i] <= 0 ? 0 : z[i];
}

/* The slope at 0 is 0; that of NaN is NaN. */
WIDE static void relu_slope(int64_t n, const real *z, double beta, real *a, real *da) {
    (void)beta;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        real x = z[i];
        a[i] = x <= 0 ? 0 : x;
        da[i] = x <= 0 ? 0 : x > 0 ? 1 : x;
    }
}

WIDE static void identity_value(int64_t n, const real *z, double beta, real *a) {
    (void)beta;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) a[i] = z[i];
}
WIDE static void identity_slope(int64_t n, const real *z, double beta, real *a, real *da) {
    (void)beta;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        real x = z[i];
        a[i] = x;
        da[i] = x == x ? 1 : x;
    }
}

const Activation activations[] = {
    {"silu", "z / (1 + exp(-z))", "z / (1 + exp(-beta * z))", true, silu_value, silu_slope},
    {"gelu", "z * 0.5 * (1 + erf(z / sqrt(2)))", NULL, false, gelu_value, gelu_slope},
    {"gelu_tanh", "0.5 * z * (1 + tanh(sqrt(2/pi) * (z + 0.044715 * z^3)))", NULL, false,
     gelu_tanh_value, gelu_tanh_slope},
    {"relu", "max(z, 0)", NULL, false, relu_value, relu_slope},
    {"quick_gelu", "z / (1 + exp(-1.702 * z))", NULL, false, quick_gelu_value, quick_gelu_slope},
    {"sigmoid", "1 / (1 + exp(-z))", NULL, false, sigmoid_value, sigmoid_slope},
    {"identity", "z", NULL, false, identity_value, identity_slope},
    {0},
};

const Activation *activation_find(const char *name) {
    for (const Activation *row = activations; row->name; row++) {
        if (strcmp(row->name, name) == 0) return row;
    }
    return NULL;
}
