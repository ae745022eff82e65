/* The losses a head may end in: one file and one row of the table in nn/head.c each. All of them
 * see a chunk of rows of the cut outputs, and leave what is to be summed over shards to the tree.
 */
#ifndef WEFT_NN_HEAD_LOSSES_H
#define WEFT_NN_HEAD_LOSSES_H

#include "nn/head.h"

typedef struct {
    Range rows;     /* of the microbatch */
    Sharded logits; /* [rows, outputs of the shard] */
    const Microbatch *batch;
} HeadChunk;

struct LossKind { /* all required */
    /* Memory that only this loss needs, for `chunk` rows. */
    void (*take)(Head *head, Arena *arena, int64_t chunk);
    /* head->row_loss of the chunk's rows (masked: 0), from the outputs; *hits grows by the rows
     * whose largest output is the target's. Collective over GROUP_TENSOR. 0 or a negative code. */
    int (*losses)(Head *head, const HeadChunk *chunk, int64_t *hits);
    /* In place, after `losses`: outputs -> gradient of the rows' losses * scale (masked: 0). */
    void (*gradient)(const Head *head, const HeadChunk *chunk, double scale);
};

extern const LossKind loss_cross_entropy, loss_squared_error;

/* head->sums [rows]: head->shard_sums [shards, rows], of which each rank has filled in its own, up
 * the tensor tree. Collective over GROUP_TENSOR. 0 or a negative code. */
int head_sum_shards(Head *head, int64_t rows);

#endif
