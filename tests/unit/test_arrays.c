/* Array sources: what is read is what was written, of any type and layout; hostile files are
 * refused by name; batches and normalisation. */
#include "base/error.h"
#include "base/real.h"
#include "data/arrays.h"
#include "support/array_file.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 37, WIDTH = 5, TARGETS = 2 };

static const hsize_t input_dims[] = {ROWS, WIDTH}, target_dims[] = {ROWS, TARGETS};
static const ArraySpec numbers = {{"inputs", "targets"}, {WIDTH, TARGETS}, false, false};
static const ArraySpec classes = {{"inputs", "targets"}, {WIDTH, 10}, true, false};

/* Fit every type from int8 and binary16 on; halves where a type has them. */
static void fill(double *values, int count, bool halves) {
    for (int i = 0; i < count; i++) values[i] = (i * 7 + 3) % 61 + (halves ? 0.5 * (i % 2) : 0);
}

static void assert_error(int status, const char *part) {
    ck_assert_int_eq(status, WEFT_INPUT);
    ck_assert_msg(strstr(error_message(), part), "\"%s\" lacks \"%s\"", error_message(), part);
}

/* ---- reading ---- */

/* Whole, by parts, and row by row backwards. */
static void check_reading(const ArraySource *source, ArrayPart part, const double *wanted) {
    double found[ROWS * WIDTH];
    int64_t width = arrays_width(source, part), back[ROWS];
    size_t row = (size_t)width * sizeof *found;
    ck_assert_int_eq(arrays_read(source, part, 0, ROWS, found), 0);
    ck_assert_mem_eq(found, wanted, ROWS * row);
    for (int first = 0, count = 1; first + count <= ROWS; first += count++) {
        ck_assert_int_eq(arrays_read(source, part, first, count, found), 0);
        ck_assert_mem_eq(found, wanted + first * width, (size_t)count * row);
    }
    for (int i = 0; i < ROWS; i++) back[i] = ROWS - 1 - i;
    ck_assert_int_eq(arrays_gather(source, part, back, ROWS, found), 0);
    for (int i = 0; i < ROWS; i++)
        ck_assert_mem_eq(found + i * width, wanted + back[i] * width, row);
}

static void check_type(hid_t type, ArrayLayout layout, hsize_t user_block) {
    double input[ROWS * WIDTH], target[ROWS * TARGETS];
    ArraySource *source;
    bool halves = H5Tget_class(type) == H5T_FLOAT;
    fill(input, ROWS * WIDTH, halves);
    fill(target, ROWS * TARGETS, halves);
    ArrayFile file = array_file_begin(user_block);
    array_file_add(&file, "inputs", type, 2, input_dims, layout, input);
    array_file_add(&file, "targets", type, 2, target_dims, layout, target);
    array_file_end(&file);
    ck_assert_msg(arrays_open(&source, file.path, &numbers) == 0, "%s", error_message());
    ck_assert_int_eq(arrays_rows(source), ROWS);
    check_reading(source, ARRAY_INPUTS, input);
    check_reading(source, ARRAY_TARGETS, target);
    arrays_close(source);
    array_file_close(&file);
}

START_TEST(every_type_and_layout_reads_as_it_was_written) {
    const hid_t types[] = {H5T_IEEE_F32LE, H5T_IEEE_F64LE, H5T_IEEE_F32BE,     H5T_IEEE_F64BE,
                           H5T_STD_I8LE,   H5T_STD_U8LE,   H5T_STD_I16BE,      H5T_STD_U16LE,
                           H5T_STD_I32LE,  H5T_STD_U32BE,  H5T_STD_I64LE,      H5T_STD_U64LE,
                           H5T_STD_I64BE,  H5T_STD_I16LE,  H5T_NATIVE_LDOUBLE, array_file_half()};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int layout = 0; layout < LAYOUT_COUNT; layout++)
            check_type(types[i], (ArrayLayout)layout, i % 2 ? 0 : 1024);
}
END_TEST

/* Several blocks of the reader, of a type that is decoded and of one that HDF5 converts. */
START_TEST(long_rows_read_whole) {
    enum { LONG = 10007, FEW = 3 };
    double *values = malloc(sizeof(double[FEW][LONG])), *found = malloc(sizeof(double[FEW][LONG]));
    for (int i = 0; i < FEW * LONG; i++) values[i] = i;
    for (int big = 0; big < 2; big++) {
        ArraySource *source;
        ArraySpec spec = {{"inputs", "targets"}, {LONG, 1}, false, false};
        ArrayFile file = array_file_begin(0);
        array_file_add(&file, "inputs", big ? H5T_IEEE_F64BE : H5T_IEEE_F64LE, 2,
                       (hsize_t[]){FEW, LONG}, LAYOUT_CONTIGUOUS, values);
        array_file_add(&file, "targets", H5T_IEEE_F32LE, 1, (hsize_t[]){FEW}, LAYOUT_CONTIGUOUS,
                       values);
        array_file_end(&file);
        ck_assert_int_eq(arrays_open(&source, file.path, &spec), 0);
        ck_assert_int_eq(arrays_read(source, ARRAY_INPUTS, 1, 2, found), 0);
        ck_assert_mem_eq(found, values + LONG, sizeof(double[2][LONG]));
        ck_assert_int_eq(arrays_read(source, ARRAY_TARGETS, 2, 1, found), 0);
        ck_assert(found[0] == 2);
        arrays_close(source);
        array_file_close(&file);
    }
    free(values);
    free(found);
}
END_TEST

/* ---- hostile files ---- */

typedef struct {
    ArrayFile file;
    double input[ROWS * WIDTH], target[ROWS * TARGETS];
} Sample;

/* A good file of doubles, but for the targets, which the caller adds before array_file_end. */
static void begin_sample(Sample *sample) {
    fill(sample->input, ROWS * WIDTH, true);
    fill(sample->target, ROWS * TARGETS, true);
    sample->file = array_file_begin(0);
    array_file_add(&sample->file, "inputs", H5T_IEEE_F64LE, 2, input_dims, LAYOUT_CONTIGUOUS,
                   sample->input);
}

static void refuses(Sample *sample, const ArraySpec *spec, const char *message) {
    ArraySource *source = (ArraySource *)sample;
    array_file_end(&sample->file);
    assert_error(arrays_open(&source, sample->file.path, spec), message);
    assert_error(WEFT_INPUT, sample->file.path);
    ck_assert_ptr_null(source);
    array_file_close(&sample->file);
}

START_TEST(shapes_and_types_are_checked) {
    const struct {
        hid_t type;
        int rank;
        hsize_t dims[3];
        const ArraySpec *spec;
        const char *message;
    } rows[] = {
        {H5T_IEEE_F64LE, 2, {ROWS, 3}, &numbers, "targets: its shape is [37, 3]; [N, 2] is needed"},
        {H5T_IEEE_F64LE, 1, {ROWS}, &numbers, "its shape is [37]; [N, 2] is needed (model.outputs"},
        {H5T_IEEE_F64LE, 3, {ROWS, 2, 1}, &numbers, "its shape is [37, 2, 1]"},
        {H5T_IEEE_F64LE, 0, {0}, &numbers, "its shape is []"},
        {H5T_IEEE_F64LE, 2, {0, 2}, &numbers, "its shape is [0, 2]"},
        {H5T_IEEE_F64LE, 2, {ROWS - 1, 2}, &numbers, "has 37 rows, dataset targets 36"},
        {H5T_IEEE_F64LE, 1, {ROWS}, &classes, "type is float of 8 bytes; classes are integers"},
        {H5T_STD_I32LE, 2, {ROWS, 2}, &classes, "[N] or [N, 1] is needed (one class a row)"},
        {H5T_C_S1, 2, {ROWS, 2}, &numbers, "type is string of 1 bytes; numbers are float or"},
        {H5T_STD_REF_OBJ, 2, {ROWS, 2}, &numbers, "type is reference"},
        {H5T_STD_B8LE, 2, {ROWS, 2}, &numbers, "type is bitfield"},
        {H5T_IEEE_F64LE, 2, {ROWS, 2}, &numbers, "were never written"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Sample sample;
        begin_sample(&sample);
        /* without values nothing is written, but shapes and types are looked at first */
        bool written = strstr(rows[i].message, "has 37") != NULL;
        array_file_add(&sample.file, "targets", rows[i].type, rows[i].rank, rows[i].dims,
                       LAYOUT_CONTIGUOUS, written ? sample.target : NULL);
        refuses(&sample, rows[i].spec, rows[i].message);
    }
}
END_TEST

START_TEST(what_is_no_dataset_of_the_file_is_refused) {
    Sample sample;
    begin_sample(&sample);
    refuses(&sample, &numbers, "dataset targets: is missing or no dataset");

    begin_sample(&sample);
    H5Gclose(H5Gcreate2(sample.file.id, "targets", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    refuses(&sample, &numbers, "dataset targets: is missing or no dataset");

    Sample other; /* a good dataset, of another file */
    begin_sample(&other);
    array_file_add(&other.file, "targets", H5T_IEEE_F64LE, 2, target_dims, LAYOUT_CONTIGUOUS,
                   other.target);
    array_file_end(&other.file);
    begin_sample(&sample);
    ck_assert_int_ge(H5Lcreate_external(other.file.path, "targets", sample.file.id, "targets",
                                        H5P_DEFAULT, H5P_DEFAULT),
                     0);
    refuses(&sample, &numbers, "dataset targets: is a link into another file, /tmp");

    begin_sample(&sample); /* the same through a view */
    hid_t space = H5Screate_simple(2, target_dims, NULL), list = H5Pcreate(H5P_DATASET_CREATE);
    ck_assert_int_ge(H5Pset_virtual(list, space, other.file.path, "targets", space), 0);
    H5Dclose(H5Dcreate2(sample.file.id, "targets", H5T_IEEE_F64LE, space, H5P_DEFAULT, list,
                        H5P_DEFAULT));
    H5Pclose(list);
    refuses(&sample, &numbers, "dataset targets: its numbers are in other files");

    begin_sample(&sample); /* the same as raw bytes */
    list = H5Pcreate(H5P_DATASET_CREATE);
    ck_assert_int_ge(H5Pset_external(list, other.file.path, 0, H5F_UNLIMITED), 0);
    H5Dclose(H5Dcreate2(sample.file.id, "targets", H5T_IEEE_F64LE, space, H5P_DEFAULT, list,
                        H5P_DEFAULT));
    H5Pclose(list);
    H5Sclose(space);
    refuses(&sample, &numbers, "dataset targets: its numbers are in other files");
    array_file_close(&other.file);
}
END_TEST

/* A number of rows without end, of which three are there. */
START_TEST(chunks_that_are_not_there_are_missed) {
    Sample sample;
    begin_sample(&sample);
    hsize_t dims[] = {(hsize_t)1 << 39, TARGETS}, chunk[] = {3, TARGETS}, origin[] = {0, 0};
    hid_t space = H5Screate_simple(2, dims, NULL), memory = H5Screate_simple(2, chunk, NULL);
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(list, 2, chunk);
    hid_t dataset = H5Dcreate2(sample.file.id, "targets", H5T_IEEE_F64LE, space, H5P_DEFAULT, list,
                               H5P_DEFAULT);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, origin, NULL, chunk, NULL);
    ck_assert_int_ge(
        H5Dwrite(dataset, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, sample.target), 0);
    H5Dclose(dataset);
    H5Pclose(list);
    H5Sclose(memory);
    H5Sclose(space);
    refuses(&sample, &numbers, "dataset targets: 1 of its chunks are in the file, not all");
}
END_TEST

START_TEST(bad_files_are_named) {
    ArraySource *source;
    ArrayFile file = array_file_begin(0);
    array_file_end(&file);
    ck_assert_int_eq(ftruncate(file.descriptor, 100), 0);
    assert_error(arrays_open(&source, file.path, &numbers), "can't open it as HDF5");
    ck_assert_int_eq(ftruncate(file.descriptor, 0), 0);
    assert_error(arrays_open(&source, file.path, &numbers), "is empty");
    assert_error(arrays_open(&source, "/nonexistent/x.h5", &numbers), "/nonexistent/x.h5: can't");
    assert_error(arrays_open(&source, "/tmp", &numbers), "is a directory; a file of arrays");
    array_file_close(&file);
}
END_TEST

/* Cut short before it is opened, and while it is open. */
START_TEST(a_file_cut_short_is_an_error) {
    for (int layout = 0; layout < LAYOUT_COUNT; layout++) {
        Sample sample;
        ArraySource *source;
        double found[ROWS * TARGETS];
        begin_sample(&sample);
        array_file_add(&sample.file, "targets", H5T_IEEE_F64LE, 2, target_dims, (ArrayLayout)layout,
                       sample.target);
        array_file_end(&sample.file);
        ck_assert_int_eq(arrays_open(&source, sample.file.path, &numbers), 0);
        ck_assert_int_eq(ftruncate(sample.file.descriptor, 512), 0);
        int status = arrays_read(source, ARRAY_TARGETS, 0, ROWS, found);
        assert_error(status, "dataset targets");
        if (layout != LAYOUT_PACKED) assert_error(status, "ends at byte");
        arrays_close(source);
        assert_error(arrays_open(&source, sample.file.path, &numbers), sample.file.path);
        array_file_close(&sample.file);
    }
}
END_TEST

START_TEST(bad_numbers_and_rows_are_named) {
    const struct {
        double value;
        const ArraySpec *spec;
        hid_t type;
        const char *message;
    } rows[] = {
        {-1, &classes, H5T_STD_I8LE,
         "dataset targets: row 7 is class -1; model.outputs = 10 allow"},
        {10, &classes, H5T_STD_I64BE, "row 7 is class 10; model.outputs = 10 allows 0 to 9"},
        {1e19, &classes, H5T_STD_U64LE, "row 7 is class 1000000000000000"},
        {NAN, &numbers, H5T_IEEE_F32LE, "dataset targets: row 3, column 1 is nan"},
        {-INFINITY, &numbers, H5T_IEEE_F64BE, "row 3, column 1 is -inf, no finite " REAL_NAME},
        {sizeof(real) == 8 ? INFINITY : 1e300, &numbers, H5T_IEEE_F64LE, "row 3, column 1 is "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Sample sample;
        ArraySource *source;
        double found[ROWS * TARGETS];
        bool labels = rows[i].spec->classes;
        begin_sample(&sample);
        memset(sample.target, 0, sizeof sample.target);
        sample.target[7] = rows[i].value;
        array_file_add(&sample.file, "targets", rows[i].type, labels ? 1 : 2, target_dims,
                       (ArrayLayout)(i % 2 ? LAYOUT_PACKED : LAYOUT_CONTIGUOUS), sample.target);
        array_file_end(&sample.file);
        ck_assert_msg(arrays_open(&source, sample.file.path, rows[i].spec) == 0, "%s",
                      error_message());
        ck_assert_int_eq(arrays_read(source, ARRAY_TARGETS, 0, 3, found), 0);
        assert_error(arrays_read(source, ARRAY_TARGETS, 2, 9, found), rows[i].message);
        int64_t some[] = {0, labels ? 7 : 3, 1};
        assert_error(arrays_gather(source, ARRAY_TARGETS, some, 3, found), rows[i].message);
        assert_error(arrays_read(source, ARRAY_INPUTS, 30, 8, found), "8 rows from 30 wanted");
        assert_error(arrays_read(source, ARRAY_INPUTS, -1, 1, found), "dataset inputs: 1 rows");
        assert_error(arrays_read(source, ARRAY_INPUTS, 1, INT64_MAX, found), "it has 37");
        arrays_close(source);
        array_file_close(&sample.file);
    }
}
END_TEST
int main(void) {
    return run_suite("arrays",
                     TESTS(every_type_and_layout_reads_as_it_was_written, long_rows_read_whole,
                           shapes_and_types_are_checked, what_is_no_dataset_of_the_file_is_refused,
                           chunks_that_are_not_there_are_missed, bad_files_are_named,
                           a_file_cut_short_is_an_error, bad_numbers_and_rows_are_named));
}
