/* Any block of a checkpoint's tensors by global coordinates, whatever its logical grid: what the
 * serial tools (reshard, diff) read through. Memory does not grow with the checkpoint: blocks are
 * the caller's, and a few files are open at a time.
 *
 *     reader_open(&reader, directory);
 *     reader_block(&reader, role, tensor, block, data) ...
 *     reader_close(&reader);
 *
 * Shape, type and attributes of a dataset are checked whenever it is read from; digests are not: a
 * block is a part of what they are of. Who reads every cell can compare fingerprints, and
 * checkpoint_verify names what is damaged. No MPI. */
#ifndef WEFT_CHECKPOINT_READER_H
#define WEFT_CHECKPOINT_READER_H

#include "checkpoint/catalog.h"
#include "checkpoint/store.h"

#include <jansson.h>

enum { READER_FILES = SHARD_MAX }; /* open at once: a row of any matrix */

typedef struct {
    char directory[FILES_PATH];
    json_t *manifest;
    Catalog catalog;
    struct {
        int t, d;
        Hdf5File file;
        int64_t used; /* when, for the choice of which to close; 0: never */
    } open[READER_FILES];
    int64_t clock;
} Reader;

/* `directory` is a step directory. 0 or WEFT_INPUT. */
int reader_open(Reader *reader, const char *directory);

/* data: [block.rows, block.cols] contiguous, of catalog role and tensor (indices). 0, or WEFT_INPUT
 * naming file and dataset. */
int reader_block(Reader *reader, int role, int tensor, ParamPiece block, real *data);

/* Rows [row, row + n) of a tensor in blocks of at most this many elements: how to walk a tensor in
 * bounded memory. At least one row. */
int64_t reader_rows_at_once(const CatalogTensor *tensor, int64_t elements);

/* Safe after a failed reader_open, and on zeroed memory. */
void reader_close(Reader *reader);

#endif
