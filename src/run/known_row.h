/* One known row through the FFNs of a checkpoint, shard by shard, from its files as they lie: what
 * a rank that owns a shard would compute of it. Which channel of gate meets which of up, and which
 * column of down takes it, is decided by where they stand in the shard, not by global places: so a
 * file that pairs them wrongly is seen, even if every number in it is right.
 *
 * known_row_file.h does the same for packed files. Pre-activations and sums are formed in double in
 * the order of channels, so two cuts of the same FFN agree to the last bits. Serial, in bounded
 * memory, no MPI. */
#ifndef WEFT_RUN_KNOWN_ROW_H
#define WEFT_RUN_KNOWN_ROW_H

#include "checkpoint/reader.h"
#include "nn/model.h"

/* y [d_model] = the FFN of x [d_model], both of which the caller owns, by the shards in the
 * reader's files. `ffn` says which tensors there are and how they meet. 0; WEFT_INPUT when a file
 * can't be read; or WEFT_CHECK when the shards' parts don't fit each other, naming shard and
 * tensor. */
int known_row_output(Reader *reader, const Ffn *ffn, const real *x, double *y);

/* A way of a row through the FFN of a layer, by the weights as they lie somewhere. `ffn` says how
 * projections meet (its kind and branches); which there are `context` knows. y as above. */
typedef struct {
    const char *where; /* for messages */
    int (*output)(void *context, int layer, const Ffn *ffn, const real *x, double *y);
    void *context;
} KnownRowPath;

/* The known row through the first, the middle and the last layer's FFN by both ways. 0; WEFT_CHECK
 * naming the layer and what differs; or another code when something can't be read. */
int known_row_compare_paths(const KnownRowPath *a, const KnownRowPath *b, const Ffn *ffn,
                            int layers);

/* The way through the shards of a checkpoint. */
typedef struct {
    Reader *reader;
    const Model *model;
} KnownRowShards;
KnownRowPath known_row_shards(KnownRowShards *shards);

/* The same for two checkpoints of a model. */
int known_row_compare(Reader *a, Reader *b, const Model *model);

#endif
