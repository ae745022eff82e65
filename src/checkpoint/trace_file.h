/* A trace: the tensors of one forward pass, each whole, in one HDF5 file.
 *
 *     trace_create(&trace, path, layers);                 // a new file
 *     trace_text(&trace, "equation", ...) ...             // attributes of the root
 *     trace_put(&trace, "layers/0/ffn.up", &block) ...    // from its first row to its last
 *     trace_finish(&trace);                               // `order`; fsync
 *     trace_abandon(&trace);                              // always
 *
 * Datasets NAME are [rows, cols], contiguous, little-endian IEEE of `real`; integers are int32 [n].
 * `order` lists their names as they were made. The same calls make the same bytes. On one rank. */
#ifndef WEFT_CHECKPOINT_TRACE_FILE_H
#define WEFT_CHECKPOINT_TRACE_FILE_H

#include "checkpoint/hdf5_file.h"

#define TRACE_NAME 64

typedef struct {
    Hdf5File file;
    char (*name)[TRACE_NAME]; /* [names] */
    int names, capacity;
} TraceFile;

/* Rows [row, row + count) of a tensor [rows, cols], contiguous. */
typedef struct {
    int64_t rows, cols, row, count;
    const real *data;
} TraceBlock;

/* WEFT_USAGE when there is something at `path` already. `layers`: how many groups it will have. */
int trace_create(TraceFile *trace, const char *path, int layers);
int trace_text(TraceFile *trace, const char *attribute, const char *value);
int trace_put(TraceFile *trace, const char *name, const TraceBlock *block);
int trace_put_integers(TraceFile *trace, const char *name, const int32_t *values, int64_t count);
int trace_finish(TraceFile *trace);
void trace_abandon(TraceFile *trace); /* closes; safe on zeroed memory and after trace_finish */

/* ---- reading, of files by others too ---- */

/* `order` of a trace, one name after another: free(*names). 0 or WEFT_INPUT. */
int trace_order(const Hdf5File *file, char (**names)[TRACE_NAME], int *count);

/* A dataset of numbers as double, whatever its type: free(*values), NULL where there is none of
 * that name. expected: how many numbers there must be (-1: of a trace, whose own business it is).
 * dims: of a matrix; of any other shape the product and 1. 0 or WEFT_INPUT. */
int trace_read(const Hdf5File *file, const char *name, int64_t expected, double **values,
               int64_t dims[2]);

#endif
