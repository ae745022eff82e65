/* The inside of matrix products: packing, and one micro-tile of the result, for each vector width.
 *
 * An element of C = alpha A B, or C + alpha A B, is the same on every machine, whatever the shape
 * around it: k is cut into blocks of GEMM_BLOCK, the last one may be short; a block's sum begins at
 * 0 and takes sum = fma(a, b, sum) for ascending k; then c = fma(alpha, sum, c), or c = alpha * sum
 * where C is not read. Kernels differ in how many elements they have in hand, never in this order:
 * the vector lanes, rows and columns of a micro-tile are elements of C. (The packing and the loops
 * around it are those of Goto and van de Geijn 2008, Anatomy of High-Performance Matrix
 * Multiplication.) */
#ifndef WEFT_MATH_GEMM_KERNEL_H
#define WEFT_MATH_GEMM_KERNEL_H

#include "base/real.h"

#include <stdbool.h>
#include <stdint.h>

enum { GEMM_BLOCK = 256 }; /* changes bits: see run/identity.h */

enum { GEMM_MOST_ROWS = 12, GEMM_MOST_COLS = 32 }; /* of any micro-tile */

typedef struct {
    const char *name;
    int rows, cols;          /* of a micro-tile */
    bool (*runs_here)(void); /* on this core */
    /* c [high, cols] = alpha * sum, or += where `add`; `high` at most `rows`; a is packed
     * [k, rows], b [k, cols]; k at most GEMM_BLOCK. `ahead`: what is read soon, 64 bytes for every
     * 8 lines of k, to be called into the second cache level meanwhile. */
    void (*multiply)(int high, int64_t k, const real *a, const real *b, real alpha, bool add,
                     real *c, int64_t ldc, const real *ahead);
    /* out: panels [k, width] of x [count, k]^T or of x [k, count], `width` columns (rows or cols)
     * in each; zeros beyond `count` in the last. */
    void (*pack_rows)(const real *x, int64_t ldx, int64_t count, int64_t k, int width, real *out);
    void (*pack_cols)(const real *x, int64_t ldx, int64_t count, int64_t k, int width, real *out);
} GemmKernel;

/* All that this program has, the fastest first, NULL at the end; the last runs anywhere. */
extern const GemmKernel *const gemm_kernels[];

/* The one in use. */
const GemmKernel *gemm_kernel(void);

#endif
