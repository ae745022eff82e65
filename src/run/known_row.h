/* One known row through the FFNs of a checkpoint, shard by shard, from its files as they lie: what
 * a rank that owns a shard would compute of it. Which channel of gate meets which of up, and which
 * column of down takes it, is decided by where they stand in the shard, not by global places: so a
 * file that pairs them wrongly is seen, even if every number in it is right.
 *
 * Pre-activations and sums are formed in double in the order of channels, so two cuts of the same
 * FFN agree to the last bits. Serial, in bounded memory, no MPI. */
#ifndef WEFT_RUN_KNOWN_ROW_H
#define WEFT_RUN_KNOWN_ROW_H

#include "checkpoint/reader.h"
#include "nn/model.h"

/* y [d_model] = the FFN of x [d_model], both of which the caller owns, by the shards in the
 * reader's files. `ffn` says which tensors there are and how they meet. 0; WEFT_INPUT when a file
 * can't be read; or WEFT_CHECK when the shards' parts don't fit each other, naming shard and
 * tensor. */
int known_row_output(Reader *reader, const Ffn *ffn, const real *x, double *y);

/* The known row through the first, the middle and the last layer's FFN of both checkpoints. 0;
 * WEFT_CHECK naming the layer and what differs; or another code when something can't be read. */
int known_row_compare(Reader *a, Reader *b, const Model *model);

#endif
