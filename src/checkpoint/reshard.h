/* The shard files of another logical grid, from those of a checkpoint: every value is read by its
 * global place and written to its new one, in bounded memory, whatever the checkpoint's size.
 *
 *     reshard_match(&job);                    // the same tensors on both sides
 *     reshard_print(&job);                    // what goes where, or:
 *     reshard_write(&job, directory, &elements);
 *
 * Tensors cut by columns are taken in whole rows: the files of some neighbouring shards are written
 * side by side, so that the source isn't read once for each of them. No MPI. */
#ifndef WEFT_CHECKPOINT_RESHARD_H
#define WEFT_CHECKPOINT_RESHARD_H

#include "checkpoint/reader.h"

enum {
    RESHARD_ELEMENTS = 1 << 22, /* of a block, unless a single row has more: 16 MB in float */
    RESHARD_FILES = 16          /* written side by side */
};

typedef struct {
    Reader *source;
    Catalog *target;  /* its digests are set by reshard_write */
    int64_t elements; /* RESHARD_ELEMENTS but in tests */
    int *from;        /* by the target's tensor: the source's; free() */
    void (*progress)(void *context, int64_t written, int64_t total); /* bytes; may be NULL */
    void *context;
} Reshard;

/* Source and target have the same tensors, in whatever order: fills job->from. 0, or WEFT_INPUT
 * naming the tensor that is missing, extra or of another shape. */
int reshard_match(Reshard *job);

int64_t reshard_bytes(const Reshard *job); /* of the target's datasets */
size_t reshard_memory(const Reshard *job); /* of the blocks that reshard_write holds */

/* Prints (log_print) for each file of the target which cells of which source file go where in it.
 */
void reshard_print(const Reshard *job);

/* Writes all shard files and the view into an empty directory. *elements: what the fingerprint of
 * the target has of them, summed over what was written. 0, WEFT_INPUT naming the source's file and
 * dataset, or WEFT_RUNTIME. */
int reshard_write(const Reshard *job, const char *directory, Hash128 *elements);

#endif
