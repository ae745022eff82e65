/* Sums over an array in double, in one fixed order that a compiler can vectorise: element i is
 * added to lane i % LANES, and the lanes are folded in halves. */
#ifndef WEFT_MATH_LANES_H
#define WEFT_MATH_LANES_H

#include "base/real.h"

#include <math.h>
#include <stdint.h>

enum { LANES = 16 };

static inline double lanes_fold(double *lane) {
    for (int width = LANES / 2; width > 0; width /= 2) {
        for (int j = 0; j < width; j++) lane[j] += lane[j + width];
    }
    return lane[0];
}

/* sum + a b. The product of two floats is exact in double, so that fused it is the same. */
static inline double lanes_add_product(double sum, real a, real b) {
#ifdef WEFT_REAL64
    return sum + a * b;
#else
    return fma((double)a, (double)b, sum);
#endif
}

static inline double lanes_sum(int64_t n, const real *x) {
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (int j = 0; j < LANES; j++) lane[j] += (double)x[i + j];
    }
    for (int j = 0; i + j < n; j++) lane[j] += (double)x[i + j];
    return lanes_fold(lane);
}

static inline double lanes_dot(int64_t n, const real *x, const real *y) {
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (int j = 0; j < LANES; j++) lane[j] = lanes_add_product(lane[j], x[i + j], y[i + j]);
    }
    for (int j = 0; i + j < n; j++) lane[j] = lanes_add_product(lane[j], x[i + j], y[i + j]);
    return lanes_fold(lane);
}

/* The largest of `least` and x; NaN is passed over. */
static inline real lanes_max(int64_t n, const real *x, real least) {
    real lane[LANES];
    int64_t i = 0;
    for (int j = 0; j < LANES; j++) lane[j] = least;
    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (int j = 0; j < LANES; j++) lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    }
    for (int j = 0; i + j < n; j++) lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    for (int width = LANES / 2; width > 0; width /= 2) {
        for (int j = 0; j < width; j++) {
            lane[j] = lane[j + width] > lane[j] ? lane[j + width] : lane[j];
        }
    }
    return lane[0];
}

#endif
