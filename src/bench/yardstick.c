#include "bench/yardstick.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

#include <omp.h>
#include <stdlib.h>

const ProductShape yardstick_square = {GEMM_NT, YARDSTICK_SIDE, YARDSTICK_SIDE, YARDSTICK_SIDE};

double shape_operations(ProductShape shape) {
    return 2.0 * (double)shape.m * (double)shape.n * (double)shape.k;
}

static void enlarge(int64_t *size, int64_t wanted) {
    if (*size < wanted) *size = wanted;
}

static void fill(real *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) x[i] = (real)(i % 97) / 97 - (real)0.5;
}

int yardstick_open(Yardstick *yardstick, Grid *grid, int threads, const ProductShape *shapes,
                   int count) {
    int64_t square = (int64_t)YARDSTICK_SIDE * YARDSTICK_SIDE, a = square, b = square, c = square;
    for (int i = 0; i < count; i++) {
        enlarge(&a, shapes[i].m * shapes[i].k);
        enlarge(&b, shapes[i].n * shapes[i].k);
        enlarge(&c, shapes[i].m * shapes[i].n);
    }
    *yardstick = (Yardstick){.grid = grid,
                             .threads = threads,
                             .cores = threads * group_size(grid, GROUP_GRID),
                             .c_size = c};
    yardstick->a = memory_allocate((size_t)a * sizeof(real), "the yardstick's matrices");
    yardstick->b = memory_allocate((size_t)b * sizeof(real), "the yardstick's matrices");
    yardstick->c = memory_allocate((size_t)(c * threads) * sizeof(real), "the yardstick's results");
    bool good = yardstick->a && yardstick->b && yardstick->c;
    int status = comm_agree(grid, GROUP_GRID, good ? 0 : WEFT_RUNTIME);
    if (status) return status;
    fill(yardstick->a, a);
    fill(yardstick->b, b);
    yardstick_square_rates(yardstick); /* warms up */
    return 0;
}

void yardstick_close(Yardstick *yardstick) {
    free(yardstick->a);
    free(yardstick->b);
    free(yardstick->c);
}

static void multiply(const Yardstick *yardstick, ProductShape shape, int thread) {
    real *c = yardstick->c + thread * yardstick->c_size;
    gemm_blas(&(GemmCall){shape.form, shape.m, shape.n, shape.k, yardstick->a,
                          shape.form == GEMM_TN ? shape.m : shape.k, yardstick->b,
                          shape.form == GEMM_NT ? shape.k : shape.n, 1, 0, c, shape.n});
}

double yardstick_each(Yardstick *yardstick, ProductShape shape, int times) {
    comm_barrier(yardstick->grid, GROUP_GRID);
    double start = clock_seconds();
#pragma omp parallel num_threads(yardstick->threads)
    for (int i = 0; i < times; i++) multiply(yardstick, shape, omp_get_thread_num());
    comm_barrier(yardstick->grid, GROUP_GRID);
    return times * shape_operations(shape) / (clock_seconds() - start);
}

/* OpenMP's idle threads and BLAS's spin for a while before they sleep, on cores that others need.
 */
static const double SETTLE = 0.04;

void yardstick_whole(Yardstick *yardstick, const ProductShape *shapes, int count, int times,
                     double *rates) {
    int threads = yardstick->threads;
    for (int i = 0; i < count; i++) rates[i] = 0;
    if (yardstick->cores != threads || threads == 1) return;
    clock_sleep(SETTLE);
    if (gemm_blas_threads(threads) == threads)
        for (int i = 0; i < count; i++) {
            double start = clock_seconds();
            for (int t = 0; t < times; t++) multiply(yardstick, shapes[i], 0);
            rates[i] = times * shape_operations(shapes[i]) / (clock_seconds() - start) / threads;
        }
    gemm_blas_threads(1);
    clock_sleep(SETTLE);
}

double yardstick_alone(Yardstick *yardstick, ProductShape shape) {
    comm_barrier(yardstick->grid, GROUP_GRID);
    double start = clock_seconds();
    multiply(yardstick, shape, 0);
    return shape_operations(shape) / (clock_seconds() - start);
}

YardstickRates yardstick_square_rates(Yardstick *yardstick) {
    YardstickRates rates = {.each = yardstick_each(yardstick, yardstick_square, 1)};
    double again = yardstick_each(yardstick, yardstick_square, 1); /* caches and buffers are warm */
    if (again > rates.each) rates.each = again;
    yardstick_whole(yardstick, &yardstick_square, 1, 1, &rates.whole);
    rates.best = (rates.each > rates.whole ? rates.each : rates.whole) * yardstick->cores;
    return rates;
}

YardstickRates yardstick_mean(YardstickRates before, YardstickRates after) {
    return (YardstickRates){(before.each + after.each) / 2, (before.whole + after.whole) / 2,
                            (before.best + after.best) / 2};
}

double bench_seconds(Grid *grid, int (*run)(void *context), void *context, int times, int *status) {
    comm_barrier(grid, GROUP_GRID);
    double start = clock_seconds();
    for (int i = 0; i < times && !*status; i++) *status = run(context);
    if (*status) return 0;
    comm_barrier(grid, GROUP_GRID);
    return (clock_seconds() - start) / times;
}
