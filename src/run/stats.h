/* Statistics of every layer while training goes on (stats.every), for the metrics.
 *
 * They are of a state and of the pass that the next step makes from it: after `step` steps, in the
 * forward pass of the first microbatch of step + 1 (dropout included), and stand in that step's
 * line beside its loss, which is of the same pass. Taken when stats.every divides `step`, before
 * the first step too, and at the first step after every start. Parameters are those of the state,
 * and gradients the step's: of the whole global batch, before clipping.
 *
 *     stats_open(&stats, &trainer);
 *     stats_begin(stats, &trainer);
 *     trainer_step(&trainer, &report);
 *     stats_end(stats, &trainer, &report.stats);
 *     stats_close(stats);
 *
 * They change nothing that is trained, and are the same text on every layout and in every recompute
 * mode. The tensor ranks of the data rank that owns the microbatch compute, the first rank gets. */
#ifndef WEFT_RUN_STATS_H
#define WEFT_RUN_STATS_H

#include "run/trainer.h"

typedef struct Stats Stats;

/* *stats is NULL when stats.every is 0. 0 or WEFT_RUNTIME (not agreed). */
int stats_open(Stats **stats, Trainer *trainer);
void stats_close(Stats *stats); /* NULL is allowed */

/* Before a step; NULL is allowed, here and below. Collective over GROUP_TENSOR. */
void stats_begin(Stats *stats, Trainer *trainer);

/* After it. *object: what was found, to be freed, on the first rank of the grid; NULL on the others
 * and when nothing was due. Collective over GROUP_DATA. 0 or WEFT_RUNTIME (not agreed). */
int stats_end(Stats *stats, Trainer *trainer, json_t **object);

#endif
