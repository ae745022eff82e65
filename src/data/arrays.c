#include "data/arrays.h"

#include "base/error.h"
#include "base/files.h"
#include "base/library_lock.h"
#include "base/memory.h"
#include "base/real.h"
#include "data/file.h"

#include <hdf5.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { READ_BYTES = 16384, CACHE_BYTES = 32 << 20, CACHE_SLOTS = 12421, TEXT = 256 };
enum { LARGEST_NUMBER = 16 /* bytes of an element */ };

/* ---- numbers that are read without HDF5 ---- */

/* From bytes that needn't be aligned to doubles. */
#define DECODE(type)                                                                               \
    static void decode_##type(const unsigned char *bytes, int64_t count, double *values) {         \
        for (int64_t i = 0; i < count; i++) {                                                      \
            type number;                                                                           \
            memcpy(&number, bytes + i * (int64_t)sizeof number, sizeof number);                    \
            values[i] = (double)number;                                                            \
        }                                                                                          \
    }
DECODE(float)
DECODE(double)
DECODE(uint8_t)
DECODE(int32_t)
DECODE(int64_t)

typedef struct {
    int64_t bytes;
    void (*decode)(const unsigned char *bytes, int64_t count, double *values);
} PlainType;

/* NULL: the type is none of these. */
static const PlainType *plain_type(hid_t type) {
    static const PlainType plain[] = {{4, decode_float},
                                      {8, decode_double},
                                      {1, decode_uint8_t},
                                      {4, decode_int32_t},
                                      {8, decode_int64_t}};
    const hid_t native[] = {H5T_NATIVE_FLOAT, H5T_NATIVE_DOUBLE, H5T_NATIVE_UINT8, H5T_NATIVE_INT32,
                            H5T_NATIVE_INT64};
    for (size_t i = 0; i < sizeof native / sizeof *native; i++)
        if (H5Tequal(type, native[i]) > 0) return &plain[i];
    return NULL;
}

/* ---- one dataset ---- */

typedef struct {
    const char *key, *name_key; /* of the config that give the width and the name */
    char *name;
    int64_t width;   /* of a row */
    int64_t classes; /* 0: any number */
    int rank;
    int64_t rows;
    hid_t dataset;
    const PlainType *plain; /* NULL: through HDF5 */
    int64_t offset;         /* in the file, of what is plain */
} Array;

struct ArraySource {
    DataFile file;
    hid_t id;
    Array array[ARRAY_PARTS];
};

static void drop(hid_t id) {
    if (id >= 0) H5Idec_ref(id);
}

/* Upward from where the error arose: the first message is the reason. */
static herr_t take_reason(unsigned level, const H5E_error2_t *error, void *text) {
    (void)level;
    const char *told = error->desc ? error->desc : "";
    snprintf(text, TEXT, " (%.*s)", (int)strcspn(told, "\n"), told);
    return 1;
}

/* "PATH: dataset NAME: WHAT (HDF5's reason)", in the section of the call that failed. */
static int hdf5_failed(const ArraySource *source, const Array *array, const char *what) {
    char reason[TEXT] = "";
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_reason, reason);
    return error_set(WEFT_INPUT, "%s: %s%s%s%s%s", source->file.path, array ? "dataset " : "",
                     array ? array->name : "", array ? ": " : "", what, reason);
}

static int refuse(const ArraySource *source, const Array *array, const char *what) {
    return error_set(WEFT_INPUT, "%s: dataset %s: %s", source->file.path, array->name, what);
}

/* An external link leads to another file, of which the digest would say nothing. */
static int check_file(const ArraySource *source, const Array *array) {
    char here[FILES_PATH] = "", there[FILES_PATH] = "";
    ssize_t length = H5Fget_name(source->id, here, sizeof here);
    ssize_t other = H5Fget_name(array->dataset, there, sizeof there);
    if (length < 0 || other < 0 || length >= FILES_PATH || other >= FILES_PATH)
        return hdf5_failed(source, array, "can't tell which file it is in");
    if (!strcmp(here, there)) return 0;
    return error_set(WEFT_INPUT, "%s: dataset %s: is a link into another file, %s: name that one",
                     source->file.path, array->name, there);
}

static int check_type(const ArraySource *source, const Array *array, hid_t type) {
    static const char *const classes[] = {
        [H5T_INTEGER] = "integer",   [H5T_FLOAT] = "float",         [H5T_TIME] = "time",
        [H5T_STRING] = "string",     [H5T_BITFIELD] = "bitfield",   [H5T_OPAQUE] = "opaque",
        [H5T_COMPOUND] = "compound", [H5T_REFERENCE] = "reference", [H5T_ENUM] = "enum",
        [H5T_VLEN] = "vlen",         [H5T_ARRAY] = "array"};
    H5T_class_t sort = H5Tget_class(type);
    if (sort < 0 || (size_t)sort >= sizeof classes / sizeof *classes)
        return hdf5_failed(source, array, "can't read its type");
    bool good = sort == H5T_INTEGER || (sort == H5T_FLOAT && !array->classes);
    if (good && H5Tget_size(type) <= LARGEST_NUMBER) return 0;
    return error_set(WEFT_INPUT, "%s: dataset %s: its type is %s of %zu bytes; %s",
                     source->file.path, array->name, classes[sort], H5Tget_size(type),
                     array->classes ? "classes are integers" : "numbers are float or integer");
}

static void describe_shape(int rank, const hsize_t *dims, char text[TEXT]) {
    size_t used = (size_t)snprintf(text, TEXT, "[");
    for (int i = 0; i < rank && used < TEXT / 2; i++)
        used += (size_t)snprintf(text + used, TEXT - used, "%s%llu", i ? ", " : "",
                                 (unsigned long long)dims[i]);
    snprintf(text + used, TEXT - used, "]");
}

static int check_shape(const ArraySource *source, Array *array, hid_t space) {
    hsize_t dims[H5S_MAX_RANK] = {0};
    char shape[TEXT];
    array->rank = H5Sget_simple_extent_ndims(space);
    if (array->rank < 0 || H5Sget_simple_extent_dims(space, dims, NULL) < 0)
        return hdf5_failed(source, array, "can't read its shape");
    bool matrix = array->rank == 2 && dims[1] == (hsize_t)array->width;
    bool vector = array->rank == 1 && array->width == 1;
    array->rows = (int64_t)dims[0];
    if ((matrix || vector) && dims[0] > 0 && dims[0] < (hsize_t)1 << 40) return 0;
    describe_shape(array->rank, dims, shape);
    return error_set(WEFT_INPUT, "%s: dataset %s: its shape is %s; %s%" PRId64 "] is needed (%s)",
                     source->file.path, array->name, shape,
                     array->width == 1 ? "[N] or [N, " : "[N, ", array->width,
                     array->classes ? "one class a row" : array->key);
}

/* All chunks are there: one that was never written would read as zeros, and a hostile number of
 * rows has no end. */
static int check_chunks(const ArraySource *source, const Array *array, hid_t space, hid_t list) {
    hsize_t chunk[2] = {1, 1}, held = 0, wanted;
    if (H5Pget_chunk(list, array->rank, chunk) != array->rank ||
        H5Dget_num_chunks(array->dataset, space, &held) < 0)
        return hdf5_failed(source, array, "can't read its chunks");
    hsize_t down = ((hsize_t)array->rows + chunk[0] - 1) / chunk[0];
    hsize_t across = ((hsize_t)array->width + chunk[1] - 1) / chunk[1];
    if (!__builtin_mul_overflow(down, across, &wanted) && held == wanted) return 0;
    return error_set(WEFT_INPUT, "%s: dataset %s: %llu of its chunks are in the file, not all",
                     source->file.path, array->name, (unsigned long long)held);
}

/* Contiguous and compact datasets: the bytes are in the file. */
static int check_bytes(const ArraySource *source, Array *array, hid_t type, H5D_layout_t layout) {
    int64_t bytes, size = (int64_t)H5Tget_size(type);
    bool good = !__builtin_mul_overflow(array->rows, array->width, &bytes) &&
                !__builtin_mul_overflow(bytes, size, &bytes) &&
                H5Dget_storage_size(array->dataset) == (hsize_t)bytes;
    if (good && layout == H5D_CONTIGUOUS) {
        haddr_t start = H5Dget_offset(array->dataset);
        good = start != HADDR_UNDEF && bytes <= source->file.size &&
               start <= (haddr_t)(source->file.size - bytes);
        array->offset = (int64_t)start;
        array->plain = plain_type(type);
    }
    return good
               ? 0
               : refuse(
                     source, array,
                     "its numbers aren't in the file: it is cut short, or they were never written");
}

static int check_storage(const ArraySource *source, Array *array, hid_t type, hid_t space) {
    hid_t list = H5Dget_create_plist(array->dataset);
    if (list < 0) return hdf5_failed(source, array, "can't read its properties");
    H5D_layout_t layout = H5Pget_layout(list);
    int status;
    if (layout == H5D_CHUNKED)
        status = check_chunks(source, array, space, list);
    else if (layout == H5D_VIRTUAL || H5Pget_external_count(list) != 0)
        status =
            refuse(source, array, "its numbers are in other files; h5repack makes one of them");
    else
        status = check_bytes(source, array, type, layout);
    drop(list);
    return status;
}

static int missing(const ArraySource *source, const Array *array) {
    char what[TEXT];
    snprintf(what, sizeof what,
             "is missing or no dataset; %s is to name one of the file's (h5ls lists them)",
             array->name_key);
    return hdf5_failed(source, array, what);
}

static int open_array(const ArraySource *source, Array *array) {
    hid_t access = H5Pcreate(H5P_DATASET_ACCESS), type = -1, space = -1;
    int status = 0;
    if (access < 0 ||
        H5Pset_chunk_cache(access, CACHE_SLOTS, CACHE_BYTES, H5D_CHUNK_CACHE_W0_DEFAULT) < 0 ||
        (array->dataset = H5Dopen2(source->id, array->name, access)) < 0)
        status = missing(source, array);
    if (!status) status = check_file(source, array);
    if (!status &&
        ((type = H5Dget_type(array->dataset)) < 0 || (space = H5Dget_space(array->dataset)) < 0))
        status = hdf5_failed(source, array, "can't read its type and shape");
    if (!status) status = check_type(source, array, type);
    if (!status) status = check_shape(source, array, space);
    if (!status) status = check_storage(source, array, type, space);
    drop(space);
    drop(type);
    drop(access);
    return status;
}

/* ---- the file ---- */

static int open_hdf5(ArraySource *source) {
    H5dont_atexit(); /* as the checkpoints want it (checkpoint/hdf5_file.c) */
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    int status = 0;
    if (access < 0 || H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) < 0 ||
        H5Pset_file_locking(access, false, true) < 0)
        status = hdf5_failed(source, NULL, "can't set file properties");
    else if ((source->id = H5Fopen(source->file.path, H5F_ACC_RDONLY, access)) < 0)
        status = hdf5_failed(source, NULL, "can't open it as HDF5");
    drop(access);
    return status;
}

/* Whatever it is. */
static bool exists(const ArraySource *source, const char *name) {
    return H5Lexists(source->id, name, H5P_DEFAULT) > 0;
}

static int open_datasets(ArraySource *source, const ArraySpec *spec) {
    static const char *const keys[] = {"model.inputs", "model.outputs"};
    static const char *const name_keys[] = {"data.inputs", "data.targets"};
    int parts = spec->unlabelled && !exists(source, spec->name[ARRAY_TARGETS]) ? ARRAY_TARGETS
                                                                               : ARRAY_PARTS;
    for (int part = 0; part < parts; part++) {
        Array *array = &source->array[part];
        bool classes = part == ARRAY_TARGETS && spec->classes;
        array->key = keys[part];
        array->name_key = name_keys[part];
        array->name = strdup(spec->name[part]);
        array->width = classes ? 1 : spec->width[part];
        array->classes = classes ? spec->width[part] : 0;
        int status = array->name ? open_array(source, array)
                                 : error_set(WEFT_RUNTIME, "out of memory: name of a dataset");
        if (status) return status;
    }
    const Array *inputs = &source->array[ARRAY_INPUTS], *targets = &source->array[ARRAY_TARGETS];
    if (parts == ARRAY_TARGETS || inputs->rows == targets->rows) return 0;
    return error_set(WEFT_INPUT,
                     "%s: dataset %s has %" PRId64 " rows, dataset %s %" PRId64
                     ": a row of one belongs to a row of the other",
                     source->file.path, inputs->name, inputs->rows, targets->name, targets->rows);
}

int arrays_open(ArraySource **out, const char *path, const ArraySpec *spec) {
    LIBRARY_SECTION;
    *out = NULL;
    ArraySource *source = calloc(1, sizeof *source);
    if (!source) return error_set(WEFT_RUNTIME, "%s: out of memory", path);
    source->id = source->array[0].dataset = source->array[1].dataset = -1;
    int status = file_open(&source->file, path, "arrays");
    if (!status) status = open_hdf5(source);
    if (!status) status = open_datasets(source, spec);
    if (status) {
        arrays_close(source);
        return status;
    }
    *out = source;
    return 0;
}

void arrays_close(ArraySource *source) {
    LIBRARY_SECTION;
    if (!source) return;
    for (int part = 0; part < ARRAY_PARTS; part++) {
        drop(source->array[part].dataset);
        free(source->array[part].name);
    }
    if (source->id >= 0) H5Fclose(source->id);
    file_close(&source->file);
    free(source);
}

int64_t arrays_rows(const ArraySource *source) { return source->array[ARRAY_INPUTS].rows; }

int64_t arrays_width(const ArraySource *source, ArrayPart part) {
    return source->array[part].width;
}

bool arrays_has(const ArraySource *source, ArrayPart part) {
    return source->array[part].dataset >= 0;
}

int arrays_digest(const ArraySource *source, Hash128 *digest) {
    return file_digest(&source->file, digest);
}

/* ---- reading ---- */

static int read_plain(const ArraySource *source, const Array *array, int64_t first, int64_t count,
                      double *values) {
    const PlainType *plain = array->plain;
    unsigned char bytes[READ_BYTES];
    int64_t left = count * array->width,
            offset = array->offset + first * array->width * plain->bytes;
    while (left > 0) {
        int64_t part = left < READ_BYTES / plain->bytes ? left : READ_BYTES / plain->bytes;
        int status = file_read(&source->file, offset, bytes, (size_t)(part * plain->bytes));
        if (status)
            return error_prefix(status, "dataset %s, rows from %" PRId64 ": ", array->name, first);
        plain->decode(bytes, part, values);
        values += part;
        offset += part * plain->bytes;
        left -= part;
    }
    return 0;
}

static int read_slab(const ArraySource *source, const Array *array, int64_t first, int64_t count,
                     double *values) {
    LIBRARY_SECTION;
    hsize_t offset[2] = {(hsize_t)first, 0}, size[2] = {(hsize_t)count, (hsize_t)array->width};
    hsize_t numbers = size[0] * size[1];
    hid_t space = H5Dget_space(array->dataset), memory = H5Screate_simple(1, &numbers, NULL);
    bool good = space >= 0 && memory >= 0 &&
                H5Sselect_hyperslab(space, H5S_SELECT_SET, offset, NULL, size, NULL) >= 0 &&
                H5Dread(array->dataset, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, values) >= 0;
    char what[TEXT];
    snprintf(what, sizeof what, "can't read row %" PRId64 "%s", first, count > 1 ? " and on" : "");
    int status = good ? 0 : hdf5_failed(source, array, what);
    drop(memory);
    drop(space);
    return status;
}

static int check_values(const ArraySource *source, const Array *array, int64_t first, int64_t count,
                        const double *values) {
    for (int64_t i = 0; i < count * array->width; i++) {
        double value = values[i];
        int64_t row = first + i / array->width;
        if (array->classes && !(value >= 0 && value < (double)array->classes))
            return error_set(WEFT_INPUT,
                             "%s: dataset %s: row %" PRId64 " is class %.0f; %s = %" PRId64
                             " allows 0 to %" PRId64,
                             source->file.path, array->name, row, value, array->key, array->classes,
                             array->classes - 1);
        if (!isfinite((real)value))
            return error_set(WEFT_INPUT,
                             "%s: dataset %s: row %" PRId64 ", column %" PRId64
                             " is %g, no finite " REAL_NAME,
                             source->file.path, array->name, row, i % array->width, value);
    }
    return 0;
}

/* HDF5 reads zeros beyond the end of a file. */
static int check_end(const ArraySource *source, const Array *array) {
    int status = file_check_size(&source->file);
    return status ? error_prefix(status, "dataset %s: ", array->name) : 0;
}

int arrays_read(const ArraySource *source, ArrayPart part, int64_t first, int64_t count,
                double *values) {
    const Array *array = &source->array[part];
    if (first < 0 || count < 0 || first > array->rows || count > array->rows - first)
        return error_set(
            WEFT_INPUT, "%s: dataset %s: %" PRId64 " rows from %" PRId64 " wanted; it has %" PRId64,
            source->file.path, array->name, count, first, array->rows);
    if (count == 0) return 0;
    int status = array->plain ? read_plain(source, array, first, count, values)
                              : read_slab(source, array, first, count, values);
    if (!status && !array->plain) status = check_end(source, array);
    return status ? status : check_values(source, array, first, count, values);
}

static int read_each(const ArraySource *source, ArrayPart part, const int64_t *row, int64_t count,
                     double *values) {
    int status = 0;
    for (int64_t i = 0; !status && i < count; i++)
        status = arrays_read(source, part, row[i], 1, values + i * source->array[part].width);
    return status;
}

/* One section for all rows: to wait for the saver's thread once, not for each row. */
int arrays_gather(const ArraySource *source, ArrayPart part, const int64_t *row, int64_t count,
                  double *values) {
    if (source->array[part].plain) return read_each(source, part, row, count, values);
    LIBRARY_SECTION;
    return read_each(source, part, row, count, values);
}

int arrays_check(const ArraySource *source) {
    enum { NUMBERS = 1 << 16 }; /* read at once */
    int status = 0;
    for (int part = 0; !status && part < ARRAY_PARTS; part++) {
        int64_t width = source->array[part].width, rows = source->array[part].rows;
        int64_t at_once = NUMBERS / width + 1;
        double *block = memory_allocate((size_t)(at_once * width) * sizeof *block, "rows to check");
        if (!block) return WEFT_RUNTIME;
        for (int64_t first = 0; !status && first < rows; first += at_once)
            status = arrays_read(source, (ArrayPart)part, first,
                                 rows - first < at_once ? rows - first : at_once, block);
        free(block);
    }
    return status;
}
