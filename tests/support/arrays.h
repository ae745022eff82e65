/* Arrays of `real` for the kernel tests: filling, comparing. */
#ifndef WEFT_TESTS_ARRAYS_H
#define WEFT_TESTS_ARRAYS_H

#include "base/real.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Unit roundoff of `real`. */
#define ROUNDOFF (sizeof(real) == 4 ? 0x1p-24 : 0x1p-53)

/* A fixed sequence in (-size, size), another one for each key. */
static inline void array_fill(real *x, int64_t count, double size, uint64_t key) {
    uint64_t state = key * 0x9e3779b97f4a7c15u + 1;
    for (int64_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
        x[i] = (real)(((double)(state >> 11) * 0x1p-52 - 1) * size);
    }
}

/* Same bits: NaN equals itself, +0 and -0 differ. */
static inline bool array_same(const real *x, const real *y, int64_t count) {
    return memcmp(x, y, (size_t)count * sizeof *x) == 0;
}

/* Largest |x - y|, NaN if there is one. */
static inline double array_difference(const real *x, const double *y, int64_t count) {
    double largest = 0;
    for (int64_t i = 0; i < count; i++) {
        double d = fabs((double)x[i] - y[i]);
        if (!(d <= largest)) largest = d;
        if (isnan(largest)) break;
    }
    return largest;
}

#endif
