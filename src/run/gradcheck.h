/* weft gradcheck: the gradients that training uses against the loss itself, at the layout it is
 * started with.
 *
 * The loss is that of the first step's first microbatch, dropout on: masks are functions of place,
 * so that it is an ordinary function of the parameters. Of every logical shard of every tensor, and
 * of every row shard of the stream that enters the first layer (the embedding's or the input
 * linear's output), the element with the largest gradient and some chosen by Philox are moved up
 * and down (math/slope.h). Then the whole step (all microbatches, all batch shards, summed over the
 * data-parallel ranks) along a few directions in which every parameter moves.
 *
 * An error is |gradient - slope|, relative to the tensor's largest gradient (of the whole step: to
 * the root of the sum of the squares of the terms). Elements without two step sizes that agree are
 * counted and passed over. Which elements are looked at, and what is printed, is the same at every
 * layout. Data-parallel ranks share out the elements. */
#ifndef WEFT_RUN_GRADCHECK_H
#define WEFT_RUN_GRADCHECK_H

#include "run/gradcheck_table.h"
#include "run/session.h"
#include "run/trainer.h"

typedef struct {
    double bound;    /* of the errors */
    int64_t samples; /* of each shard, beside the largest gradient; more where shards are few */
    int64_t seed;    /* of their choice */
} GradcheckOptions;

/* `weft gradcheck tests/configs/tiny.ini` says 6.1e-9, with --set ffn.activation=relu 3.9e-8. */
#define GRADCHECK_BOUND   1e-6
#define GRADCHECK_SAMPLES 2

/* On a trainer with its initial values, whose moments are overwritten; prints the table on the
 * first rank. 0, WEFT_CHECK (agreed) when an error is above the bound or nothing of a tensor could
 * be checked, or another negative code (not agreed). Collective over GROUP_GRID. */
int gradcheck_trainer(Trainer *trainer, const GradcheckOptions *options, GradcheckResult *result);

/* Opens the trainer, checks, closes. */
int gradcheck_run(const Config *config, const GradcheckOptions *options, const Session *session);

#endif
