/* What this machine's BLAS can do, the yardstick of all products: the better of one call on each
 * core, all at once, and (on one rank) one call on all cores. */
#ifndef WEFT_BENCH_YARDSTICK_H
#define WEFT_BENCH_YARDSTICK_H

#include "comm/comm.h"
#include "math/gemm.h"

enum { YARDSTICK_SIDE = 2048 };

typedef struct {
    GemmForm form;
    int64_t m, n, k;
} ProductShape;

double shape_operations(ProductShape shape); /* 2 m n k */

typedef struct {
    Grid *grid;
    int threads, cores; /* of a rank; of all */
    real *a, *b, *c;    /* c: one for each thread */
    int64_t c_size;
} Yardstick;

/* Room for products of all these shapes and for the square one. Collective over GROUP_GRID; agreed
 * errors. */
int yardstick_open(Yardstick *yardstick, Grid *grid, int threads, const ProductShape *shapes,
                   int count);
void yardstick_close(Yardstick *yardstick);

extern const ProductShape yardstick_square;

/* Rates are floating-point operations per second and core. All are collective over GROUP_GRID. */

/* One call a core on all cores at once, `times` in turn. */
double yardstick_each(Yardstick *yardstick, ProductShape shape, int times);

/* One call on all cores, for each of the shapes: rates[i] (0 where several ranks share the cores).
 */
void yardstick_whole(Yardstick *yardstick, const ProductShape *shapes, int count, int times,
                     double *rates);

/* One call on one core, the others idle. */
double yardstick_alone(Yardstick *yardstick, ProductShape shape);

/* Of the square product: one call a core, one call on all cores; and the better one, on all cores
 * together. */
typedef struct {
    double each, whole, best;
} YardstickRates;
YardstickRates yardstick_square_rates(Yardstick *yardstick);

/* Of what lasts long: the mean of the rates before and after. */
YardstickRates yardstick_mean(YardstickRates before, YardstickRates after);

/* One after the other, with all ranks at the start and the end: seconds. */
double bench_seconds(Grid *grid, int (*run)(void *context), void *context, int times, int *status);

#endif
