/* The loop of a training run: steps, and after each what is due: drift check, evaluation, metrics,
 * proofs, saves. What ranks must decide alike (a signal that one of them got, a save that is still
 * being written) they decide by one small vote a step. */
#ifndef WEFT_RUN_LOOP_H
#define WEFT_RUN_LOOP_H

#include "checkpoint/saver.h"
#include "run/proof.h"
#include "run/stats.h"
#include "run/train.h"
#include "run/trainer.h"
#include "run/triggers.h"

typedef struct {
    Trainer trainer;
    Metrics metrics;
    Triggers triggers;
    Saver *saver;
    Proofs *proofs;
    Stats *stats;      /* NULL: stats.every is 0 */
    int claim;         /* of the run directory, on the first rank */
    int64_t last;      /* the step that this start ends with */
    int64_t wish;      /* of all ranks: why to save or stop */
    bool any_busy;     /* a rank's thread is writing */
    double stall;      /* seconds that training stood still for the last save */
    double save_start; /* when the save under way began */
} Loop;

/* The trainer, metrics, triggers and saver are open, and the state is where the run starts.
 * Returns when the last step is done, a stop was asked for, or something failed; every save that
 * began is over then, unless the error isn't agreed. Collective over GROUP_GRID. 0 or a negative
 * code. */
int loop_run(Loop *loop);

#endif
