#include "math/blas_threads.h"

#include <cblas.h>

int blas_threads(int threads) {
    openblas_set_num_threads(threads);
    return openblas_get_num_threads();
}
