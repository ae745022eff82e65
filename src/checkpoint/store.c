#include "checkpoint/store.h"

#include "base/error.h"
#include "base/library_lock.h"

#include <stdlib.h>
#include <string.h>

enum { ATTRIBUTES = 4, SECTION_BYTES = 4 << 20 /* written at once: see library_lock.h */ };

/* What an attribute of a piece's dataset holds: `count` integers. */
typedef struct {
    const char *name;
    int count;
    bool scalar; /* an int32; else an array of int64 */
    int64_t value[2];
} Attribute;

static void attributes_of(const Catalog *catalog, const CatalogEntry *entry,
                          Attribute attribute[ATTRIBUTES]) {
    const CatalogTensor *tensor = &catalog->tensor[entry->tensor];
    const ParamPiece *piece = &entry->piece;
    attribute[0] = (Attribute){.name = "global_shape", .count = tensor->rank};
    attribute[1] = (Attribute){.name = "offset", .count = tensor->rank};
    attribute[2] = (Attribute){.name = "count", .count = tensor->rank};
    attribute[3] = (Attribute){"axis", 1, true, {tensor->axis, 0}};
    catalog_dims(tensor, tensor->rows, tensor->cols, attribute[0].value);
    catalog_dims(tensor, piece->row, piece->col, attribute[1].value);
    catalog_dims(tensor, piece->rows, piece->cols, attribute[2].value);
}

static hid_t attribute_type(const Attribute *a) {
    return a->scalar ? H5T_STD_I32LE : H5T_STD_I64LE;
}

int store_create(Hdf5File *file, const Catalog *catalog, const char *directory, int t, int d) {
    char name[CATALOG_FILE];
    catalog_file_name(t, d, name);
    int links = (int)range_size(catalog_file_entries(catalog, t, d)) / catalog->roles;
    int status = hdf5_create(file, directory, name, catalog->roles);
    for (int role = 0; !status && role < catalog->roles; role++)
        status = hdf5_make_group(file, catalog_roles[role].name, links);
    return status;
}

int store_open(Hdf5File *file, const char *directory, int t, int d) {
    char name[CATALOG_FILE];
    catalog_file_name(t, d, name);
    return hdf5_open(file, directory, name);
}

static bool write_attribute(hid_t dataset, const Attribute *attribute) {
    hsize_t size = (hsize_t)attribute->count;
    hid_t space = attribute->scalar ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &size, NULL);
    hid_t id = space < 0 ? -1
                         : H5Acreate2(dataset, attribute->name, attribute_type(attribute), space,
                                      H5P_DEFAULT, H5P_DEFAULT);
    bool good = id >= 0 && H5Awrite(id, H5T_NATIVE_INT64, attribute->value) >= 0;
    hdf5_drop(id);
    hdf5_drop(space);
    return good;
}

/* A selection of [rows, cols] at (row, col) of `space`, a matrix or (rank 1) a vector. */
static bool select_block(hid_t space, int rank, int64_t row, int64_t col, int64_t rows,
                         int64_t cols) {
    hsize_t offset[2] = {(hsize_t)(rank == 2 ? row : col), (hsize_t)col};
    hsize_t count[2] = {(hsize_t)(rank == 2 ? rows : cols), (hsize_t)cols};
    return H5Sselect_hyperslab(space, H5S_SELECT_SET, offset, NULL, count, NULL) >= 0;
}

int store_rows_begin(StoreRows *rows, const Hdf5File *file, const Catalog *catalog,
                     const CatalogEntry *entry) {
    LIBRARY_SECTION;
    Attribute attribute[ATTRIBUTES];
    *rows = (StoreRows){
        .file = file, .piece = entry->piece, .rank = catalog->tensor[entry->tensor].rank};
    catalog_dataset(catalog, entry, rows->name);
    attributes_of(catalog, entry, attribute);
    rows->dataset = hdf5_create_dataset(file, rows->name, attribute[2].count, attribute[2].value);
    if (rows->dataset < 0) return hdf5_error(file, rows->name, "can't create");
    for (int i = 0; i < ATTRIBUTES; i++)
        if (!write_attribute(rows->dataset, &attribute[i]))
            return hdf5_error(file, rows->name, "can't write attributes");
    return 0;
}

int store_rows_append(StoreRows *rows, const real *data, int64_t count) {
    LIBRARY_SECTION;
    const ParamPiece *piece = &rows->piece;
    hid_t space = H5Dget_space(rows->dataset);
    hid_t memory = H5Screate_simple(1, (hsize_t[]){(hsize_t)(count * piece->cols)}, NULL);
    bool good = space >= 0 && memory >= 0 &&
                select_block(space, rows->rank, rows->written, 0, count, piece->cols) &&
                H5Dwrite(rows->dataset, hdf5_memory_type(), memory, space, H5P_DEFAULT, data) >= 0;
    int status = good ? 0 : hdf5_error(rows->file, rows->name, "can't write");
    rows->written += count;
    hdf5_drop(memory);
    hdf5_drop(space);
    return status;
}

int store_rows_end(StoreRows *rows) {
    LIBRARY_SECTION;
    hid_t dataset = rows->dataset;
    rows->dataset = -1;
    if (dataset >= 0 && H5Dclose(dataset) < 0) /* what is buffered is written now */
        return hdf5_error(rows->file, rows->name, "can't write");
    return 0;
}

int store_write(const Hdf5File *file, const Catalog *catalog, const CatalogEntry *entry,
                const real *data) {
    StoreRows rows;
    const ParamPiece *piece = &entry->piece;
    int64_t block = SECTION_BYTES / ((int64_t)sizeof *data * (piece->cols ? piece->cols : 1)) + 1;
    int status = store_rows_begin(&rows, file, catalog, entry);
    for (int64_t row = 0; !status && row < piece->rows; row += block) {
        int64_t left = piece->rows - row;
        status = store_rows_append(&rows, data + row * piece->cols, left < block ? left : block);
    }
    int ended = store_rows_end(&rows);
    return status ? status : ended;
}

static bool attribute_matches(hid_t dataset, const Attribute *wanted) {
    int64_t value[2] = {0, 0};
    hid_t id = H5Aopen(dataset, wanted->name, H5P_DEFAULT);
    if (id < 0) return false;
    hid_t type = H5Aget_type(id), space = H5Aget_space(id);
    bool good = type >= 0 && space >= 0 && H5Tequal(type, attribute_type(wanted)) > 0 &&
                H5Sget_simple_extent_ndims(space) == !wanted->scalar &&
                H5Sget_simple_extent_npoints(space) == wanted->count &&
                H5Aread(id, H5T_NATIVE_INT64, value) >= 0 &&
                !memcmp(value, wanted->value, (size_t)wanted->count * sizeof *value);
    hdf5_drop(space);
    hdf5_drop(type);
    hdf5_drop(id);
    return good;
}

static int check_dataset(const Hdf5File *file, hid_t dataset, const char *name,
                         const Attribute attribute[ATTRIBUTES], hsize_t bytes) {
    int status = hdf5_check_shape(file, dataset, name, attribute[2].count, attribute[2].value);
    if (!status) status = hdf5_check_storage(file, dataset, name, bytes);
    for (int i = 0; !status && i < ATTRIBUTES; i++)
        if (!attribute_matches(dataset, &attribute[i]))
            status = error_set(WEFT_INPUT,
                               "%s: dataset %s: attribute %s is missing or isn't what "
                               "the manifest says",
                               file->path, name, attribute[i].name);
    return status;
}

static int check_digest(const Hdf5File *file, const char *name, const CatalogEntry *entry,
                        Hash128 digest) {
    char found[HASH_TEXT], wanted[HASH_TEXT];
    if (hash_equal(digest, entry->digest)) return 0;
    hash_format(digest, found);
    hash_format(entry->digest, wanted);
    return error_set(WEFT_INPUT, "%s: dataset %s: damaged: digest is %s, the manifest says %s",
                     file->path, name, found, wanted);
}

/* The piece's dataset, once it has proved to be what the manifest says; -1 with the error set. */
static hid_t open_dataset(const Hdf5File *file, const Catalog *catalog, const CatalogEntry *entry,
                          const char *name) {
    LIBRARY_SECTION;
    Attribute attribute[ATTRIBUTES];
    attributes_of(catalog, entry, attribute);
    hid_t dataset = H5Dopen2(file->id, name, H5P_DEFAULT);
    if (dataset < 0) {
        hdf5_error(file, name, "missing or unreadable");
    } else if (check_dataset(file, dataset, name, attribute,
                             (hsize_t)catalog_piece_size(entry) * sizeof(real))) {
        hdf5_drop(dataset);
        return -1;
    }
    return dataset;
}

int store_check(const Hdf5File *file, const Catalog *catalog, const CatalogEntry *entry) {
    char name[CATALOG_DATASET];
    catalog_dataset(catalog, entry, name);
    hid_t dataset = open_dataset(file, catalog, entry, name);
    hdf5_drop(dataset);
    return dataset < 0 ? WEFT_INPUT : 0;
}

static int read_whole(const Hdf5File *file, hid_t dataset, const char *name, real *data) {
    LIBRARY_SECTION;
    return H5Dread(dataset, hdf5_memory_type(), H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0
               ? hdf5_error(file, name, "can't read")
               : 0;
}

int store_read(const Hdf5File *file, const Catalog *catalog, const CatalogEntry *entry,
               real *data) {
    char name[CATALOG_DATASET];
    catalog_dataset(catalog, entry, name);
    hid_t dataset = open_dataset(file, catalog, entry, name);
    if (dataset < 0) return WEFT_INPUT;
    int status = read_whole(file, dataset, name, data);
    if (!status)
        status = check_digest(file, name, entry,
                              hash_bytes(data, (size_t)catalog_piece_size(entry) * sizeof *data));
    hdf5_drop(dataset);
    return status;
}

/* `part` of the piece, in coordinates of the whole tensor, with rows `ld` elements apart. */
static int read_part(const Hdf5File *file, hid_t dataset, const char *name, int rank,
                     const ParamPiece *piece, ParamPiece part, real *data, int64_t ld) {
    LIBRARY_SECTION;
    hid_t space = H5Dget_space(dataset);
    hid_t memory = H5Screate_simple(2, (hsize_t[]){(hsize_t)part.rows, (hsize_t)ld}, NULL);
    bool good = space >= 0 && memory >= 0 &&
                select_block(space, rank, part.row - piece->row, part.col - piece->col, part.rows,
                             part.cols) &&
                select_block(memory, 2, 0, 0, part.rows, part.cols) &&
                H5Dread(dataset, hdf5_memory_type(), memory, space, H5P_DEFAULT, data) >= 0;
    int status = good ? 0 : hdf5_error(file, name, "can't read");
    hdf5_drop(memory);
    hdf5_drop(space);
    return status;
}

int store_read_part(const Hdf5File *file, const Catalog *catalog, const CatalogEntry *entry,
                    ParamPiece part, real *data, int64_t ld) {
    char name[CATALOG_DATASET];
    catalog_dataset(catalog, entry, name);
    hid_t dataset = open_dataset(file, catalog, entry, name);
    if (dataset < 0) return WEFT_INPUT;
    int status = read_part(file, dataset, name, catalog->tensor[entry->tensor].rank, &entry->piece,
                           part, data, ld);
    hdf5_drop(dataset);
    return status;
}

/* What to read next of a piece after `part`, in the order of its cells: some rows, or a part of one
 * row. False at the end. */
static bool next_part(const ParamPiece *piece, int64_t room, ParamPiece *part) {
    int64_t col = part->col + part->cols, end = piece->row + piece->rows;
    if (col < piece->col + piece->cols) {
        part->col = col;
    } else {
        part->row += part->rows;
        part->col = piece->col;
        part->rows = piece->cols < room ? room / piece->cols : 1;
        if (part->rows > end - part->row) part->rows = end - part->row;
    }
    int64_t left = piece->col + piece->cols - part->col;
    part->cols = left < room ? left : room;
    return part->row < end;
}

int store_scan(const Hdf5File *file, const Catalog *catalog, const CatalogEntry *entry, real *block,
               int64_t room, void (*visit)(void *context, ParamPiece part, const real *data),
               void *context) {
    char name[CATALOG_DATASET];
    const ParamPiece *piece = &entry->piece;
    ParamPiece part = {piece->row, piece->col + piece->cols, 0, 0};
    int rank = catalog->tensor[entry->tensor].rank, status = 0;
    catalog_dataset(catalog, entry, name);
    hid_t dataset = open_dataset(file, catalog, entry, name);
    if (dataset < 0) return WEFT_INPUT;
    HashStream *digest = hash_stream_begin();
    if (!digest) status = WEFT_RUNTIME;
    while (!status && next_part(piece, room, &part)) {
        status = read_part(file, dataset, name, rank, piece, part, block, part.cols);
        if (status) break;
        hash_stream_add(digest, block, (size_t)(part.rows * part.cols) * sizeof *block);
        visit(context, part, block);
    }
    Hash128 found = hash_stream_end(digest);
    if (!status) status = check_digest(file, name, entry, found);
    hdf5_drop(dataset);
    return status;
}

int store_check_names(const Hdf5File *file, const Catalog *catalog, int t, int d) {
    const char *name[CATALOG_ROLES];
    for (int role = 0; role < catalog->roles; role++) name[role] = catalog_roles[role].name;
    int status = hdf5_check_names(file, "/", name, catalog->roles);
    Range entries = catalog_file_entries(catalog, t, d);
    const char **tensor = malloc(((size_t)range_size(entries) + 1) * sizeof *tensor);
    if (!tensor) return error_set(WEFT_RUNTIME, "out of memory: names in %s", file->path);
    for (int role = 0; !status && role < catalog->roles; role++) {
        int count = 0;
        for (int64_t i = entries.begin; i < entries.end; i++)
            if (catalog->entry[i].role == role)
                tensor[count++] = catalog->tensor[catalog->entry[i].tensor].name;
        status = hdf5_check_names(file, catalog_roles[role].name, tensor, count);
    }
    free(tensor);
    return status;
}

int64_t store_largest_piece(const Catalog *catalog, const char *directory) {
    char name[CATALOG_FILE], path[FILES_PATH];
    int64_t largest = 0, size = 0;
    for (int64_t i = 0; i < catalog->entries; i++) {
        const CatalogEntry *entry = &catalog->entry[i];
        if (i == 0 || entry->t != entry[-1].t || entry->d != entry[-1].d) {
            catalog_file_name(entry->t, entry->d, name);
            size = files_join(path, sizeof path, directory, name) ? -1 : files_size(path);
        }
        int64_t cells = catalog_piece_size(entry);
        if (cells > largest && cells <= size / (int64_t)sizeof(real)) largest = cells;
    }
    return largest;
}
