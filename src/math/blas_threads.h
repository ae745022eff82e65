/* How many threads one call of BLAS takes: 1 after gemm_setup. For the bench, which wants to know
 * what one call on all cores does. */
#ifndef WEFT_MATH_BLAS_THREADS_H
#define WEFT_MATH_BLAS_THREADS_H

/* Returns how many it really takes from now on. */
int blas_threads(int threads);

#endif
