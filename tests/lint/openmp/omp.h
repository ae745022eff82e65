/* For `make lint` alone: what weft uses of OpenMP's functions, where clang has no omp.h. */
#ifndef WEFT_LINT_OMP_H
#define WEFT_LINT_OMP_H

int omp_get_thread_num(void);
int omp_get_num_threads(void);
int omp_get_max_threads(void);
void omp_set_num_threads(int threads);
void omp_set_dynamic(int dynamic);

#endif
