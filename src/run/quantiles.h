/* Exact quantiles of values that lie in shards on many ranks: the values' bits, put in order, are
 * searched digit by digit, by counting how many values begin with which digits. Counts are
 * integers, whose sums don't depend on who counted: the same result on every layout.
 *
 *     quantiles_open(&quantiles, threads);
 *     quantiles_find(&quantiles, grid, &values, finite, result) ...
 *     quantiles_close(&quantiles); */
#ifndef WEFT_RUN_QUANTILES_H
#define WEFT_RUN_QUANTILES_H

#include "comm/comm.h"
#include "nn/pass.h"

enum { QUANTILES = 5 };
extern const int quantiles_percent[QUANTILES]; /* 5, 25, 50, 75, 95 */

typedef struct {
    int threads;
    int64_t *counts; /* of each thread */
} Quantiles;

int quantiles_open(Quantiles *quantiles, int threads); /* 0 or WEFT_RUNTIME */
void quantiles_close(Quantiles *quantiles);

/* result[q]: the smallest of the finite values that at least so many percent of them are not above;
 * NAN when there is none. `values`: this rank's shards of [T, F]; `finite`: how many finite values
 * all ranks have. Collective over GROUP_TENSOR. */
void quantiles_find(const Quantiles *quantiles, Grid *grid, const Sharded *values, int64_t finite,
                    double result[QUANTILES]);

#endif
