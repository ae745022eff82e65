/* Batches: a microbatch is micro_batch samples, its rows T = micro_batch * context.
 *
 * A sample of a token file is a sequence of context tokens, whose targets are the next tokens; of a
 * file of arrays one row (context 1), its targets or its class. Tokens and rows are called items
 * here. The held-out part is the last `held_out` fraction of the items, or a file of its own;
 * training never reads it. */
#ifndef WEFT_DATA_BATCH_H
#define WEFT_DATA_BATCH_H

#include "data/arrays.h"
#include "data/normalise.h"
#include "data/order.h"
#include "tensor/microbatch.h"

#include <stdbool.h>

typedef struct SampleKind SampleKind; /* data/sample_kind.h */

typedef struct {
    const SampleKind *kind;
    void *train, *held; /* sources of that kind, the same when held-out is a fraction */
    bool held_apart;
    int64_t train_items; /* training covers items [0, train_items) of train */
    int64_t held_first, held_items;
    int64_t context, micro_batch;
    SampleOrder order;
    Normalisation normalisation; /* of arrays, if it is wanted: `known` before a batch is read */
    int64_t *first;              /* [micro_batch] where the samples of a microbatch begin */
    double *values;              /* [micro_batch, the widest array] as they are read */
} Dataset;

typedef struct {
    const char *kind, *train, *held; /* held: path of its own, or "" */
    double held_out;                 /* fraction of train, when held is ""; 0: nothing held out */
    int token_bytes;
    int64_t vocab, context, micro_batch, global_batch;
    uint64_t seed;
    ArraySpec arrays; /* of kind "hdf5" */
    bool normalise;   /* likewise: its inputs, and targets that aren't classes */
} DatasetSpec;

/* Returns 0 or WEFT_INPUT: unreadable, too short for one global batch, or nothing to predict in the
 * held-out part (says how many items are needed and there). */
int dataset_open(Dataset *data, const DatasetSpec *spec);
void dataset_close(Dataset *data); /* also after a failed or without dataset_open, if zeroed */

const char *dataset_items(const Dataset *data); /* "tokens" or "rows" */

/* Of the files; the same twice when held-out is a fraction. Returns 0 or WEFT_INPUT. */
int dataset_digests(const Dataset *data, Hash128 *train, Hash128 *held);

/* Reads all rows of arrays once, held-out ones too, so that a bad one ends a run before it has
 * begun. (Tokens are checked as they are read.) 0, WEFT_INPUT or WEFT_RUNTIME. */
int dataset_check(const Dataset *data);

/* Measures the normalisation on the training rows, unless there is none or it is known. Returns 0,
 * WEFT_INPUT or WEFT_RUNTIME. */
int dataset_normalise(Dataset *data);

/* Microbatch m of a step: samples m * micro_batch ... of the global batch, into the batch's tokens
 * and targets [T], or inputs [T, a] and values [T, b] or targets [T]; sample_ids [micro_batch] or
 * NULL. No target is masked. Returns 0 or WEFT_INPUT. */
int dataset_train_batch(const Dataset *data, int64_t step, int64_t global_batch, int64_t microbatch,
                        const Microbatch *batch, int64_t *sample_ids);

/* Held-out windows lie one after another, the last one padded, so that every held-out row, and
 * every token but the first, is a target exactly once. The number of microbatches in at most
 * `samples` windows, spread evenly (0: all); 0 when nothing is held out. */
int64_t dataset_eval_batches(const Dataset *data, int64_t samples);

/* Microbatch m of evaluation. Beyond the end, or beyond `samples`, tokens, inputs and values are 0
 * and targets -1. Returns 0 or WEFT_INPUT. */
int dataset_eval_batch(const Dataset *data, int64_t samples, int64_t microbatch,
                       const Microbatch *batch);

#endif
