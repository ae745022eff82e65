/* verify --static: tensors and files that were changed, with every digest set right again, each
 * named by what is wrong; and good ones. */
#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/verify.h"
#include "run/declared.h"
#include "support/checkpoint_pattern.h"
#include "support/manifest_edit.h"
#include "support/static_rig.h"
#include "support/support.h"

#include <hdf5.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LAYER "model.layers.1."
#define SMALL "model.layers=2", "grid.tensor=3", "grid.data=2"
#define MLP                                                                                        \
    "model.kind=mlp", "data.kind=hdf5", "model.inputs=5", "model.outputs=3", "model.context=1",    \
        "data.normalise=false", "model.heads=8", "model.kv_heads=4"

static StaticRig rig;

static void path_of(const char *file, char path[FILES_PATH]) {
    ck_assert_int_eq(files_join(path, FILES_PATH, rig.directory, file), 0);
}

/* ---- good ones ---- */

START_TEST(good_ones_pass) {
    const char *const *const settings[] = {
        SETTINGS("ffn.bias=false", SMALL),
        SETTINGS("ffn.bias=true"),
        SETTINGS("ffn.kind=dense", "ffn.activation=relu", SMALL),
        SETTINGS("ffn.kind=dual", "ffn.activation=relu", "ffn.gate_bias=false", SMALL),
        SETTINGS("ffn.bias=false", "ffn.up_bias=true", SMALL),
        SETTINGS("ffn.swish_beta=1.702", "ffn.gate_clamp=7", "ffn.linear_clamp=7",
                 "ffn.linear_offset=1", SMALL),
        SETTINGS("model.tie_embeddings=false", "init.scheme=fan_in", SMALL),
        SETTINGS("ffn.hidden_dropout=0.1", "ffn.output_dropout=0.3", "train.recompute=block",
                 SMALL),
        SETTINGS("grid.tensor=1", "grid.data=1", "ffn.d_ff=1"),
        SETTINGS(MLP, "ffn.bias=true", SMALL),
        SETTINGS(MLP, "ffn.kind=dense", "model.loss=squared_error", "model.outputs=1"),
        SETTINGS("grid.tensor=7", "grid.data=3", "model.kv_heads=1", "model.layers=1"),
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        static_rig_begin(&rig, settings[i]);
        static_rig_save(&rig);
        static_rig_clean(&rig, settings[i][0]);
        ck_assert_int_eq(declared_check(rig.manifest, rig.directory), 0);
        static_rig_end(&rig);
    }
}
END_TEST

START_TEST(what_was_looked_at_is_counted) {
    StaticReport report;
    static_rig_begin(&rig, SETTINGS("ffn.bias=true", SMALL));
    static_rig_save(&rig);
    ck_assert_int_eq(static_verify(rig.directory, &report), 0);
    ck_assert_int_eq(report.tensors, rig.made.model.set.count);
    ck_assert_int_eq(report.roles, 3);
    ck_assert_int_eq(report.files, 3 * 2 + 1);
    ck_assert_int_eq(report.biases, 2 * 3);
    ck_assert_int_eq(report.datasets,
                     (int64_t)json_array_size(json_object_get(rig.manifest, "shards")));
    ck_assert_int_eq(report.notes.count, 0);
    static_release(&report);
    static_rig_end(&rig);
}
END_TEST

/* A float64 program reads none of float32. */
START_TEST(kept_checkpoints_of_older_programs_pass) {
    if (sizeof(real) != 4) return;
    static const char *const kept[] = {"tests/golden/checkpoint/hdf5-1.10",
                                       "tests/golden/checkpoint/hdf5-1.14"};
    for (int i = 0; i < 2; i++) {
        snprintf(rig.directory, sizeof rig.directory, "%s", kept[i]);
        static_rig_clean(&rig, kept[i]);
    }
}
END_TEST

/* ---- all at once ---- */

START_TEST(everything_is_told) {
    static_rig_begin(&rig, SETTINGS("ffn.bias=true", SMALL));
    static_rig_save(&rig);
    json_t *changed = json_deep_copy(rig.manifest);
    manifest_put(changed, "topology/kind", json_string("dense"));
    manifest_put(changed, "function/model/kv_heads", NULL);
    manifest_edit(rig.directory, changed, "activation/name", NULL);
    json_decref(changed);
    char path[FILES_PATH];
    path_of("shard-t001-d000.h5", path);
    ck_assert_int_eq(remove(path), 0);
    path_of("notes.txt", path);
    ck_assert_int_eq(files_write(path, "x", 1), 0);
    static_rig_finds(&rig, "kind", 5, "topology.kind is");
    static_rig_finds(&rig, "heads", 5, "function.model.kv_heads is missing");
    static_rig_finds(&rig, "name", 5, "activation.name is missing");
    static_rig_finds(&rig, "file", 5, "shard-t001-d000.h5: file is missing");
    static_rig_finds(&rig, "extra", 5, "notes.txt: file is extra");
    ck_assert_int_eq(remove(path), 0);
    path_of(MANIFEST_FILE, path);
    ck_assert_int_eq(remove(path), 0);
    static_rig_finds(&rig, "manifest", 1, MANIFEST_FILE);
    static_rig_end(&rig);
}
END_TEST

/* ---- tensors that are another model's, and say so all over ---- */

/* Saves the tensors of `rig.made` under the blocks of a model with other settings. */
static void save_as(const char *const *settings) {
    ModelCheckpoint other;
    model_checkpoint_declare(&other, settings);
    CheckpointState own = rig.made.state;
    rig.made.state.function = other.function;
    rig.made.state.details = other.details;
    rig.made.state.origin = other.origin;
    static_rig_save(&rig);
    rig.made.state = own;
    model_checkpoint_close(&other);
}

START_TEST(tensors_of_another_model) {
    static const struct {
        const char *has, *says, *expected;
    } rows[] = {
        {"ffn.bias=false", "ffn.bias=true",
         "bias " LAYER "mlp.gate_proj.bias is missing; by the "
         "function it is [12]"},
        {"ffn.bias=true", "ffn.bias=false", "bias " LAYER "mlp.down_proj.bias is undeclared"},
        {"ffn.up_bias=true", "ffn.up_bias=false", "bias " LAYER "mlp.up_proj.bias is undeclared"},
        {"model.tie_embeddings=false", "model.tie_embeddings=true",
         "tensor lm_head.weight is there, but it is another name of model.embed_tokens.weight"},
        {"model.tie_embeddings=true", "model.tie_embeddings=false",
         "tensor lm_head.weight is missing; by the function it is [256, 16]"},
        {"ffn.kind=gated", "ffn.kind=dense", "tensor " LAYER "mlp.gate_proj.weight is extra"},
        {"ffn.kind=dense", "ffn.kind=gated", "tensor " LAYER "mlp.gate_proj.weight is missing"},
        {"ffn.d_ff=12", "ffn.d_ff=16",
         "tensor " LAYER "mlp.gate_proj.weight: shape is [12, 16], by the function [16, 16]"},
        {"model.kv_heads=2", "model.kv_heads=1",
         "tensor " LAYER "self_attn.k_proj.weight: shape is [16, 16], by the function [8, 16]"},
        {"model.kv_heads=2", "model.kv_heads=1",
         "tensor " LAYER "self_attn.o_proj.weight: is cut into 2 shards, by the function 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static_rig_begin(&rig, SETTINGS(rows[i].has, SMALL));
        save_as(SETTINGS(rows[i].says, SMALL));
        static_rig_finds(&rig, rows[i].has, 0, rows[i].expected);
        static_rig_end(&rig);
    }
}
END_TEST

static Param *param_of(const char *name) {
    return &rig.made.model.set.param[params_find(&rig.made.model.set, name)];
}

static void transpose(void) {
    Param *gate = param_of(LAYER "mlp.gate_proj.weight"); /* [12, 16] in 3 shards of [4, 16] */
    gate->rows = 16;
    gate->cols = 12;
    gate->split = SPLIT_COLS;
}

static void cut_elsewhere(void) {
    Param *gate = param_of(LAYER "mlp.gate_proj.weight");
    gate->cut[0].end = gate->cut[1].begin = 2;
}

static void narrow(void) {
    Param *up = param_of(LAYER "mlp.up_proj.weight");
    up->rows = up->cut[up->shards - 1].end = 11;
}

static void exchange(void) {
    Param *gate = param_of(LAYER "mlp.gate_proj.weight");
    Param *up = param_of(LAYER "mlp.up_proj.weight"), kept = *up;
    *up = *gate;
    *gate = kept;
}

static void replicate(void) {
    Param *bias = param_of(LAYER "mlp.up_proj.bias");
    bias->split = SPLIT_NONE;
    bias->shards = 1;
    bias->owned = (Range){0, 1};
}

START_TEST(tensors_that_lie_otherwise) {
    static const struct {
        const char *what;
        void (*change)(void);
        const char *expected;
    } rows[] = {
        {"transposed", transpose,
         "tensor " LAYER "mlp.gate_proj.weight: shape is [16, 12], by the function [12, 16] "
         "([out, in]): it is transposed"},
        {"axis", transpose,
         "tensor " LAYER "mlp.gate_proj.weight: is cut along axis 1, by the "
         "function 0"},
        {"axis", replicate,
         "tensor " LAYER "mlp.up_proj.bias: is cut along axis -1, by the "
         "function 0"},
        {"gate cut unlike up", cut_elsewhere,
         "tensor " LAYER "mlp.gate_proj.weight, value: its piece in shard-t000-d000.h5 is [1, 16] "
         "at [0, 0], by the function [2, 16]"},
        {"gate and up of unequal width", narrow,
         "tensor " LAYER "mlp.up_proj.weight: shape is [11, 16], by the function [12, 16]"},
        {"order", exchange, "tensors: " LAYER "mlp.gate_proj"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static_rig_begin(&rig, SETTINGS("ffn.bias=true", SMALL));
        rows[i].change();
        static_rig_save(&rig);
        ck_assert_msg(verify_directory(rig.directory, false) == 0, "%s", error_message());
        static_rig_finds(&rig, rows[i].what, 0, rows[i].expected);
        static_rig_end(&rig);
    }
}
END_TEST

/* ---- files that aren't what a good manifest says ---- */

#define UP       LAYER "mlp.up_proj.weight"
#define UP_VALUE "value/" UP

/* A dataset [rows, cols] in the place of another. */
static void replace(hid_t file, hid_t type, hsize_t rows, hsize_t cols) {
    hid_t space = H5Screate_simple(2, (hsize_t[]){rows, cols}, NULL);
    ck_assert_int_ge(H5Ldelete(file, UP_VALUE, H5P_DEFAULT), 0);
    hid_t dataset = H5Dcreate2(file, UP_VALUE, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert_int_ge(dataset, 0);
    H5Dclose(dataset);
    H5Sclose(space);
}

#ifdef WEFT_REAL64
#define TYPE       H5T_IEEE_F64LE
#define OTHER_TYPE H5T_IEEE_F32LE
#else
#define TYPE       H5T_IEEE_F32LE
#define OTHER_TYPE H5T_IEEE_F64LE
#endif

/* The piece is [2, 16] there: 4 rows of shard 2 in two parts. */
static void remove_it(hid_t file) { H5Ldelete(file, UP_VALUE, H5P_DEFAULT); }
static void turn_it(hid_t file) { replace(file, TYPE, 16, 2); }
static void widen_it(hid_t file) { replace(file, TYPE, 2, 17); }
static void retype_it(hid_t file) { replace(file, OTHER_TYPE, 2, 16); }
static void strip_it(hid_t file) { H5Adelete_by_name(file, UP_VALUE, "offset", H5P_DEFAULT); }
static void drop_axis(hid_t file) { H5Adelete_by_name(file, UP_VALUE, "axis", H5P_DEFAULT); }
static void add_link(hid_t file) {
    H5Lcreate_hard(file, UP_VALUE, file, "value/" LAYER "mlp.up_proj.extra", H5P_DEFAULT,
                   H5P_DEFAULT);
}
static void add_group(hid_t file) {
    H5Gclose(H5Gcreate2(file, "gradient", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
}

START_TEST(files_with_another_structure) {
    static const struct {
        void (*change)(hid_t file);
        const char *expected;
    } rows[] = {
        {remove_it, "shard-t002-d001.h5: " UP " is missing in group value"},
        {remove_it, "shard-t002-d001.h5: dataset " UP_VALUE ": missing or unreadable"},
        {turn_it, "shard-t002-d001.h5: dataset " UP_VALUE ": shape isn't [2, 16]"},
        {widen_it, "shard-t002-d001.h5: dataset " UP_VALUE ": shape isn't [2, 16]"},
        {retype_it, "shard-t002-d001.h5: dataset " UP_VALUE ": type isn't"},
        {strip_it, "shard-t002-d001.h5: dataset " UP_VALUE ": attribute offset"},
        {drop_axis, "shard-t002-d001.h5: dataset " UP_VALUE ": attribute axis"},
        {add_link, "shard-t002-d001.h5: " LAYER "mlp.up_proj.extra in group value is extra"},
        {add_group, "shard-t002-d001.h5: gradient in group / is extra"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[FILES_PATH];
        static_rig_begin(&rig, SETTINGS("ffn.bias=true", SMALL));
        static_rig_save(&rig);
        path_of("shard-t002-d001.h5", path);
        hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
        ck_assert_int_ge(file, 0);
        rows[i].change(file);
        H5Fclose(file);
        static_rig_finds(&rig, rows[i].expected, 0, rows[i].expected);
        static_rig_end(&rig);
    }
}
END_TEST

/* A link to elsewhere is named, within the checkpoint (or to it as a whole) it isn't. */
START_TEST(files_that_lie_elsewhere) {
    static const char *const names[] = {"shard-t001-d000.h5", "checkpoint.h5"};
    char path[FILES_PATH], away[FILES_PATH], expected[64];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        static_rig_begin(&rig, SETTINGS("ffn.bias=true", SMALL));
        static_rig_save(&rig);
        path_of(names[i], path);
        ck_assert_int_eq(files_join(away, sizeof away, rig.run_dir, "away.h5"), 0);
        ck_assert_int_eq(rename(path, away), 0);
        ck_assert_int_eq(symlink("../away.h5", path), 0);
        snprintf(expected, sizeof expected, "%s: is a link to ", names[i]);
        static_rig_finds(&rig, names[i], 1, expected);
        static_rig_end(&rig);
    }
    static_rig_begin(&rig, SETTINGS("ffn.bias=true", SMALL));
    static_rig_save(&rig);
    ck_assert_int_eq(files_join(away, sizeof away, rig.run_dir, "newest"), 0);
    ck_assert_int_eq(symlink(rig.directory, away), 0);
    memcpy(rig.directory, away, sizeof away);
    static_rig_clean(&rig, "a link to the checkpoint");
    static_rig_end(&rig);
}
END_TEST

/* Other data in a weight are for the digests to find: nothing of it is read. */
START_TEST(data_are_not_read) {
    char path[FILES_PATH];
    static_rig_begin(&rig, SETTINGS("ffn.bias=true", SMALL));
    static_rig_save(&rig);
    path_of("shard-t002-d001.h5", path);
    real zeros[2 * 16] = {0};
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t dataset = H5Dopen2(file, UP_VALUE, H5P_DEFAULT);
    ck_assert_int_ge(H5Dwrite(dataset, TYPE, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros), 0);
    H5Dclose(dataset);
    H5Fclose(file);
    ck_assert_int_eq(verify_directory(rig.directory, false), WEFT_CHECK);
    static_rig_clean(&rig, "another weight");
    static_rig_end(&rig);
}
END_TEST

/* ---- biases filled with zeros ---- */

static void zero(const char *name, ParamRole role) {
    const Param *param = param_of(name);
    for (int s = 0; s < param->shards; s++) {
        Tensor shard = param_shard(&rig.made.model.set, param, role, s);
        memset(shard.data, 0, (size_t)(shard.rows * shard.cols) * sizeof(real));
    }
}

START_TEST(zero_filled_biases) {
    static const struct {
        const char *what;
        bool value, own_moment, weight_moment; /* are zero */
        const char *setting;
        int step;
        const char *expected; /* NULL: nothing to say */
    } rows[] = {
        {"value", true, false, false, "ffn.bias=true", 3, "it was trained"},
        {"value and moments", true, true, false, "ffn.bias=true", 3,
         LAYER "mlp.up_proj.weight was trained"},
        {"idle projection", true, true, true, "ffn.bias=true", 3, NULL},
        {"moment alone", false, true, false, "ffn.bias=true", 3, NULL},
        {"before the first step", true, false, false, "ffn.bias=true", 0, NULL},
        {"without a learning rate", true, false, false, "optim.lr=0", 3, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static_rig_begin(&rig, SETTINGS(rows[i].setting, SMALL));
        if (rows[i].value) zero(LAYER "mlp.up_proj.bias", PARAM_VALUE);
        if (rows[i].own_moment) zero(LAYER "mlp.up_proj.bias", PARAM_MOMENT2);
        if (rows[i].weight_moment) zero(LAYER "mlp.up_proj.weight", PARAM_MOMENT2);
        rig.made.state.step = rows[i].step;
        rig.made.state.tokens = rows[i].step * 12 * 8;
        static_rig_save(&rig);
        if (rows[i].expected) {
            static_rig_finds(&rig, rows[i].what, 1,
                             "bias " LAYER "mlp.up_proj.bias is zero-filled");
            static_rig_finds(&rig, rows[i].what, 1, rows[i].expected);
        } else {
            static_rig_clean(&rig, rows[i].what);
        }
        static_rig_end(&rig);
    }
}
END_TEST

/* A rate that no float can add to zero proves nothing: told as a note. */
START_TEST(zero_biases_at_a_vanishing_rate) {
    StaticReport report;
    const char *rate = sizeof(real) == 8 ? "optim.lr=3e-308" : "optim.lr=1e-300";
    static_rig_begin(&rig, SETTINGS("ffn.bias=true", rate, "optim.schedule=constant", SMALL));
    zero(LAYER "mlp.up_proj.bias", PARAM_VALUE);
    static_rig_save(&rig);
    ck_assert_msg(static_verify(rig.directory, &report) == 0, "%s", error_message());
    ck_assert_msg(static_rig_tells(&report.notes, "bias " LAYER "mlp.up_proj.bias is zero, though"),
                  "%s", static_rig_text(&report.notes));
    static_release(&report);
    static_rig_end(&rig);
}
END_TEST

/* One cell of the last piece isn't zero. */
START_TEST(a_bias_with_one_number_is_a_bias) {
    static_rig_begin(&rig, SETTINGS("ffn.bias=true", SMALL));
    zero(LAYER "mlp.up_proj.bias", PARAM_VALUE);
    const Param *bias = param_of(LAYER "mlp.up_proj.bias");
    Tensor last = param_shard(&rig.made.model.set, bias, PARAM_VALUE, bias->shards - 1);
    last.data[last.cols - 1] = (real)1e-30;
    static_rig_save(&rig);
    static_rig_clean(&rig, "one number");
    static_rig_end(&rig);
}
END_TEST

/* However a key is called, its value stands on one line, which begins with its block. */
START_TEST(inspect_prints_a_line_a_field) {
    Capture capture;
    static_rig_begin(&rig, SETTINGS("ffn.bias=true", SMALL));
    static_rig_save(&rig);
    manifest_edit(
        rig.directory, rig.manifest, "weather",
        json_pack("{s:i, s:{}, s:s}", "fine\nfingerprint 0", 1, "a.b", "text", "two\nlines"));
    capture_begin(&capture, 1);
    int status = checkpoint_inspect(rig.directory, false);
    char *text = capture_end(&capture);
    ck_assert_int_eq(status, 0);
    ck_assert_ptr_nonnull(strstr(text, "\nweather.\"fine\\nfingerprint 0\" = 1\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nweather.\"a.b\" = {}\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nweather.text = [1 lines]\n"));
    const char *last = strstr(text, "\nfingerprint ");
    ck_assert_ptr_nonnull(last);
    ck_assert_ptr_eq(strchr(last + 1, '\n'), text + strlen(text) - 1);
    free(text);
    static_rig_end(&rig);
}
END_TEST

int main(void) {
    return run_suite("static",
                     TESTS(inspect_prints_a_line_a_field, good_ones_pass,
                           what_was_looked_at_is_counted, kept_checkpoints_of_older_programs_pass,
                           everything_is_told, tensors_of_another_model, tensors_that_lie_otherwise,
                           files_with_another_structure, files_that_lie_elsewhere,
                           data_are_not_read, zero_filled_biases, zero_biases_at_a_vanishing_rate,
                           a_bias_with_one_number_is_a_bias));
}
