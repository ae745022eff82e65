/* weft diff on checkpoints of the pattern: other grids, single elements, what only one has, and
 * damage that the values alone would not show. */
#include "base/error.h"
#include "checkpoint/diff.h"
#include "checkpoint/manifest.h"
#include "support/checkpoint_pattern.h"
#include "support/support.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    Grid grid;
    PatternModel model;
    char run_dir[SCRATCH_PATH], path[FILES_PATH];
} Side;
static Side a, b;

static void side_begin(Side *side, int grid_tensor, int grid_data) {
    grid_serial(&side->grid);
    scratch_make(side->run_dir);
    pattern_open(&side->model, &side->grid, grid_tensor, grid_data);
    pattern_fill(&side->model);
    snprintf(side->path, sizeof side->path, "%s/step-00000012", side->run_dir);
}

static void side_save(Side *side) {
    PatternModel *model = &side->model;
    int status = checkpoint_save(&side->grid, &model->set, &model->state, side->run_dir);
    ck_assert_msg(status == 0, "%s", error_message());
}

static void side_end(Side *side) {
    pattern_close(&side->model);
    ck_assert_int_eq(files_remove_tree(side->run_dir), 0);
}

/* One element of a tensor in B's memory. */
static real *element(const char *tensor, ParamRole role, int64_t row, int64_t col) {
    return pattern_element(&b.model, tensor, role, row, col);
}

static DiffOptions options;

/* Diffs A and B; what it prints must hold all of `expected` and nothing of `unexpected`. */
static int diff(const char *const *expected, const char *unexpected) {
    Capture capture;
    capture_begin(&capture, 1);
    int status = checkpoint_diff(a.path, b.path, &options);
    char *text = capture_end(&capture);
    for (; *expected; expected++)
        ck_assert_msg(strstr(text, *expected) != NULL, "not \"%s\" in\n%s", *expected, text);
    if (unexpected)
        ck_assert_msg(strstr(text, unexpected) == NULL, "\"%s\" in\n%s", unexpected, text);
    free(text);
    return status;
}
#define SAYS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void begin(int grid_tensor, int grid_data) {
    options = (DiffOptions){0};
    side_begin(&a, 8, 3);
    side_begin(&b, grid_tensor, grid_data);
    side_save(&a);
}

static void end(void) {
    side_end(&a);
    side_end(&b);
}

START_TEST(grids_do_not_matter) {
    static const int grids[][2] = {{8, 3}, {3, 2}, {1, 1}, {7, 5}};
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        begin(grids[i][0], grids[i][1]);
        side_save(&b);
        int status =
            diff(SAYS("value    9 tensors equal", "moment2  9 tensors equal", "function equal",
                      "position equal", "fingerprint equal", "\nequal: 27 arrays, 1758 elements\n"),
                 "first difference");
        ck_assert_int_eq(status, 0);
        options.verbose = true;
        ck_assert_int_eq(diff(SAYS(PATTERN_GATE), NULL), 0);
        end();
    }
}
END_TEST

START_TEST(one_element_is_found) {
    static const struct {
        const char *tensor;
        ParamRole role;
        int64_t row, col;
        const char *shown, *role_name;
    } rows[] = {
        {PATTERN_GATE, PARAM_VALUE, 10, 7, " [10, 7]: ", "value "},
        {"model.layers.0.mlp.down_proj.weight", PARAM_MOMENT1, 3, 9, " [3, 9]: ", "moment1 "},
        {"model.layers.0.mlp.gate_proj.bias", PARAM_MOMENT2, 0, 6, " [6]: ", "moment2 "},
        {"model.norm.weight", PARAM_VALUE, 0, 0, " [0]: ", "value "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin(3, 2);
        real *value = element(rows[i].tensor, rows[i].role, rows[i].row, rows[i].col);
        *value = (real)nextafterf((float)*value, INFINITY);
        side_save(&b);
        int status =
            diff(SAYS(rows[i].tensor, rows[i].shown, rows[i].role_name, "8 tensors equal",
                      "9 tensors equal", "fingerprint differs", "\ndifferent: 1 of 27 arrays\n"),
                 NULL);
        ck_assert_int_eq(status, WEFT_CHECK);
        options.tolerance = 1e-6;
        status = diff(SAYS("; within the tolerance\n", "fingerprint differs",
                           "; 1 of the arrays by the tolerance of 1e-06"),
                      "\ndifferent:");
        ck_assert_int_eq(status, 0);
        end();
    }
}
END_TEST

START_TEST(a_tolerance_is_of_the_largest_magnitude) {
    begin(2, 1);
    /* the last element of the table is its largest */
    real *value = element("model.table.weight", PARAM_VALUE, 0, 0);
    real largest = *element("model.table.weight", PARAM_VALUE, 4, 2);
    *value += (real)0.25;
    side_save(&b);
    options.tolerance = 0.25 / (double)largest * 1.001;
    ck_assert_int_eq(diff(SAYS("within"), "\ndifferent:"), 0);
    options.tolerance = 0.25 / (double)largest * 0.999;
    ck_assert_int_eq(diff(SAYS("different: 1 of 27"), "within"), WEFT_CHECK);
    end();
}
END_TEST

START_TEST(a_nan_is_shown) {
    begin(2, 1);
    *element("model.table.weight", PARAM_VALUE, 1, 1) = (real)NAN;
    side_save(&b);
    options.tolerance = 100;
    ck_assert_int_eq(diff(SAYS("nan", "; 1 with NaN", "different: 1 of 27"), "within"), WEFT_CHECK);
    end();
}
END_TEST

START_TEST(function_and_position_count) {
    begin(8, 3);
    json_object_set_new(json_object_get(b.model.function, "ffn"), "activation",
                        json_string("gelu"));
    b.model.state.tokens = 4712;
    side_save(&b);
    int status = diff(SAYS("function differs:\n  ffn.activation: A silu, B gelu\n",
                           "position differs:\n  tokens: A 4711, B 4712\n", "9 tensors equal",
                           "fingerprint differs", "\ndifferent: function, position\n"),
                      "step:");
    ck_assert_int_eq(status, WEFT_CHECK);
    end();
}
END_TEST

START_TEST(settings_and_origin_are_told_apart) {
    begin(3, 2);
    json_object_set_new(json_object_get(b.model.details, "optimizer"), "lr", json_real(0.5));
    json_object_set_new(b.model.origin, "tp", json_integer(5));
    side_save(&b);
    const char *lr = "differs, but is no part of the state:\n";
    int status = diff(SAYS(lr, "  optimizer.lr: A 0.001, B 0.5\n", "  grid.tensor: A 8, B 3\n",
                           "\nequal: 27 arrays"),
                      "tp: A");
    ck_assert_int_eq(status, 0);
    options.verbose = true;
    ck_assert_int_eq(diff(SAYS("origin:\n  tp: A 1, B 5\n"), NULL), 0);
    end();
}
END_TEST

/* B without moments, and with one tensor under another name and one of another shape. */
START_TEST(what_only_one_has_is_named) {
    begin(8, 3);
    real *moments = b.model.set.arena[PARAM_MOMENT1];
    b.model.set.arena[PARAM_MOMENT1] = NULL;
    Param *norm = &b.model.set.param[params_find(&b.model.set, "model.norm.weight")];
    Param *table = &b.model.set.param[params_find(&b.model.set, "model.table.weight")];
    snprintf(norm->name, sizeof norm->name, "model.final.weight");
    table->rows = 3;
    table->cut[0].end = 3;
    side_save(&b);
    b.model.set.arena[PARAM_MOMENT1] = moments;
    int status =
        diff(SAYS("model.norm.weight                      only A has it\n",
                  "model.final.weight                     only B has it\n",
                  "other shapes: A [5, 3], B [3, 3]\n", "moment1  model.embed_tokens.weight ",
                  "value    7 tensors equal\n", "\ndifferent: 21 of 28 arrays\n"),
             "moment1  7");
    ck_assert_int_eq(status, WEFT_CHECK);
    end();
}
END_TEST

START_TEST(damaged_data_have_no_verdict) {
    char path[FILES_PATH];
    begin(1, 1);
    side_save(&b);
    ck_assert_int_eq(files_join(path, sizeof path, b.path, "shard-t000-d000.h5"), 0);
    /* the value of the norm's first element, wherever it lies */
    size_t size;
    char *bytes;
    real sought = pattern_value(7, PARAM_VALUE, 0);
    ck_assert_int_eq(files_read(path, 1 << 26, &bytes, &size), 0);
    char *place = memmem(bytes, size, &sought, sizeof sought);
    ck_assert_ptr_nonnull(place);
    int file = open(path, O_WRONLY);
    ck_assert_int_eq(pwrite(file, "\x55", 1, place - bytes), 1);
    close(file);
    free(bytes);
    int status = diff(SAYS("model.norm.weight", " [0]: "), "\ndifferent:");
    ck_assert_int_eq(status, WEFT_INPUT);
    ck_assert_ptr_nonnull(strstr(error_message(), b.path));
    ck_assert_ptr_nonnull(strstr(error_message(), "another fingerprint"));
    end();
}
END_TEST

START_TEST(what_is_no_checkpoint_is_refused) {
    begin(1, 1);
    ck_assert_int_eq(diff(SAYS(""), "equal"), WEFT_INPUT);
    ck_assert_ptr_nonnull(strstr(error_message(), "manifest.json: can't read"));
    end();
}
END_TEST

int main(void) {
    return run_suite("diff", TESTS(grids_do_not_matter, one_element_is_found,
                                   a_tolerance_is_of_the_largest_magnitude, a_nan_is_shown,
                                   function_and_position_count, settings_and_origin_are_told_apart,
                                   what_only_one_has_is_named, damaged_data_have_no_verdict,
                                   what_is_no_checkpoint_is_refused));
}
