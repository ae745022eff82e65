/* The shard files: shard-tTTT-dDDD.h5 with the pieces of one (t, d) of the logical grid, as the
 * catalog lists them. Datasets ROLE/NAME are contiguous, [rows, cols] or [cols], with attributes
 * global_shape, offset, count (int64) and axis (int32, -1: replicated). What is read is checked:
 * shape, type, attributes, that the bytes are really there, and the digest. */
#ifndef WEFT_CHECKPOINT_STORE_H
#define WEFT_CHECKPOINT_STORE_H

#include "checkpoint/catalog.h"
#include "checkpoint/hdf5_file.h"

/* An empty shard file with its groups. Finish with hdf5_finish. */
int store_create(Hdf5File *file, const Catalog *catalog, const char *directory, int t, int d);
int store_open(Hdf5File *file, const char *directory, int t, int d);

/* data: the piece, [piece.rows, piece.cols] contiguous. 0 or WEFT_RUNTIME. */
int store_write(const Hdf5File *file, const Catalog *catalog, const CatalogEntry *entry,
                const real *data);

/* The same, some rows at a time from the first to the last:
 *
 *     store_rows_begin(&rows, file, catalog, entry);
 *     store_rows_append(&rows, data, count) ...    // data: [count, piece.cols] contiguous
 *     store_rows_end(&rows);                       // also after a failure
 *
 * Each returns 0 or WEFT_RUNTIME. */
typedef struct {
    const Hdf5File *file;
    ParamPiece piece;
    int rank;
    int64_t written; /* rows */
    hid_t dataset;
    char name[CATALOG_DATASET];
} StoreRows;
int store_rows_begin(StoreRows *rows, const Hdf5File *file, const Catalog *catalog,
                     const CatalogEntry *entry);
int store_rows_append(StoreRows *rows, const real *data, int64_t count);
int store_rows_end(StoreRows *rows);

/* Fills data: [piece.rows, piece.cols]. 0, or WEFT_INPUT naming file and dataset. */
int store_read(const Hdf5File *file, const Catalog *catalog, const CatalogEntry *entry, real *data);

/* The same in bounded memory: reads into `block`, which has room for so many elements, shows each
 * part (in coordinates of the whole tensor, contiguous) in the order of the piece's cells, and
 * checks the digest at the end: what was shown may be damaged until 0 is returned. */
int store_scan(const Hdf5File *file, const Catalog *catalog, const CatalogEntry *entry, real *block,
               int64_t room, void (*visit)(void *context, ParamPiece part, const real *data),
               void *context);

/* Without the digest, of a part of the piece: `part` in coordinates of the whole tensor;
 * data: [part.rows, part.cols] with rows `ld` elements apart. */
int store_read_part(const Hdf5File *file, const Catalog *catalog, const CatalogEntry *entry,
                    ParamPiece part, real *data, int64_t ld);

/* What is checked before any reading, alone: shape, type, attributes, storage. No data are read. 0
 * or WEFT_INPUT naming file and dataset. */
int store_check(const Hdf5File *file, const Catalog *catalog, const CatalogEntry *entry);

/* Groups and datasets are those of the catalog, none missing and none extra. 0 or WEFT_INPUT. */
int store_check_names(const Hdf5File *file, const Catalog *catalog, int t, int d);

/* Elements of the largest piece that fits its file: room enough for any store_read that gets as far
 * as reading, whatever sizes a manifest claims. */
int64_t store_largest_piece(const Catalog *catalog, const char *directory);

#endif
