#include "checkpoint/view.h"

#include "base/error.h"
#include "base/library_lock.h"
#include "checkpoint/fingerprint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 4 << 20 }; /* of the view that are read at once */

static void dataset_name(const Catalog *catalog, int role, int tensor, char name[CATALOG_DATASET]) {
    CatalogEntry entry = {.role = role, .tensor = tensor};
    if (role == 0)
        snprintf(name, CATALOG_DATASET, "%s", catalog->tensor[tensor].name);
    else
        catalog_dataset(catalog, &entry, name);
}

/* Where a piece comes from and where it belongs. */
typedef struct {
    char file[CATALOG_FILE], dataset[CATALOG_DATASET + 1];
    hsize_t offset[2], count[2];
} Source;

static Source source_of(const Catalog *catalog, const CatalogEntry *entry) {
    Source source;
    int64_t offset[2], count[2];
    const CatalogTensor *tensor = &catalog->tensor[entry->tensor];
    catalog_dims(tensor, entry->piece.row, entry->piece.col, offset);
    catalog_dims(tensor, entry->piece.rows, entry->piece.cols, count);
    for (int i = 0; i < 2; i++) {
        source.offset[i] = (hsize_t)offset[i];
        source.count[i] = (hsize_t)count[i];
    }
    catalog_file_name(entry->t, entry->d, source.file);
    source.dataset[0] = '/';
    catalog_dataset(catalog, entry, source.dataset + 1);
    return source;
}

static hid_t tensor_space(const CatalogTensor *tensor) {
    int64_t dims[2];
    catalog_dims(tensor, tensor->rows, tensor->cols, dims);
    return H5Screate_simple(tensor->rank, (hsize_t[]){(hsize_t)dims[0], (hsize_t)dims[1]}, NULL);
}

/* The piece's space needs a selection of its own: "all" loses its size on the way through the file.
 */
static bool add_source(hid_t list, hid_t whole, int rank, const Source *source) {
    static const hsize_t origin[2] = {0, 0};
    hid_t piece = H5Screate_simple(rank, source->count, NULL);
    bool good =
        piece >= 0 &&
        H5Sselect_hyperslab(piece, H5S_SELECT_SET, origin, NULL, source->count, NULL) >= 0 &&
        H5Sselect_hyperslab(whole, H5S_SELECT_SET, source->offset, NULL, source->count, NULL) >=
            0 &&
        H5Pset_virtual(list, whole, source->file, source->dataset, piece) >= 0;
    hdf5_drop(piece);
    return good;
}

static int write_dataset(const Hdf5File *file, const Catalog *catalog, int role, int tensor) {
    LIBRARY_SECTION;
    char name[CATALOG_DATASET];
    real fill = (real)NAN;
    const CatalogTensor *whole = &catalog->tensor[tensor];
    const int64_t *first = &catalog->first[role * catalog->tensors + tensor];
    hid_t space = tensor_space(whole), list = hdf5_creation_list(H5P_DATASET_CREATE), dataset = -1;
    bool good = space >= 0 && list >= 0 && H5Pset_fill_value(list, hdf5_memory_type(), &fill) >= 0;
    dataset_name(catalog, role, tensor, name);
    for (int64_t i = first[0]; good && i < first[1]; i++) {
        Source source = source_of(catalog, &catalog->entry[catalog->by_tensor[i]]);
        good = add_source(list, space, whole->rank, &source);
    }
    if (good)
        dataset =
            H5Dcreate2(file->id, name, hdf5_file_type(), space, H5P_DEFAULT, list, H5P_DEFAULT);
    int status = dataset < 0 ? hdf5_error(file, name, "can't create virtual dataset") : 0;
    hdf5_drop(dataset);
    hdf5_drop(list);
    hdf5_drop(space);
    return status;
}

static const size_t largest_view = (size_t)1 << 30; /* no arrays: a few hundred bytes a piece */

static int hash_file(const char *path, Hash128 *digest) {
    char *bytes;
    size_t size;
    int status = files_read(path, largest_view, &bytes, &size);
    if (status) return status;
    *digest = hash_bytes(bytes, size);
    free(bytes);
    return 0;
}

int view_write(Catalog *catalog, const char *directory) {
    Hdf5File file;
    int status = hdf5_create(&file, directory, VIEW_FILE, catalog->tensors + catalog->roles);
    for (int role = 0; !status && role < catalog->roles; role++) {
        if (role > 0) status = hdf5_make_group(&file, catalog_roles[role].name, catalog->tensors);
        for (int tensor = 0; !status && tensor < catalog->tensors; tensor++)
            status = write_dataset(&file, catalog, role, tensor);
    }
    if (!status) status = hdf5_finish(&file);
    hdf5_close(&file);
    return status ? status : hash_file(file.path, &catalog->view_digest);
}

int view_open(Hdf5File *file, const Catalog *catalog, const char *directory) {
    char path[FILES_PATH];
    Hash128 digest;
    int status = files_join(path, sizeof path, directory, VIEW_FILE);
    if (!status) status = hash_file(path, &digest);
    if (status) return status;
    if (!hash_equal(digest, catalog->view_digest))
        return error_set(WEFT_INPUT, "%s: damaged: the manifest has another digest of it", path);
    return hdf5_open(file, directory, VIEW_FILE);
}

int view_check_names(const Hdf5File *file, const Catalog *catalog) {
    int count = catalog->tensors, status = 0;
    const char **name = malloc(((size_t)count + CATALOG_ROLES) * sizeof *name);
    if (!name) return error_set(WEFT_RUNTIME, "out of memory: names in %s", file->path);
    for (int i = 0; i < count; i++) name[i] = catalog->tensor[i].name;
    for (int role = 1; !status && role < catalog->roles; role++)
        status = hdf5_check_names(file, catalog_roles[role].name, name, count);
    for (int role = 1; role < catalog->roles; role++) name[count++] = catalog_roles[role].name;
    if (!status) status = hdf5_check_names(file, "/", name, count);
    free(name);
    return status;
}

/* A selection is one block of this size at this place. */
static bool selects(hid_t space, int rank, const hsize_t *offset, const hsize_t *count) {
    hsize_t begin[2], end[2], points = count[0] * (rank == 2 ? count[1] : 1);
    if (H5Sget_simple_extent_ndims(space) != rank ||
        H5Sget_select_npoints(space) != (hssize_t)points ||
        H5Sget_select_bounds(space, begin, end) < 0)
        return false;
    for (int i = 0; i < rank; i++)
        if (begin[i] != offset[i] || end[i] != offset[i] + count[i] - 1) return false;
    return true;
}

/* Source i of the dataset is exactly this. */
static bool source_matches(hid_t list, size_t i, int rank, const Source *wanted) {
    static const hsize_t origin[2] = {0, 0};
    char file[CATALOG_FILE + 1], dataset[CATALOG_DATASET + 2];
    hid_t whole = H5Pget_virtual_vspace(list, i), piece = H5Pget_virtual_srcspace(list, i);
    bool good = whole >= 0 && piece >= 0 &&
                H5Pget_virtual_filename(list, i, file, sizeof file) >= 0 &&
                H5Pget_virtual_dsetname(list, i, dataset, sizeof dataset) >= 0 &&
                !strcmp(file, wanted->file) && !strcmp(dataset, wanted->dataset) &&
                selects(whole, rank, wanted->offset, wanted->count) &&
                selects(piece, rank, origin, wanted->count);
    hdf5_drop(piece);
    hdf5_drop(whole);
    return good;
}

static int check_sources(const Hdf5File *file, hid_t dataset, const char *name,
                         const Catalog *catalog, int group) {
    LIBRARY_SECTION;
    size_t count = 0;
    const int64_t *first = &catalog->first[group];
    hid_t list = H5Dget_create_plist(dataset);
    if (list < 0) return hdf5_error(file, name, "can't read properties");
    bool good = H5Pget_layout(list) == H5D_VIRTUAL && H5Pget_virtual_count(list, &count) >= 0 &&
                count == (size_t)(first[1] - first[0]);
    for (int64_t i = first[0]; good && i < first[1]; i++) {
        const CatalogEntry *entry = &catalog->entry[catalog->by_tensor[i]];
        Source source = source_of(catalog, entry);
        good = source_matches(list, (size_t)(i - first[0]), catalog->tensor[entry->tensor].rank,
                              &source);
    }
    hdf5_drop(list);
    if (good) return 0;
    return error_set(WEFT_INPUT, "%s: dataset %s: its sources aren't the manifest's", file->path,
                     name);
}

/* Rows [row, row + rows) of a tensor, through the view. */
static int read_rows(const Hdf5File *file, hid_t dataset, const char *name,
                     const CatalogTensor *tensor, int64_t row, int64_t rows, real *data) {
    LIBRARY_SECTION;
    int64_t offset[2], count[2];
    catalog_dims(tensor, row, 0, offset);
    catalog_dims(tensor, rows, tensor->cols, count);
    hsize_t begin[2] = {tensor->rank == 2 ? (hsize_t)offset[0] : 0, 0};
    hsize_t size[2] = {(hsize_t)count[0], (hsize_t)count[1]};
    hid_t space = H5Dget_space(dataset), memory = H5Screate_simple(tensor->rank, size, NULL);
    bool good = space >= 0 && memory >= 0 &&
                H5Sselect_hyperslab(space, H5S_SELECT_SET, begin, NULL, size, NULL) >= 0 &&
                H5Dread(dataset, hdf5_memory_type(), memory, space, H5P_DEFAULT, data) >= 0;
    int status = good ? 0 : hdf5_error(file, name, "can't read");
    hdf5_drop(memory);
    hdf5_drop(space);
    return status;
}

static int hash_rows(const Hdf5File *file, hid_t dataset, const char *name,
                     const CatalogTensor *tensor, int role, Hash128 *hash) {
    int64_t block = BLOCK_BYTES / (tensor->cols * (int64_t)sizeof(real));
    if (block < 1) block = 1;
    if (block > tensor->rows) block = tensor->rows;
    real *data = malloc((size_t)(block * tensor->cols) * sizeof *data);
    if (!data) return error_set(WEFT_RUNTIME, "out of memory: %s", name);
    int status = 0;
    *hash = (Hash128){0, 0};
    for (int64_t row = 0; !status && row < tensor->rows; row += block) {
        int64_t rows = row + block > tensor->rows ? tensor->rows - row : block;
        status = read_rows(file, dataset, name, tensor, row, rows, data);
        if (status) break;
        ParamPiece piece = {row, 0, rows, tensor->cols};
        *hash = hash_add(*hash, fingerprint_piece(tensor, role, piece, data, tensor->cols));
    }
    free(data);
    return status;
}

/* A dataset of the view, once it has proved to be what the catalog says; -1 with the error set. */
static hid_t open_dataset(const Hdf5File *file, const Catalog *catalog, int role, int tensor,
                          const char *name) {
    LIBRARY_SECTION;
    int64_t dims[2];
    const CatalogTensor *whole = &catalog->tensor[tensor];
    catalog_dims(whole, whole->rows, whole->cols, dims);
    hid_t access = H5Pcreate(H5P_DATASET_ACCESS), dataset = -1;
    if (access >= 0 && H5Pset_virtual_prefix(access, "${ORIGIN}") >= 0)
        dataset = H5Dopen2(file->id, name, access);
    int status = dataset < 0 ? hdf5_error(file, name, "missing or unreadable") : 0;
    if (!status) status = hdf5_check_shape(file, dataset, name, whole->rank, dims);
    if (!status)
        status = check_sources(file, dataset, name, catalog, role * catalog->tensors + tensor);
    hdf5_drop(access);
    if (!status) return dataset;
    hdf5_drop(dataset);
    return -1;
}

int view_check_structure(const Hdf5File *file, const Catalog *catalog, int role, int tensor) {
    char name[CATALOG_DATASET];
    dataset_name(catalog, role, tensor, name);
    hid_t dataset = open_dataset(file, catalog, role, tensor, name);
    hdf5_drop(dataset);
    return dataset < 0 ? WEFT_INPUT : 0;
}

int view_check(const Hdf5File *file, const Catalog *catalog, int role, int tensor, Hash128 *hash) {
    char name[CATALOG_DATASET];
    dataset_name(catalog, role, tensor, name);
    hid_t dataset = open_dataset(file, catalog, role, tensor, name);
    if (dataset < 0) return WEFT_INPUT;
    int status = hash_rows(file, dataset, name, &catalog->tensor[tensor], role, hash);
    hdf5_drop(dataset);
    return status;
}
