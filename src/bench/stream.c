#include "bench/stream.h"

#include "base/clock.h"
#include "tensor/shard.h"

#include <omp.h>

/* Two numbers that the compiler can't know. */
typedef struct {
    volatile real one, zero;
} Factors;

static void run(int64_t n, real one, real zero, const real *restrict read, real *restrict a,
                real *restrict b, real *restrict c) {
    for (int64_t i = 0; i < n; i++) {
        real x = read[i] * zero;
        a[i] = a[i] * one + x;
        b[i] = b[i] * one + x;
        c[i] = c[i] * one + x;
    }
}

double stream_rate(int threads, int64_t n, const real *read, real *a, real *b, real *c) {
    Factors factors = {1, 0};
    double start = clock_seconds();
#pragma omp parallel num_threads(threads)
    {
        Range part = shard_range(n, omp_get_num_threads(), omp_get_thread_num());
        int64_t at = part.begin;
        run(range_size(part), factors.one, factors.zero, read + at, a + at, b + at, c + at);
    }
    return 7.0 * (double)n * sizeof(real) / (clock_seconds() - start);
}
