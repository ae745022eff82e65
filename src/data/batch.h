/* Batches: a microbatch is micro_batch sequences of context tokens, its rows T = micro_batch *
 * context; targets are the next tokens. The held-out part is the last `held_out` fraction of the
 * source, or a file of its own; training never reads it. */
#ifndef WEFT_DATA_BATCH_H
#define WEFT_DATA_BATCH_H

#include "data/order.h"
#include "data/source.h"
#include "tensor/microbatch.h"

#include <stdbool.h>

typedef struct {
    TokenSource *train, *held; /* the same source when held-out is a fraction of it */
    bool held_apart;
    int64_t train_tokens; /* training covers tokens [0, train_tokens) of train */
    int64_t held_first, held_tokens;
    int64_t context, micro_batch;
    SampleOrder order;
} Dataset;

typedef struct {
    const char *kind, *train, *held; /* held: path of its own, or "" */
    double held_out;                 /* fraction of train, when held is ""; 0: nothing held out */
    int token_bytes;
    int64_t vocab, context, micro_batch, global_batch;
    uint64_t seed;
} DatasetSpec;

/* Returns 0 or WEFT_INPUT: unreadable, too short for one global batch, or nothing to predict in the
 * held-out part (says how many tokens are needed and there). */
int dataset_open(Dataset *data, const DatasetSpec *spec);
void dataset_close(Dataset *data); /* also after a failed or without dataset_open, if zeroed */

/* Microbatch m of a step: sequences m * micro_batch ... of the global batch, into the batch's
 * tokens and targets [micro_batch * context]; sample_ids [micro_batch] or NULL. No target is
 * masked. Returns 0 or WEFT_INPUT. */
int dataset_train_batch(const Dataset *data, int64_t step, int64_t global_batch, int64_t microbatch,
                        const Microbatch *batch, int64_t *sample_ids);

/* Held-out windows lie one after another, the last one padded, so that every held-out token but the
 * first is a target exactly once. The number of microbatches in at most `sequences` windows, spread
 * evenly (0: all). */
int64_t dataset_eval_batches(const Dataset *data, int64_t sequences);

/* Microbatch m of evaluation. Beyond the end, or beyond `sequences`, tokens are 0 and targets -1.
 * Returns 0 or WEFT_INPUT. */
int dataset_eval_batch(const Dataset *data, int64_t sequences, int64_t microbatch,
                       const Microbatch *batch);

#endif
