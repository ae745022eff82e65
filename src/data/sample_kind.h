/* What the samples of a Dataset are made of: one row of the table in batch.c and one file for
 * each kind of source. An *item* is a token or a row of an array. */
#ifndef WEFT_DATA_SAMPLE_KIND_H
#define WEFT_DATA_SAMPLE_KIND_H

#include "data/batch.h"

struct SampleKind {
    const char *items; /* what messages call them */
    int64_t beyond;    /* items that a sample reads after its `context` ones: a last target */
    int (*open)(void **source, const DatasetSpec *spec, const char *path); /* 0 or WEFT_INPUT */
    void (*close)(void *source);                                           /* NULL is allowed */
    int64_t (*length)(const void *source);                                 /* items */
    int (*digest)(const void *source, Hash128 *digest);                    /* 0 or WEFT_INPUT */
    int (*check)(const void *source); /* reads all items: 0 or WEFT_INPUT; NULL: none can be bad */
    /* A microbatch of samples that begin at first[micro_batch]. Items at `end` and beyond are
     * padded and their targets masked; samples that are nothing else come last. 0 or a negative
     * code. */
    int (*read)(const Dataset *data, const void *source, const int64_t *first, int64_t end,
                const Microbatch *batch);
};

extern const SampleKind samples_of_tokens, samples_of_rows;

#endif
