/* Matrix products whose bits depend on nothing but their operands.
 *
 * What an element of the result is stands in gemm_kernel.h: one fixed chain of operations, the same
 * whatever the shape of the product, however it is cut among threads, on any core. So products of
 * shards may be computed together, and a rank's shards are: calls of a list that read one operand
 * pack it once.
 *
 * The only user of BLAS too, which is what the bench measures against (gemm_blas). gemm_setup()
 * comes first. */
#ifndef WEFT_MATH_GEMM_H
#define WEFT_MATH_GEMM_H

#include "base/real.h"
#include "tensor/shard.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    GEMM_NT, /* C[m, n] = A[m, k] B[n, k]^T : forward of a Linear whose weight is [out, in] */
    GEMM_NN, /* C[m, n] = A[m, k] B[k, n]   : its input gradient */
    GEMM_TN, /* C[m, n] = A[k, m]^T B[k, n] : its weight gradient */
} GemmForm;

typedef struct {
    GemmForm form;
    int64_t m, n, k; /* may be 0 */
    const real *a;
    int64_t lda;
    const real *b;
    int64_t ldb;
    real alpha;
    bool add; /* C += alpha * product; otherwise C is not read */
    real *c;
    int64_t ldc;
} GemmCall;

/* Chooses the kernel for this core and compares it, bit for bit, with the plain one on a few
 * shapes. 0 or WEFT_RUNTIME. */
int gemm_setup(void);

/* Another kernel of gemm_kernels, for tests and the bench: the same bits. 0 or WEFT_RUNTIME. */
int gemm_choose(const char *name);

/* The kernel in use, e.g. "avx512"; the library that gemm_blas calls, e.g. "OpenBLAS 0.3.21
 * Haswell" (this thread's copy). */
const char *gemm_kernel_name(void);
const char *gemm_blas_name(void);
/* A library older than this machine's cores takes them for the oldest there are: then a core type
 * with their vectors, for the environment's OPENBLAS_CORETYPE, which it reads when it is loaded.
 * NULL where it knows them, or was told. */
const char *gemm_blas_better_core(void);

/* Scratch for products, whatever their size; aligned to MEMORY_ALIGN. More is of use to a list. */
size_t gemm_scratch(void);

/* One product on this thread. */
void gemm_call(const GemmCall *call, void *scratch);

/* Told of elements [rows, cols] of call `call` of a list that are done, by the thread that made
 * them, while they are in its cache: each element once. */
typedef void GemmAfter(void *context, int call, Range rows, Range cols);

/* Products that are independent of one another. Capacity grows on demand and is kept. */
typedef struct {
    GemmCall *call;
    struct GemmGroup *group; /* of calls that read one operand, while the list runs */
    int count, capacity, groups;
    bool pairs; /* calls 2i and 2i + 1 have one A and the same shape, and are done together: `after`
                   is told of the first alone */
    GemmAfter *after; /* or NULL */
    void *context;    /* of `after` */
} GemmList;

void gemm_list_clear(GemmList *list); /* no calls, no pairs, no `after` */
void gemm_list_release(GemmList *list);

/* 0 or WEFT_RUNTIME (no memory). */
int gemm_list_add(GemmList *list, const GemmCall *product);

/* Runs all products on `threads` OpenMP threads, which share `bytes` of memory: gemm_scratch() for
 * each or more. */
void gemm_list_run(GemmList *list, int threads, void *memory, size_t bytes);

/* Products of shards whose sum is wanted: C = sum over leaves of (sum over a leaf's terms of A B),
 * the leaves up the tree of tensor/shard.h, the terms of one after another; the bits are those of
 * gemm_call for each term, into its leaf or added to it, and additions of the nodes. */
enum { GEMM_SUM_TERMS = 3 }; /* most of a leaf */

typedef struct {
    int64_t k; /* may be 0 */
    const real *a;
    int64_t lda;
    const real *b;
    int64_t ldb;
} GemmTerm;

/* Told of elements [rows, cols] of C that are done, as GemmAfter is. */
typedef void GemmSumAfter(void *context, Range rows, Range cols);

typedef struct {
    GemmForm form;
    int64_t m, n;         /* may be 0 */
    Range leaves;         /* shards: a whole subtree */
    int terms;            /* of a leaf */
    const GemmTerm *term; /* [leaves * terms] */
    real *c;              /* not read */
    int64_t ldc;
    GemmSumAfter *after; /* or NULL */
    void *context;       /* of `after` */
} GemmSum;

/* What each of so many threads needs for sums [m, n] or with fewer rows, of `leaves` leaves, with k
 * lines of all their terms. */
size_t gemm_sum_scratch(int64_t m, int64_t n, int64_t k, int leaves, int threads);

/* On `threads` OpenMP threads, which share `bytes` of memory. */
void gemm_sum_run(const GemmSum *sum, int threads, void *memory, size_t bytes);

/* The same product by one call of BLAS: other bits. For the bench and for tests. */
void gemm_blas(const GemmCall *call);

/* How many threads a call of BLAS takes: 1 after gemm_setup. Returns how many it really takes. */
int gemm_blas_threads(int threads);

#endif
