#include "checkpoint/reader.h"

#include "base/error.h"
#include "checkpoint/manifest.h"

#include <inttypes.h>
#include <string.h>

int reader_open(Reader *reader, const char *directory) {
    *reader = (Reader){0};
    for (int i = 0; i < READER_FILES; i++) reader->open[i].file.id = -1;
    if (strlen(directory) >= FILES_PATH)
        return error_set(WEFT_USAGE, "path too long: %s", directory);
    memcpy(reader->directory, directory, strlen(directory) + 1);
    return manifest_open(directory, &reader->manifest, &reader->catalog);
}

/* The open file (t, d); the one that has been idle for longest makes room for it. */
static int take_file(Reader *reader, int t, int d, const Hdf5File **file) {
    int oldest = 0;
    for (int i = 0; i < READER_FILES; i++) {
        if (reader->open[i].file.id >= 0 && reader->open[i].t == t && reader->open[i].d == d) {
            reader->open[i].used = ++reader->clock;
            *file = &reader->open[i].file;
            return 0;
        }
        if (reader->open[i].used < reader->open[oldest].used) oldest = i;
    }
    hdf5_close(&reader->open[oldest].file);
    reader->open[oldest].t = t;
    reader->open[oldest].d = d;
    reader->open[oldest].used = ++reader->clock;
    *file = &reader->open[oldest].file;
    return store_open(&reader->open[oldest].file, reader->directory, t, d);
}

static bool within(int64_t offset, int64_t count, int64_t size) {
    return offset >= 0 && count >= 0 && count <= size && offset <= size - count;
}

int reader_block(Reader *reader, int role, int tensor, ParamPiece block, real *data) {
    const Catalog *catalog = &reader->catalog;
    if (role < 0 || role >= catalog->roles || tensor < 0 || tensor >= catalog->tensors)
        return error_set(WEFT_RUNTIME, "%s: has no role %d of tensor %d", reader->directory, role,
                         tensor);
    const CatalogTensor *whole = &catalog->tensor[tensor];
    if (!within(block.row, block.rows, whole->rows) || !within(block.col, block.cols, whole->cols))
        return error_set(WEFT_RUNTIME,
                         "%s: tensor %s: block [%" PRId64 ", %" PRId64 "] of [%" PRId64 ", %" PRId64
                         "] reaches outside",
                         reader->directory, whole->name, block.row, block.col, block.rows,
                         block.cols);
    int status = 0;
    const CatalogEntry *entry;
    CatalogWalk walk = catalog_walk(catalog, role, tensor, block);
    while (!status && (entry = catalog_walk_next(&walk))) {
        const Hdf5File *file;
        const ParamPiece *part = &walk.common;
        real *place = data + (part->row - block.row) * block.cols + (part->col - block.col);
        status = take_file(reader, entry->t, entry->d, &file);
        if (!status) status = store_read_part(file, catalog, entry, *part, place, block.cols);
    }
    return status;
}

int64_t reader_rows_at_once(const CatalogTensor *tensor, int64_t elements) {
    int64_t rows = elements / tensor->cols;
    return rows < 1 ? 1 : rows > tensor->rows ? tensor->rows : rows;
}

void reader_close(Reader *reader) {
    for (int i = 0; i < READER_FILES; i++)
        if (reader->open[i].used) hdf5_close(&reader->open[i].file);
    json_decref(reader->manifest);
    catalog_release(&reader->catalog);
    *reader = (Reader){0};
}
