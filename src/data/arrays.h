/* Array sources: rows of numbers in an HDF5 file, inputs [N, a] and targets [N, b] in two datasets.
 *
 * Any float or integer type of the library is read, whatever its size and byte order, in any layout
 * that lies in the file itself (contiguous, compact, chunked with any filter), as doubles. Rows are
 * read where they lie, as they are wanted: those of contiguous datasets of common types by pread,
 * others through HDF5 within a LIBRARY_SECTION, with a cache of at most 32 MB of chunks for each
 * dataset. A random row of a compressed dataset costs unpacking its chunk; h5repack -l CONTI makes
 * it contiguous.
 *
 * Files are hostile: rank, shape, type and where the bytes lie are checked at the start, every
 * number when it is read. */
#ifndef WEFT_DATA_ARRAYS_H
#define WEFT_DATA_ARRAYS_H

#include "base/hash.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ArraySource ArraySource;

typedef enum { ARRAY_INPUTS, ARRAY_TARGETS, ARRAY_PARTS } ArrayPart;

typedef struct {
    const char *name[ARRAY_PARTS]; /* of the datasets */
    int64_t width[ARRAY_PARTS];    /* a and b, or the number of classes */
    bool classes;    /* targets are [N] or [N, 1] integers from 0 to width - 1 instead */
    bool unlabelled; /* there may be no dataset of targets */
} ArraySpec;

/* Returns 0, or WEFT_INPUT naming file and dataset: can't be opened, is no dataset of numbers, has
 * another shape, isn't wholly in the file; or both have not equally many rows. */
int arrays_open(ArraySource **out, const char *path, const ArraySpec *spec);
void arrays_close(ArraySource *source);

int64_t arrays_rows(const ArraySource *source);                  /* N */
int64_t arrays_width(const ArraySource *source, ArrayPart part); /* of a row: 1 for classes */
bool arrays_has(const ArraySource *source, ArrayPart part);      /* false: spec was `unlabelled` */

int arrays_digest(const ArraySource *source, Hash128 *digest); /* file_digest of its file */

/* values [count, width]: rows first ... first + count - 1. WEFT_INPUT naming file, dataset and row:
 * can't be read, or a number that isn't finite as a `real`, or no class. */
int arrays_read(const ArraySource *source, ArrayPart part, int64_t first, int64_t count,
                double *values);

/* Reads every row once: 0, or WEFT_INPUT of the first bad one, or WEFT_RUNTIME. */
int arrays_check(const ArraySource *source);

/* The same as arrays_read, of `count` rows anywhere. */
int arrays_gather(const ArraySource *source, ArrayPart part, const int64_t *row, int64_t count,
                  double *values);

#endif
