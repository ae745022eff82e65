/* What this machine does of a training step in how much time: the code of a rank's share itself,
 * run in this process without MPI and without the other ranks (grid_alone). */
#ifndef WEFT_RUN_RATES_H
#define WEFT_RUN_RATES_H

#include "base/stopwatch.h"
#include "config/config.h"

/* Ranks of one node that are measured side by side: they share caches, memory and clock
 * rate, no cores. */
typedef struct {
    int threads; /* of a rank */
    int at_once;
} RatesNode;

/* Seconds of a tensor-parallel rank. Regions end in sums that all wait for, so of each axis it is
 * the rank that has most of it. */
typedef struct {
    double part[STEP_PARTS]; /* of a microbatch, all layers; nothing of gradients and optimizer */
    double zero, add;        /* once through the gradients: zeroing them; adding others to them */
    double norm, update;     /* of the gradient; of the parameters */
    int passes;              /* that it was found from, the fewest of an axis */
    double spread;           /* of them (rates_quiet.h), the largest of an axis; of one pass 0 */
} ShareRates;

/* Measures some passes through as many layers as take about a second, and gives one that a
 * quarter of them was faster than, as other programs may disturb some. The slowest of those at once
 * counts. 0 or a negative code. */
int rates_share(const Config *config, RatesNode node, int tp, ShareRates *rates);

/* What a tensor-parallel cut lies along: channels, heads' groups, vocabulary (an mlp: outputs). */
enum { RATES_AXES = 3 };

/* A rank of tp that has most of each axis, in that order: of those that have as much one that has
 * most of other axes too, as each other rank is measured apart. 0 or a negative code. */
int rates_busiest(const Config *config, int tp, int rank[RATES_AXES]);

/* Of ranks that reach each other's memory. Blocks of a megabyte, and of many. */
typedef struct {
    double add[2],
        copy[2]; /* seconds a byte of another's block, added to or copied into an own one */
    double meet; /* a barrier of all */
} MemoryRates;

/* Of each, what a tenth of many repetitions are below: while others have the cores, ranks that wait
 * for each other wait for them. 0 or a negative code. */
int rates_memory(RatesNode node, MemoryRates *rates);

#endif
