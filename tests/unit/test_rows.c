/* Batches of array rows, and their normalisation. */
#include "base/error.h"
#include "data/batch.h"
#include "run/normalisation.h"
#include "support/array_file.h"
#include "support/support.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 103, HELD = 20, A = 3, B = 2, MICRO = 4, GLOBAL = 8 };

/* Columns of very different size; the last is constant. Row r begins with r. */
static void fill(double *inputs, double *targets, int rows) {
    for (int r = 0; r < rows; r++) {
        inputs[r * A] = r;
        inputs[r * A + 1] = 1e-6 * sin(r) + 1;
        inputs[r * A + 2] = 0.1;
        targets[r * B] = -1e6 * cos(r);
        targets[r * B + 1] = r % 7;
    }
}

static ArrayFile numbers_file(int rows, ArrayLayout layout) {
    double inputs[ROWS * A], targets[ROWS * B];
    fill(inputs, targets, rows);
    ArrayFile file = array_file_begin(0);
    array_file_add(&file, "x", H5T_IEEE_F64LE, 2, (hsize_t[]){(hsize_t)rows, A}, layout, inputs);
    array_file_add(&file, "y", H5T_IEEE_F64LE, 2, (hsize_t[]){(hsize_t)rows, B}, layout, targets);
    array_file_end(&file);
    return file;
}

/* Class r % 10 of row r. */
static ArrayFile classes_file(void) {
    double inputs[ROWS * A], targets[ROWS * B];
    fill(inputs, targets, ROWS);
    for (int r = 0; r < ROWS; r++) targets[r] = r % 10;
    ArrayFile file = array_file_begin(0);
    array_file_add(&file, "x", H5T_IEEE_F32LE, 2, (hsize_t[]){ROWS, A}, LAYOUT_CONTIGUOUS, inputs);
    array_file_add(&file, "y", H5T_STD_I64LE, 1, (hsize_t[]){ROWS}, LAYOUT_CONTIGUOUS, targets);
    array_file_end(&file);
    return file;
}

static DatasetSpec spec_of(const ArrayFile *file, bool classes, bool normalised) {
    return (DatasetSpec){.kind = "hdf5",
                         .train = file->path,
                         .held = "",
                         .held_out = 0.2,
                         .context = 1,
                         .micro_batch = MICRO,
                         .global_batch = GLOBAL,
                         .seed = 7,
                         .arrays = {{"x", "y"}, {A, classes ? 10 : B}, classes, false},
                         .normalise = normalised};
}

typedef struct {
    real inputs[MICRO * A], values[MICRO * B];
    int32_t targets[MICRO];
    Microbatch batch;
} Memory;

static const Microbatch *batch_of(Memory *memory, bool classes) {
    memory->batch = (Microbatch){.inputs = tensor_view(memory->inputs, MICRO, A),
                                 .targets = memory->targets,
                                 .values = {.data = NULL}};
    if (!classes) memory->batch.values = tensor_view(memory->values, MICRO, B);
    return &memory->batch;
}

static void assert_error(int status, const char *part) {
    ck_assert_int_eq(status, WEFT_INPUT);
    ck_assert_msg(strstr(error_message(), part), "\"%s\" lacks \"%s\"", error_message(), part);
}

/* ---- batches ---- */

/* Over an epoch every training row once, in the order of the permutation, and no held-out row. */
static void check_training(const DatasetSpec *spec) {
    Dataset data;
    Memory memory;
    int seen[ROWS] = {0};
    double inputs[ROWS * A], targets[ROWS * B];
    fill(inputs, targets, ROWS);
    ck_assert_msg(dataset_open(&data, spec) == 0, "%s", error_message());
    ck_assert_int_eq(data.train_items, ROWS - HELD);
    ck_assert_int_eq(data.order.samples, ROWS - HELD);
    for (int64_t place = 0; place + MICRO <= ROWS - HELD; place += MICRO) {
        int64_t ids[MICRO];
        ck_assert_int_eq(dataset_train_batch(&data, place / GLOBAL, GLOBAL, place % GLOBAL / MICRO,
                                             batch_of(&memory, false), ids),
                         0);
        for (int i = 0; i < MICRO; i++) {
            int row = (int)memory.inputs[i * A];
            ck_assert_int_eq(row, order_permute(&data.order, 0, place + i));
            ck_assert_int_eq(row, ids[i]);
            ck_assert_int_ge(memory.targets[i], 0);
            seen[row]++;
            for (int c = 0; c < A; c++)
                ck_assert(memory.inputs[i * A + c] == (real)inputs[row * A + c]);
            for (int c = 0; c < B; c++)
                ck_assert(memory.values[i * B + c] == (real)targets[row * B + c]);
        }
    }
    for (int row = 0; row < ROWS; row++) ck_assert_int_le(seen[row], row < ROWS - HELD);
    dataset_close(&data);
}

START_TEST(training_takes_the_rows_of_the_permutation) {
    for (int layout = 0; layout < LAYOUT_COUNT; layout++) {
        ArrayFile file = numbers_file(ROWS, (ArrayLayout)layout);
        DatasetSpec spec = spec_of(&file, false, false);
        check_training(&spec);
        array_file_close(&file);
    }
}
END_TEST

/* Rows first ... first + count - 1, each once and with its class; then padding. */
static void check_eval(const DatasetSpec *spec, int first, int count) {
    Dataset data;
    Memory memory;
    ck_assert_msg(dataset_open(&data, spec) == 0, "%s", error_message());
    int64_t batches = dataset_eval_batches(&data, 0), next = first;
    ck_assert_int_eq(batches, (count + MICRO - 1) / MICRO);
    for (int64_t m = 0; m < batches; m++) {
        memset(memory.inputs, 1, sizeof memory.inputs);
        ck_assert_int_eq(dataset_eval_batch(&data, 0, m, batch_of(&memory, true)), 0);
        for (int i = 0; i < MICRO; i++, next++) {
            bool padded = next >= first + count;
            ck_assert(memory.inputs[i * A] == (padded ? 0 : (real)next));
            ck_assert(memory.inputs[i * A + 2] == (padded ? 0 : (real)0.1F));
            ck_assert_int_eq(memory.targets[i], padded ? -1 : next % 10);
        }
    }
    dataset_close(&data);
}

START_TEST(eval_covers_the_held_out_rows_once) {
    ArrayFile file = classes_file();
    DatasetSpec spec = spec_of(&file, true, false);
    check_eval(&spec, ROWS - HELD, HELD);
    spec.held_out = 0.01;
    check_eval(&spec, ROWS - 1, 1);
    spec.held = file.path;
    check_eval(&spec, 0, ROWS);
    spec.held = "";
    spec.held_out = 0;
    check_eval(&spec, ROWS, 0);
    array_file_close(&file);
}
END_TEST

START_TEST(eval_is_spread_over_the_held_out_rows) {
    ArrayFile file = classes_file();
    DatasetSpec spec = spec_of(&file, true, false);
    Dataset data;
    Memory memory;
    ck_assert_int_eq(dataset_open(&data, &spec), 0);
    ck_assert_int_eq(dataset_eval_batches(&data, 3), 1);
    ck_assert_int_eq(dataset_eval_batch(&data, 3, 0, batch_of(&memory, true)), 0);
    for (int i = 0; i < 3; i++)
        ck_assert(memory.inputs[i * A] == (real)(ROWS - HELD + i * HELD / 3));
    ck_assert_int_eq(memory.targets[3], -1);
    dataset_close(&data);
    array_file_close(&file);
}
END_TEST

START_TEST(files_too_short_are_refused_with_figures) {
    ArrayFile file = numbers_file(GLOBAL + 1, LAYOUT_CONTIGUOUS);
    DatasetSpec spec = spec_of(&file, false, true);
    Dataset data;
    spec.held_out = 0.3;
    assert_error(dataset_open(&data, &spec),
                 "too short: 7 rows to train on; one global batch of 8");
    spec.held_out = 0.1;
    assert_error(dataset_open(&data, &spec), "too short: 0 rows are held out of 9; at least 1");
    spec.held_out = 0;
    ck_assert_int_eq(dataset_open(&data, &spec), 0);
    dataset_close(&data);
    array_file_close(&file);
}
END_TEST

/* ---- normalisation ---- */

/* Two passes, in long double. */
static void naive(const double *values, int rows, int width, int column, long double moments[2]) {
    moments[0] = moments[1] = 0;
    for (int r = 0; r < rows; r++) moments[0] += values[r * width + column];
    moments[0] /= rows;
    for (int r = 0; r < rows; r++) {
        long double distance = values[r * width + column] - moments[0];
        moments[1] += distance * distance;
    }
    moments[1] = sqrtl(moments[1] / rows);
}

static void check_part(const Normalisation *n, ArrayPart part, const double *values, int width) {
    for (int c = 0; c < width; c++) {
        long double moments[2];
        naive(values, ROWS - HELD, width, c, moments);
        double size = fabs((double)moments[0]) + (double)moments[1];
        ck_assert_double_le(fabs(n->mean[part][c] - (double)moments[0]), 1e-14 * size);
        bool constant = part == ARRAY_INPUTS && c == A - 1;
        if (constant)
            ck_assert(n->scale[part][c] == 1);
        else
            ck_assert_double_le(fabs(n->scale[part][c] / (double)moments[1] - 1), 1e-9);
    }
}

/* Of the training rows alone, the same from every layout of the file. */
START_TEST(moments_are_those_of_the_training_rows) {
    double inputs[ROWS * A], targets[ROWS * B], first[2 * (A + B)];
    fill(inputs, targets, ROWS);
    for (int layout = 0; layout < LAYOUT_COUNT; layout++) {
        ArrayFile file = numbers_file(ROWS, (ArrayLayout)layout);
        DatasetSpec spec = spec_of(&file, false, true);
        Dataset data;
        ck_assert_int_eq(dataset_open(&data, &spec), 0);
        ck_assert_int_eq(dataset_normalise(&data), 0);
        check_part(&data.normalisation, ARRAY_INPUTS, inputs, A);
        check_part(&data.normalisation, ARRAY_TARGETS, targets, B);
        if (layout == 0) memcpy(first, data.normalisation.number, sizeof first);
        ck_assert_mem_eq(first, data.normalisation.number, sizeof first);
        dataset_close(&data);
        array_file_close(&file);
    }
}
END_TEST

/* Held-out rows too are put on the scale of the training rows; classes stay. */
START_TEST(batches_are_normalised) {
    double inputs[ROWS * A], targets[ROWS * B];
    fill(inputs, targets, ROWS);
    for (int classes = 0; classes < 2; classes++) {
        ArrayFile file = classes ? classes_file() : numbers_file(ROWS, LAYOUT_PACKED);
        DatasetSpec spec = spec_of(&file, classes, true);
        Dataset data;
        Memory memory;
        ck_assert_int_eq(dataset_open(&data, &spec), 0);
        ck_assert_int_eq(dataset_eval_batch(&data, 0, 0, batch_of(&memory, classes)), WEFT_RUNTIME);
        ck_assert_int_eq(dataset_normalise(&data), 0);
        ck_assert_int_eq(dataset_eval_batch(&data, 0, 0, batch_of(&memory, classes)), 0);
        const Normalisation *n = &data.normalisation;
        for (int i = 0; i < MICRO; i++) {
            int row = ROWS - HELD + i;
            double x = (row - n->mean[ARRAY_INPUTS][0]) / n->scale[ARRAY_INPUTS][0];
            double y = (targets[row * B] - n->mean[ARRAY_TARGETS][0]) / n->scale[ARRAY_TARGETS][0];
            ck_assert(memory.inputs[i * A] == (real)x && x > 1.7);
            ck_assert(fabs((double)memory.inputs[i * A + 2]) < 1e-8);
            if (classes)
                ck_assert_int_eq(memory.targets[i], row % 10);
            else
                ck_assert(memory.values[i * B] == (real)y);
        }
        dataset_close(&data);
        array_file_close(&file);
    }
}
END_TEST

START_TEST(a_deviation_beyond_double_is_refused) {
    double inputs[ROWS * A], targets[ROWS * B];
    fill(inputs, targets, ROWS);
    for (int r = 0; r < ROWS; r++) targets[r * B] = r % 2 ? DBL_MAX : -DBL_MAX;
    ArrayFile file = array_file_begin(0);
    array_file_add(&file, "x", H5T_IEEE_F64LE, 2, (hsize_t[]){ROWS, A}, LAYOUT_CONTIGUOUS, inputs);
    array_file_add(&file, "y", H5T_IEEE_F64LE, 2, (hsize_t[]){ROWS, B}, LAYOUT_CONTIGUOUS, targets);
    array_file_end(&file);
    DatasetSpec spec = spec_of(&file, false, true);
    Dataset data;
    ck_assert_int_eq(dataset_open(&data, &spec), 0);
    assert_error(dataset_normalise(&data), sizeof(real) == 8
                                               ? "column 0 of the targets: its deviation is beyond"
                                               : "dataset y: row 0, column 0 is -1.79769e+308");
    dataset_close(&data);
    array_file_close(&file);
}
END_TEST

/* Of a column that hardly differs from a constant: another row would be infinite. */
START_TEST(a_deviation_too_small_to_divide_by_is_refused) {
    double inputs[ROWS * A], targets[ROWS * B];
    fill(inputs, targets, ROWS);
    for (int r = 0; r < ROWS; r++) inputs[r * A + 1] = r % 2 ? 1e-45 : 0;
    ArrayFile file = array_file_begin(0);
    array_file_add(&file, "x", H5T_IEEE_F64LE, 2, (hsize_t[]){ROWS, A}, LAYOUT_CONTIGUOUS, inputs);
    array_file_add(&file, "y", H5T_IEEE_F64LE, 2, (hsize_t[]){ROWS, B}, LAYOUT_CONTIGUOUS, targets);
    array_file_end(&file);
    DatasetSpec spec = spec_of(&file, false, true);
    Dataset data;
    ck_assert_int_eq(dataset_open(&data, &spec), 0);
    assert_error(dataset_normalise(&data),
                 "column 1 of the inputs: its deviation is too small to divide by");
    dataset_close(&data);
    array_file_close(&file);
}
END_TEST

/* ---- in a manifest ---- */

/* Through the text and back, the same bits. */
START_TEST(a_manifest_keeps_the_doubles) {
    static const double hard[2 * (A + B)] = {
        0.1, -0.0, 1.0 / 3, DBL_MAX, 1, DBL_MIN, 5e-324, 0x1.fffffffffffffp-3, 2.5e-17, 1e22};
    Normalisation n, again;
    const int64_t columns[] = {A, B};
    ck_assert_int_eq(normalisation_open(&n, columns), 0);
    ck_assert_int_eq(normalisation_open(&again, columns), 0);
    memcpy(n.number, hard, sizeof hard);
    char digest[HASH_TEXT];
    normalisation_digest(&n, digest);
    json_t *manifest = json_pack("{s:o, s:{s:s}}", "normalisation", normalisation_json(&n),
                                 "function", "normalisation", digest);
    char *text = json_dumps(manifest, JSON_INDENT(1) | JSON_SORT_KEYS); /* as a manifest is */
    json_decref(manifest);
    manifest = json_loads(text, 0, NULL);
    ck_assert_msg(normalisation_take(&again, manifest, "d") == 0, "%s", error_message());
    ck_assert(again.known);
    ck_assert_mem_eq(again.number, hard, sizeof hard);
    json_decref(manifest);
    free(text);
    normalisation_close(&n);
    normalisation_close(&again);
}
END_TEST

START_TEST(a_bad_block_of_a_manifest_is_refused) {
    static const char *const blocks[] = {
        "{}",
        "{\"inputs\": {\"mean\": [1], \"scale\": [1]}, \"targets\": {\"mean\": [], \"scale\": []}}",
        "{\"inputs\": {\"mean\": [1, 2, 3], \"scale\": [1, 0, 1]}}",
        "{\"inputs\": {\"mean\": [1, 2, 3], \"scale\": [1, -1, 1]}}",
        "{\"inputs\": {\"mean\": [1, \"2\", 3], \"scale\": [1, 1, 1]}}",
        "{\"inputs\": {\"mean\": [1, 2, 3], \"scale\": [1, 1, 1]}, \"targets\": 7}",
    };
    const int64_t columns[] = {A, 0};
    Normalisation n;
    ck_assert_int_eq(normalisation_open(&n, columns), 0);
    json_t *manifest = json_object();
    assert_error(normalisation_take(&n, manifest, "step-1"),
                 "step-1: its manifest: normalisation is");
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        json_object_set_new(manifest, "normalisation", json_loads(blocks[i], 0, NULL));
        assert_error(normalisation_take(&n, manifest, "step-1"),
                     "step-1: its manifest: normalisation.");
        ck_assert(!n.known);
    }
    json_decref(manifest);
    normalisation_close(&n);
}
END_TEST

int main(void) {
    return run_suite(
        "rows",
        TESTS(training_takes_the_rows_of_the_permutation, eval_covers_the_held_out_rows_once,
              eval_is_spread_over_the_held_out_rows, files_too_short_are_refused_with_figures,
              moments_are_those_of_the_training_rows, batches_are_normalised,
              a_deviation_beyond_double_is_refused, a_deviation_too_small_to_divide_by_is_refused,
              a_manifest_keeps_the_doubles, a_bad_block_of_a_manifest_is_refused));
}
