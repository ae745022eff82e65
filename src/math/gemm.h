/* Matrix products: the only user of BLAS.
 *
 * OpenBLAS's bits depend on M, N, K and its thread count, so a product is a fixed list of calls
 * whose shapes are a function of logical shapes alone (gemm_tile), each on one BLAS thread; OpenMP
 * threads share out the calls. gemm_setup() comes first. */
#ifndef WEFT_MATH_GEMM_H
#define WEFT_MATH_GEMM_H

#include "base/real.h"

#include <stdint.h>

typedef enum {
    GEMM_NT, /* C[m, n] = A[m, k] B[n, k]^T : forward of a Linear whose weight is [out, in] */
    GEMM_NN, /* C[m, n] = A[m, k] B[k, n]   : its input gradient */
    GEMM_TN, /* C[m, n] = A[k, m]^T B[k, n] : its weight gradient */
} GemmForm;

typedef struct {
    GemmForm form;
    int64_t m, n, k;
    const real *a;
    int64_t lda;
    const real *b;
    int64_t ldb;
    real alpha, beta; /* C = alpha * product + beta * C; beta 0 does not read C */
    real *c;
    int64_t ldc;
} GemmCall;

/* Sets BLAS to one thread, reads it back, refuses versions known to compute wrong results, and
 * compares a few products with plain loops. `blas_threads` is 1 except in the faults build. Returns
 * 0 or WEFT_RUNTIME. */
int gemm_setup(int blas_threads);

/* Version and core name of the BLAS in use, e.g. "OpenBLAS 0.3.21 Haswell"; this thread's copy. */
const char *gemm_identity(void);

/* One BLAS call on exactly this shape. m, n or k may be 0; sizes and strides must fit an int. */
void gemm_call(const GemmCall *call);

/* Height and width of the tiles that C [m, n] is cut into: a function of shape only. A product
 * becomes at least 4 calls where tiles need not be smaller than 512 x 768 for it: a call packs
 * (rows + cols) * k elements for rows * cols * k multiplications, and smaller tiles are felt
 * (README.md, performance). */
typedef struct {
    int64_t rows, cols;
} GemmTile;
GemmTile gemm_tile(int64_t m, int64_t n);

/* A list of calls that are independent of one another. Capacity grows on demand and is kept. */
typedef struct {
    GemmCall *call;
    int count, capacity;
} GemmList;

void gemm_list_clear(GemmList *list);
void gemm_list_release(GemmList *list);

/* Cuts a product into tiles and appends its calls. Returns 0 or WEFT_RUNTIME (no memory, or a size
 * or stride that doesn't fit an int). */
int gemm_list_add(GemmList *list, const GemmCall *product);

/* Runs all calls on `threads` OpenMP threads. Same bits for any number. */
void gemm_list_run(const GemmList *list, int threads);

#endif
