/* A training step as a fraction of what this machine's BLAS can do, measured in turn in one run. */
#ifndef WEFT_RUN_BENCH_H
#define WEFT_RUN_BENCH_H

#include "comm/comm.h"
#include "config/config.h"

/* Prints the single-call sgemm rate per core and the step's rate as a fraction of it on all cores
 * in use: median and range over pairs. Collective over the world; agreed errors. */
int bench_run(const Config *config, int tp, int dp, Grid *grid);

#endif
