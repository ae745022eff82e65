/* Measurements, in parts: each sets a figure of weft's against something that is measured in the
 * same run, in turn with it, because machines are shared and their speed changes. A part prints
 * rows: a name, the median over the pairs, its unit, an interval (figure.h).
 *
 * A new part is one function and one row of bench_parts. */
#ifndef WEFT_BENCH_BENCH_H
#define WEFT_BENCH_BENCH_H

#include "comm/comm.h"
#include "config/config.h"

enum { BENCH_LEAST_PAIRS = 7, BENCH_PAIRS = 9 };

/* What every part gets. */
typedef struct {
    const Config *config;
    Grid *grid;
    int threads, pairs;
} Bench;

typedef struct {
    const char *name, *summary;
    /* Collective over GROUP_GRID; 0 or a negative code (not agreed, unless it says so). */
    int (*run)(const Bench *bench);
} BenchPart;

extern const BenchPart bench_parts[]; /* ends with a row whose name is NULL; the first is default */

int bench_sgemm(const Bench *bench);
int bench_ffn(const Bench *bench);
int bench_attention(const Bench *bench);
int bench_step(const Bench *bench);
int bench_adamw(const Bench *bench);
int bench_pointwise(const Bench *bench);
int bench_exchange(const Bench *bench);
int bench_reduction(const Bench *bench);
int bench_checkpoint(const Bench *bench);

/* Not in the table: steps on demand (serve.c). */
extern const BenchPart bench_server;

/* NULL: the first. WEFT_USAGE with the list of parts when there is none of that name. */
int bench_find(const char *name, const BenchPart **part);

/* Opens the grid, runs a part, closes. Collective over the world; agreed errors. */
int bench_run(const Config *config, const BenchPart *part, int pairs, int tp, int dp, Grid *grid);

#endif
