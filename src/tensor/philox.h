/* Random numbers as a function of where, not when: Philox4x32-10 (Salmon et al., SC'11), through
 * Random123.
 *
 * Key: the run's seed (low word, high word). Counter, four 32-bit words:
 *   word 0  channel / 4 (the value for `channel` is output word channel % 4)
 *   word 1  row (global row of the microbatch, or global row of a tensor)
 *   word 2  step, or for weights the tensor's init key
 *   word 3  purpose << 26 | layer << 16 | microbatch within the global step
 * so purpose < 64, layer < 1024, microbatch < 65536. */
#ifndef WEFT_TENSOR_PHILOX_H
#define WEFT_TENSOR_PHILOX_H

#include "base/real.h"
#include "tensor/shard.h"

#include <stdint.h>

typedef enum {
    PHILOX_INIT = 1,
    PHILOX_HIDDEN_DROPOUT = 2,
    PHILOX_OUTPUT_DROPOUT = 3,
    PHILOX_SAMPLE_ORDER = 4,
    PHILOX_GENERATE = 5,
    PHILOX_CHECK = 6, /* what weft gradcheck looks at */
} PhiloxPurpose;

#define PHILOX_MAX_LAYERS       1024
#define PHILOX_MAX_MICROBATCHES 65536

typedef struct {
    uint64_t seed;
    PhiloxPurpose purpose;
    uint32_t layer, step, microbatch;
} PhiloxStream;

/* Four words for channels 4*block .. 4*block + 3 of `row`. */
void philox_block(const PhiloxStream *stream, uint32_t row, uint32_t block, uint32_t word[4]);

/* words[i] = the word of (row, channels.begin + i), for all channels of the range. */
void philox_words(const PhiloxStream *stream, uint32_t row, Range channels, uint32_t *words);

/* Standard normals by Box and Muller (1958): values[i] for (row, channels.begin + i). */
void philox_normals(const PhiloxStream *stream, uint32_t row, Range channels, double *values);

#endif
