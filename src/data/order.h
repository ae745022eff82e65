/* The sample order: a function of (seed, epoch, index), not a shuffled list, so that a position in
 * the data is derived from the step and nothing needs to be saved.
 *
 * Sample i of a source of n tokens covers tokens [i * context, i * context + context + 1): inputs
 * and targets. Within an epoch every sample comes once. The permutation is a balanced Feistel
 * network over the next even number of bits with cycle walking (Black and Rogaway 2002), its round
 * function Philox keyed by the seed. */
#ifndef WEFT_DATA_ORDER_H
#define WEFT_DATA_ORDER_H

#include <stdint.h>

#define ORDER_VERSION 1

typedef struct {
    uint64_t seed;
    int64_t samples; /* in an epoch; at least 1 */
} SampleOrder;

/* The sample at place `index` in [0, samples) of an epoch. */
int64_t order_permute(const SampleOrder *order, int64_t epoch, int64_t index);

/* The sample that sequence `place` in [0, global_batch) of a step (from 0) takes. */
int64_t order_sample(const SampleOrder *order, int64_t step, int64_t global_batch, int64_t place);

#endif
