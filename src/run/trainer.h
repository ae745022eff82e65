/* One training step, and all that it needs: model, data, optimizer, and how batch shards meet.
 *
 * The global batch is grid.data batch shards of equally many microbatches. Within a batch shard
 * gradients accumulate microbatch after microbatch; across batch shards they go up the tree: first
 * those of this rank (with a spare gradient per level), then, through the exchange, those of all
 * data-parallel ranks. */
#ifndef WEFT_RUN_TRAINER_H
#define WEFT_RUN_TRAINER_H

#include "config/config.h"
#include "data/batch.h"
#include "nn/model.h"
#include "optim/adamw.h"
#include "optim/schedule.h"
#include "run/metrics.h"

typedef struct {
    Config config;
    Grid *grid;
    int threads;
    Model model;
    Dataset data;
    AxisLayout batch;              /* batch shards over the data-parallel ranks */
    Exchange *exchange;            /* of gradients, over GROUP_DATA */
    real *gradient;                /* the sum over the global batch */
    real *spare[SHARD_TREE_DEPTH]; /* gradients of right children, by level of the tree */
    int spares;
    AdamW adamw;
    Schedule schedule;
    GradientNorm norm;
    double own_loss; /* of this rank's batch shards in the last gradient */
    int skips;       /* steps without an update, in a row until now (run/guard.h) */
    Hash128 data_digest, held_digest; /* of the files */
    int64_t step, tokens_seen;        /* steps done; target tokens, or rows, seen */
    Microbatch micro;                 /* what the model reads next */
    int64_t *samples;                 /* [global_batch] sample ids of a step */
    struct {
        int64_t by_schedule, by_optimizer;
    } forgotten; /* steps that a resume loses: 0 but for tests */
} Trainer;

/* Everything that training (or, with training false, evaluation) needs at this layout. The grid is
 * open. Initial values are set; what normalises arrays isn't: it comes from a checkpoint
 * (run/state.h), or else from trainer_survey. Collective over GROUP_GRID; agreed errors. */
int trainer_open(Trainer *trainer, const Config *config, Grid *grid, int threads, bool training);
void trainer_close(Trainer *trainer); /* Collective over GROUP_GRID */

/* Before the first step: refuses arrays with a bad row, and measures the normalisation of the
 * training rows, unless there is none or a checkpoint has told it. Collective over GROUP_GRID;
 * agreed errors. */
int trainer_survey(Trainer *trainer);

/* From now on this stopwatch is told of the parts of the trainer's steps; NULL: none. */
void trainer_watch(Trainer *trainer, Stopwatch *stopwatch);

/* How metrics and messages call what this model counts. */
MetricWords trainer_words(const Trainer *trainer);

/* One step; fills what the report says of it. A gradient that isn't finite is not used (see
 * run/guard.h). Collective over GROUP_GRID. 0 or a negative code (not agreed, unless it says so:
 * some ranks may wait in a collective). */
int trainer_step(Trainer *trainer, StepReport *report);

/* The present step's gradient into trainer->gradient, mean loss and gradient norm, which may differ
 * between ranks when they aren't finite. As often as wanted: the same bits. Collective over
 * GROUP_GRID. 0 or a negative code (not agreed). */
int trainer_gradient(Trainer *trainer, double *loss, double *norm);

/* On the held-out part. Collective over GROUP_GRID. 0 or a negative code (not agreed: see
 * trainer_step). */
int trainer_evaluate(Trainer *trainer, HeldOut *held);

/* Spare gradients that a rank needs to walk its batch shards: the deepest of its subtrees. */
int trainer_spares(const AxisLayout *batch, int data_rank);

#endif
