/* The pointwise middle of an FFN, forward and backward, block by block: activations go through
 * buffers on the stack. */
#include "math/activation.h"

#include "base/wide.h"
#include "math/elementary.h"

enum { BLOCK = 256 }; /* elements of a stack buffer; several fit the first-level cache */

static inline int64_t block_size(int64_t n, int64_t begin) {
    return n - begin < BLOCK ? n - begin : BLOCK;
}

/* ---- gated ---- */

/* The limits, infinite where there is none, and the offset. */
typedef struct {
    real gate, linear, offset;
} Bounds;

static Bounds bounds_of(const Branches *branches) {
    return (Bounds){branches->gate_clamp > 0 ? (real)branches->gate_clamp : (real)INFINITY,
                    branches->linear_clamp > 0 ? (real)branches->linear_clamp : (real)INFINITY,
                    (real)branches->linear_offset};
}

static bool is_bounded(const Branches *branches) {
    return branches->gate_clamp > 0 || branches->linear_clamp > 0 || branches->linear_offset != 0;
}

/* NaN fails every comparison and stays. */
static inline real clamp_above(real x, real limit) { return x > limit ? limit : x; }
static inline real clamp_both(real x, real limit) {
    return x > limit ? limit : x < -limit ? -limit : x;
}

static inline void clamp_gate(int64_t n, const real *g, real limit, real *clamped) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) clamped[i] = clamp_above(g[i], limit);
}

WIDE static void gated_bounded(const Branches *branches, int64_t n, const real *g, const real *u,
                               real *h) {
    const Bounds bounds = bounds_of(branches);
    real a[BLOCK];
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        int64_t size = block_size(n, begin);
        clamp_gate(size, g + begin, bounds.gate, a);
        branches->activation->value(size, a, branches->beta, a);
#pragma omp simd
        for (int64_t i = 0; i < size; i++)
            h[begin + i] = a[i] * (clamp_both(u[begin + i], bounds.linear) + bounds.offset);
    }
}

WIDE static void gated_bounded_backward(const Branches *branches, int64_t n, const real *g,
                                        const real *u, const real *dh, real *dg, real *du) {
    const Bounds bounds = bounds_of(branches);
    real a[BLOCK], da[BLOCK];
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        int64_t size = block_size(n, begin);
        clamp_gate(size, g + begin, bounds.gate, a);
        branches->activation->slope(size, a, branches->beta, a, da);
#pragma omp simd
        for (int64_t i = 0; i < size; i++) {
            real d = dh[begin + i], gate = g[begin + i], up = u[begin + i];
            real linear = clamp_both(up, bounds.linear) + bounds.offset;
            dg[begin + i] = gate > bounds.gate ? 0 : d * linear * da[i];
            du[begin + i] = real_abs(up) > bounds.linear ? 0 : d * a[i];
        }
    }
}

WIDE static void gated(const Branches *branches, int64_t n, const real *g, const real *u, real *h) {
    real a[BLOCK];
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        int64_t size = block_size(n, begin);
        branches->activation->value(size, g + begin, branches->beta, a);
#pragma omp simd
        for (int64_t i = 0; i < size; i++) h[begin + i] = a[i] * u[begin + i];
    }
}

WIDE static void gated_backward(const Branches *branches, int64_t n, const real *g, const real *u,
                                const real *dh, real *dg, real *du) {
    real a[BLOCK], da[BLOCK];
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        int64_t size = block_size(n, begin);
        branches->activation->slope(size, g + begin, branches->beta, a, da);
#pragma omp simd
        for (int64_t i = 0; i < size; i++) {
            real d = dh[begin + i], up = u[begin + i];
            dg[begin + i] = d * up * da[i];
            du[begin + i] = d * a[i];
        }
    }
}

void activation_gated(const Branches *branches, int64_t n, const real *g, const real *u, real *h) {
    (is_bounded(branches) ? gated_bounded : gated)(branches, n, g, u, h);
}

void activation_gated_backward(const Branches *branches, int64_t n, const real *g, const real *u,
                               const real *dh, real *dg, real *du) {
    (is_bounded(branches) ? gated_bounded_backward : gated_backward)(branches, n, g, u, dh, dg, du);
}

/* ---- dual ---- */

WIDE static void dual(const Branches *branches, int64_t n, const real *g, const real *u, real *h) {
    real a[BLOCK], b[BLOCK];
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        int64_t size = block_size(n, begin);
        branches->activation->value(size, g + begin, branches->beta, a);
        branches->activation->value(size, u + begin, branches->beta, b);
#pragma omp simd
        for (int64_t i = 0; i < size; i++) h[begin + i] = a[i] * b[i];
    }
}

WIDE static void dual_backward(const Branches *branches, int64_t n, const real *g, const real *u,
                               const real *dh, real *dg, real *du) {
    real a[BLOCK], da[BLOCK], b[BLOCK], db[BLOCK];
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        int64_t size = block_size(n, begin);
        branches->activation->slope(size, g + begin, branches->beta, a, da);
        branches->activation->slope(size, u + begin, branches->beta, b, db);
#pragma omp simd
        for (int64_t i = 0; i < size; i++) {
            real d = dh[begin + i];
            dg[begin + i] = d * b[i] * da[i];
            du[begin + i] = d * a[i] * db[i];
        }
    }
}

void activation_dual(const Branches *branches, int64_t n, const real *g, const real *u, real *h) {
    dual(branches, n, g, u, h);
}

void activation_dual_backward(const Branches *branches, int64_t n, const real *g, const real *u,
                              const real *dh, real *dg, real *du) {
    dual_backward(branches, n, g, u, dh, dg, du);
}

/* ---- plain ---- */

void activation_plain(const Branches *branches, int64_t n, const real *z, real *h) {
    branches->activation->value(n, z, branches->beta, h);
}

WIDE static void plain_backward(const Branches *branches, int64_t n, const real *z, const real *dh,
                                real *dz) {
    real a[BLOCK], da[BLOCK];
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        int64_t size = block_size(n, begin);
        branches->activation->slope(size, z + begin, branches->beta, a, da);
#pragma omp simd
        for (int64_t i = 0; i < size; i++) dz[begin + i] = dh[begin + i] * da[i];
    }
}

void activation_plain_backward(const Branches *branches, int64_t n, const real *z, const real *dh,
                               real *dz) {
    plain_backward(branches, n, z, dh, dz);
}
