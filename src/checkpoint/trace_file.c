#include "checkpoint/trace_file.h"

#include "base/error.h"
#include "base/library_lock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

int trace_create(TraceFile *trace, const char *path, int layers) {
    enum { BESIDE = 16 }; /* the other objects */
    char group[TRACE_NAME];
    *trace = (TraceFile){.file = {.id = -1}};
    int status = hdf5_create(&trace->file, "", path, BESIDE);
    if (!status) status = hdf5_make_group(&trace->file, "layers", layers);
    for (int l = 0; !status && l < layers; l++) {
        snprintf(group, sizeof group, "layers/%d", l);
        status = hdf5_make_group(&trace->file, group, BESIDE);
    }
    return status;
}

int trace_text(TraceFile *trace, const char *attribute, const char *value) {
    LIBRARY_SECTION;
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR), id = -1;
    bool good =
        type >= 0 && space >= 0 && H5Tset_size(type, strlen(value) + 1) >= 0 &&
        (id = H5Acreate2(trace->file.id, attribute, type, space, H5P_DEFAULT, H5P_DEFAULT)) >= 0 &&
        H5Awrite(id, type, value) >= 0;
    int status = good ? 0 : hdf5_error(&trace->file, attribute, "can't write this attribute");
    hdf5_drop(id);
    hdf5_drop(space);
    hdf5_drop(type);
    return status;
}

static int remember(TraceFile *trace, const char *name) {
    if (trace->names == trace->capacity) {
        int capacity = trace->capacity ? 2 * trace->capacity : 64;
        void *larger = realloc(trace->name, (size_t)capacity * sizeof *trace->name);
        if (!larger) return error_set(WEFT_RUNTIME, "out of memory: names of the trace");
        trace->name = larger;
        trace->capacity = capacity;
    }
    memset(trace->name[trace->names], 0, TRACE_NAME); /* all of it goes into the file */
    snprintf(trace->name[trace->names++], TRACE_NAME, "%s", name);
    return 0;
}

static hid_t make_dataset(const Hdf5File *file, const char *name, hid_t type, int rank,
                          const hsize_t *dims) {
    hid_t space = H5Screate_simple(rank, dims, NULL), list = hdf5_creation_list(H5P_DATASET_CREATE);
    hid_t dataset = -1;
    if (space >= 0 && list >= 0 && H5Pset_layout(list, H5D_CONTIGUOUS) >= 0 &&
        H5Pset_fill_time(list, H5D_FILL_TIME_NEVER) >= 0)
        dataset = H5Dcreate2(file->id, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    hdf5_drop(list);
    hdf5_drop(space);
    return dataset;
}

static bool write_rows(hid_t dataset, const TraceBlock *block) {
    hsize_t offset[2] = {(hsize_t)block->row, 0};
    hsize_t count[2] = {(hsize_t)block->count, (hsize_t)block->cols};
    hid_t space = H5Dget_space(dataset), memory = H5Screate_simple(2, count, NULL);
    bool good = space >= 0 && memory >= 0 &&
                H5Sselect_hyperslab(space, H5S_SELECT_SET, offset, NULL, count, NULL) >= 0 &&
                H5Dwrite(dataset, hdf5_memory_type(), memory, space, H5P_DEFAULT, block->data) >= 0;
    hdf5_drop(memory);
    hdf5_drop(space);
    return good;
}

int trace_put(TraceFile *trace, const char *name, const TraceBlock *block) {
    LIBRARY_SECTION;
    hsize_t dims[2] = {(hsize_t)block->rows, (hsize_t)block->cols};
    bool first = block->row == 0;
    hid_t dataset = first ? make_dataset(&trace->file, name, hdf5_file_type(), 2, dims)
                          : H5Dopen2(trace->file.id, name, H5P_DEFAULT);
    bool good = dataset >= 0 && write_rows(dataset, block);
    int status = good ? 0 : hdf5_error(&trace->file, name, "can't write");
    hdf5_drop(dataset);
    return status || !first ? status : remember(trace, name);
}

/* count elements of one type; dims [count] */
static int write_list(const Hdf5File *file, const char *name, hid_t stored, hid_t given,
                      int64_t count, const void *values) {
    hsize_t dims = (hsize_t)count;
    hid_t dataset = make_dataset(file, name, stored, 1, &dims);
    bool good =
        dataset >= 0 && H5Dwrite(dataset, given, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0;
    int status = good ? 0 : hdf5_error(file, name, "can't write");
    hdf5_drop(dataset);
    return status;
}

int trace_put_integers(TraceFile *trace, const char *name, const int32_t *values, int64_t count) {
    LIBRARY_SECTION;
    int status = write_list(&trace->file, name, H5T_STD_I32LE, H5T_NATIVE_INT32, count, values);
    return status ? status : remember(trace, name);
}

static hid_t name_type(void) {
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 && H5Tset_size(type, TRACE_NAME) >= 0) return type;
    hdf5_drop(type);
    return -1;
}

static int write_order(TraceFile *trace) {
    LIBRARY_SECTION;
    hid_t type = name_type();
    int status = write_list(&trace->file, "order", type, type, trace->names, trace->name);
    hdf5_drop(type);
    return status;
}

int trace_finish(TraceFile *trace) {
    int status = write_order(trace);
    return status ? status : hdf5_finish(&trace->file);
}

void trace_abandon(TraceFile *trace) {
    if (trace->file.path[0]) hdf5_close(&trace->file);
    free(trace->name);
    *trace = (TraceFile){.file = {.id = -1}};
}

/* ---- reading ---- */

int trace_order(const Hdf5File *file, char (**names)[TRACE_NAME], int *count) {
    LIBRARY_SECTION;
    enum { NAMES_MAX = 1 << 20 };
    hid_t type = name_type(), dataset = H5Dopen2(file->id, "order", H5P_DEFAULT);
    hid_t space = dataset < 0 ? -1 : H5Dget_space(dataset);
    hssize_t points = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
    *names = NULL;
    *count = 0;
    int status = 0;
    if (points < 0 || points > NAMES_MAX)
        status = hdf5_error(file, "order", "missing or unreadable: this is no trace");
    else if (!(*names = calloc((size_t)points + 1, sizeof **names)))
        status = error_set(WEFT_RUNTIME, "out of memory: names of %s", file->path);
    else if (H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, *names) < 0)
        status = hdf5_error(file, "order", "can't read");
    else
        *count = (int)points;
    for (int i = 0; i < *count; i++) (*names)[i][TRACE_NAME - 1] = '\0';
    hdf5_drop(space);
    hdf5_drop(dataset);
    hdf5_drop(type);
    return status;
}

/* Elements in the file, or -1. */
static int64_t shape_of(hid_t dataset, int64_t dims[2]) {
    hid_t space = H5Dget_space(dataset);
    hsize_t size[H5S_MAX_RANK] = {0};
    int rank = space < 0 ? -1 : H5Sget_simple_extent_ndims(space);
    int64_t points = space < 0 ? -1 : (int64_t)H5Sget_simple_extent_npoints(space);
    if (rank >= 0 && rank <= H5S_MAX_RANK) H5Sget_simple_extent_dims(space, size, NULL);
    dims[0] = rank == 2 ? (int64_t)size[0] : points;
    dims[1] = rank == 2 ? (int64_t)size[1] : 1;
    hdf5_drop(space);
    return points;
}

int trace_read(const Hdf5File *file, const char *name, int64_t expected, double **values,
               int64_t dims[2]) {
    LIBRARY_SECTION;
    *values = NULL;
    hid_t dataset = H5Dopen2(file->id, name, H5P_DEFAULT);
    if (dataset < 0) return 0;
    int64_t points = shape_of(dataset, dims);
    int status = 0;
    if (points < 0)
        status = hdf5_error(file, name, "can't read its shape");
    else if (expected < 0 && points > files_size(file->path))
        status = error_set(WEFT_INPUT, "%s: dataset %s: its numbers aren't in the file", file->path,
                           name);
    else if (expected >= 0 && points != expected)
        status = error_set(WEFT_INPUT, "%s: dataset %s: %lld numbers, expected %lld", file->path,
                           name, (long long)points, (long long)expected);
    else if (!(*values = malloc(((size_t)points + 1) * sizeof **values)))
        status = error_set(WEFT_RUNTIME, "out of memory: %s", name);
    else if (H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, *values) < 0)
        status = hdf5_error(file, name, "can't read as numbers");
    if (status) {
        free(*values);
        *values = NULL;
    }
    hdf5_drop(dataset);
    return status;
}
