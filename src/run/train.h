/* The training run from start to end: layout, start or resume, steps, evaluation, checkpoints,
 * metrics. */
#ifndef WEFT_RUN_TRAIN_H
#define WEFT_RUN_TRAIN_H

#include "config/config.h"
#include "comm/comm.h"

typedef struct {
    int tp, dp;         /* 0: chosen */
    const char *resume; /* NULL, "auto" or a directory */
    int64_t stop_at;    /* save at that step and end; 0: run to train.steps */
} TrainOptions;

/* `grid` is started, not yet laid out. Collective over the world. Returns 0, or a negative code;
 * error_is_agreed() tells whether all ranks know. */
int train_run(const Config *config, const TrainOptions *options, Grid *grid);

#endif
