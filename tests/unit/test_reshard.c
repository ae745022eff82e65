/* A checkpoint on another grid: its files are those that a save there would write, and the known
 * row sees channels that are paired wrongly, which no digest does. */
#include "base/error.h"
#include "checkpoint/fingerprint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/publish.h"
#include "checkpoint/reshard.h"
#include "run/known_row.h"
#include "run/reshard.h"
#include "support/arrays.h"
#include "support/checkpoint_pattern.h"
#include "support/model_checkpoint.h"
#include "support/naive.h"
#include "support/support.h"

#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define STEP          "step-00000003"

static char scratch[SCRATCH_PATH];

static void path_of(char path[FILES_PATH], const char *run, const char *file) {
    snprintf(path, FILES_PATH, "%s/%s%s%s", scratch, run, file[0] ? "/" : "", file);
}

/* A checkpoint of these settings in the scratch directory's `run`. */
static void make(ModelCheckpoint *made, const char *run, const char *const *settings) {
    char path[FILES_PATH];
    path_of(path, run, "");
    model_checkpoint_open(made, settings);
    model_checkpoint_save(made, path);
}

static int reshard(const char *from, const char *to, int tensor, int data) {
    char source[FILES_PATH], out[FILES_PATH];
    path_of(source, from, "");
    path_of(out, to, "");
    Capture printed[2];
    for (int i = 0; i < 2; i++) capture_begin(&printed[i], i + 1);
    int status = reshard_directory(
        &(ReshardRequest){.from = source, .out = out, .tensor = tensor, .data = data});
    for (int i = 1; i >= 0; i--) free(capture_end(&printed[i]));
    return status;
}

static bool exists(const char *run, const char *file) {
    char path[FILES_PATH];
    path_of(path, run, file);
    return files_exists(path);
}

/* Neither `new` nor anything aside for it. */
static bool nothing_is_left(void) {
    char path[FILES_PATH];
    path_of(path, ".tmp-new*", "");
    return !exists("new", "") && glob(path, 0, NULL, &(glob_t){0}) == GLOB_NOMATCH;
}

/* ---- files ---- */

/* All HDF5 files of two checkpoints are there in both, with the same bytes; returns their number.
 */
static int same_files(const char *a, const char *b) {
    char left[FILES_PATH], right[FILES_PATH];
    FileNames names, others;
    int compared = 0;
    path_of(left, a, STEP);
    path_of(right, b, STEP);
    ck_assert_int_eq(files_list(left, &names), 0);
    ck_assert_int_eq(files_list(right, &others), 0);
    ck_assert_int_eq(names.count, others.count);
    for (int i = 0; i < names.count; i++) {
        if (!strcmp(names.name[i], MANIFEST_FILE)) continue;
        snprintf(left, sizeof left, "%s/%s/%s/%s", scratch, a, STEP, names.name[i]);
        snprintf(right, sizeof right, "%s/%s/%s/%s", scratch, b, STEP, names.name[i]);
        ck_assert_msg(same_bytes(left, right), "%s and %s differ", left, right);
        compared++;
    }
    files_names_release(&names);
    files_names_release(&others);
    return compared;
}

static json_t *read_manifest(const char *run) {
    char path[FILES_PATH];
    json_t *manifest;
    path_of(path, run, STEP);
    ck_assert_int_eq(checkpoint_manifest(path, &manifest), 0);
    return manifest;
}

/* The manifests agree in all that they say of the state and its files: their digest leaves out the
 * origin alone. */
static void same_manifests(const char *a, const char *b) {
    json_t *left = read_manifest(a), *right = read_manifest(b);
    ck_assert(json_equal(json_object_get(left, "digest"), json_object_get(right, "digest")));
    ck_assert(!json_equal(json_object_get(left, "origin"), json_object_get(right, "origin")));
    json_decref(left);
    json_decref(right);
}

START_TEST(files_are_those_that_a_save_on_that_grid_would_write) {
    static const int grids[][2] = {{1, 1}, {3, 2}, {7, 4}, {18, 2}};
    ModelCheckpoint made;
    char path[FILES_PATH], tensor[32], data[32];
    scratch_make(scratch);
    make(&made, "source", SETTINGS("ffn.d_ff=40"));
    model_checkpoint_close(&made);
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        snprintf(tensor, sizeof tensor, "grid.tensor=%d", grids[i][0]);
        snprintf(data, sizeof data, "grid.data=%d", grids[i][1]);
        make(&made, "saved", SETTINGS("ffn.d_ff=40", tensor, data));
        model_checkpoint_close(&made);
        int status = reshard("source", "new", grids[i][0], grids[i][1]);
        ck_assert_msg(status == 0, "%s", error_message());
        ck_assert_int_eq(same_files("saved", "new"), grids[i][0] * grids[i][1] + 1);
        same_manifests("saved", "new");
        path_of(path, "new", STEP);
        ck_assert_msg(checkpoint_verify(path) == 0, "%s", error_message());
        status = reshard("new", "back", 4, 2);
        ck_assert_msg(status == 0, "%s", error_message());
        ck_assert_int_eq(same_files("source", "back"), 4 * 2 + 1);
        same_manifests("source", "back");
        static const char *const runs[] = {"saved", "new", "back"};
        for (int r = 0; r < 3; r++) {
            path_of(path, runs[r], "");
            ck_assert_int_eq(files_remove_tree(path), 0);
        }
    }
    ck_assert_int_eq(files_remove_tree(scratch), 0);
}
END_TEST

START_TEST(blocks_of_any_size_make_the_same_files) {
    static const int64_t sizes[] = {1, 37, 200};
    ModelCheckpoint made;
    Reader source;
    Catalog target;
    char from[FILES_PATH], to[FILES_PATH], left[FILES_PATH], right[FILES_PATH];
    scratch_make(scratch);
    make(&made, "source", SETTINGS("grid.tensor=1", "ffn.d_ff=40"));
    model_checkpoint_close(&made);
    make(&made, "saved", SETTINGS("grid.tensor=3", "ffn.d_ff=40"));
    path_of(from, "source", STEP);
    ck_assert_int_eq(reader_open(&source, from), 0);
    ck_assert_int_eq(catalog_from_params(&target, &made.model.set, 3, 2), 0);
    for (int i = 0; i < 3; i++) {
        Hash128 elements;
        Reshard job = {.source = &source, .target = &target, .elements = sizes[i]};
        path_of(to, "new", "");
        ck_assert_int_eq(files_make_directories(to), 0);
        ck_assert_int_eq(reshard_match(&job), 0);
        ck_assert_uint_le(reshard_memory(&job), 2 * 200 * sizeof(real));
        ck_assert_int_eq(reshard_write(&job, to, &elements), 0);
        for (int t = 0; t < 3; t++) {
            for (int d = 0; d < 2; d++) {
                char name[CATALOG_FILE];
                catalog_file_name(t, d, name);
                path_of(left, "saved/" STEP, name);
                path_of(right, "new", name);
                ck_assert_msg(same_bytes(left, right), "%s differs", name);
            }
        }
        free(job.from);
        ck_assert_int_eq(files_remove_tree(to), 0);
    }
    catalog_release(&target);
    reader_close(&source);
    model_checkpoint_close(&made);
    ck_assert_int_eq(files_remove_tree(scratch), 0);
}
END_TEST

START_TEST(the_manifest_tells_of_the_source_and_of_each_reshard) {
    ModelCheckpoint made;
    int from, to;
    const char *text, *note;
    scratch_make(scratch);
    make(&made, "source", SETTINGS(NULL));
    model_checkpoint_close(&made);
    ck_assert_int_eq(reshard("source", "a", 5, 0), 0);
    ck_assert_int_eq(reshard("a", "b", 2, 3), 0);
    json_t *manifest = read_manifest("b");
    json_t *origin = json_object_get(manifest, "origin");
    json_t *list = json_object_get(origin, "resharded");
    ck_assert_uint_eq(json_array_size(list), 2);
    ck_assert_int_eq(json_unpack(json_array_get(list, 1), "{s:{s:i}, s:{s:i}, s:s}", "from",
                                 "tensor", &from, "to", "data", &to, "note", &note),
                     0);
    ck_assert_int_eq(from, 5);
    ck_assert_int_eq(to, 3);
    ck_assert_ptr_nonnull(strstr(note, "state kept exactly"));
    ck_assert_str_eq(json_string_value(json_object_get(origin, "host")), "here");
    text = json_string_value(json_object_get(origin, "config"));
    ck_assert_ptr_nonnull(strstr(text, "[grid]\ntensor = 2\ndata = 3\n"));
    ck_assert_str_eq(json_string_value(json_object_get(manifest, "training_data_digest")),
                     "00112233445566778899aabbccddeeff");
    json_decref(manifest);
    ck_assert_int_eq(files_remove_tree(scratch), 0);
}
END_TEST

START_TEST(values_alone_are_moved_too) {
    ModelCheckpoint made;
    char path[FILES_PATH];
    scratch_make(scratch);
    model_checkpoint_open(&made, SETTINGS(NULL));
    made.model.set.arena[PARAM_MOMENT1] = NULL;
    path_of(path, "source", "");
    model_checkpoint_save(&made, path);
    model_checkpoint_close(&made);
    ck_assert_int_eq(reshard("source", "a", 7, 3), 0);
    path_of(path, "a", STEP);
    ck_assert_int_eq(checkpoint_verify(path), 0);
    ck_assert_int_eq(reshard("a", "b", 4, 2), 0);
    ck_assert_int_eq(same_files("source", "b"), 9);
    ck_assert_int_eq(files_remove_tree(scratch), 0);
}
END_TEST

/* ---- the known row ---- */

static double *widened(const ModelCheckpoint *made, int param) {
    if (param < 0) return NULL;
    const Param *p = &made->model.set.param[param];
    real *whole = model_checkpoint_whole(made, param);
    double *wide = malloc((size_t)(p->rows * p->cols) * sizeof *wide);
    for (int64_t i = 0; i < p->rows * p->cols; i++) wide[i] = (double)whole[i];
    free(whole);
    return wide;
}

/* What the plain loops make of it: y [d_model]. */
static void naive_output(const ModelCheckpoint *made, const Ffn *ffn, const double *x, double *y) {
    double *tensor[] = {widened(made, ffn->gate),    widened(made, ffn->up),
                        widened(made, ffn->down),    widened(made, ffn->gate_bias),
                        widened(made, ffn->up_bias), widened(made, ffn->down_bias)};
    NaiveFfn naive = {.rows = 1,
                      .d_model = ffn->config.d_model,
                      .d_ff = ffn->config.d_ff,
                      .gated = ffn->gate >= 0,
                      .activation = ffn->config.branches.activation->name,
                      .gate = tensor[0],
                      .up = tensor[1],
                      .down = tensor[2],
                      .gate_bias = tensor[3],
                      .up_bias = tensor[4],
                      .down_bias = tensor[5]};
    naive_ffn(&naive, x, y);
    for (int i = 0; i < 6; i++) free(tensor[i]);
}

enum { D_MODEL = 16 };

static void check_output(const char *const *settings) {
    ModelCheckpoint made;
    Reader reader;
    char path[FILES_PATH];
    double wide[D_MODEL], wanted[D_MODEL], found[D_MODEL];
    real x[D_MODEL];
    scratch_make(scratch);
    make(&made, "run", settings);
    for (int i = 0; i < D_MODEL; i++) wide[i] = (double)(x[i] = (real)cos(i));
    path_of(path, "run", STEP);
    ck_assert_int_eq(reader_open(&reader, path), 0);
    for (int layer = 0; layer < 3; layer++) {
        const Ffn *ffn = &made.model.layer[layer].ffn;
        naive_output(&made, ffn, wide, wanted);
        ck_assert_msg(known_row_output(&reader, ffn, x, found) == 0, "%s", error_message());
        for (int i = 0; i < D_MODEL; i++)
            ck_assert_double_eq_tol(found[i], wanted[i], sizeof(real) == 8 ? 1e-14 : 1e-6);
    }
    reader_close(&reader);
    model_checkpoint_close(&made);
    ck_assert_int_eq(files_remove_tree(scratch), 0);
}

START_TEST(the_known_row_comes_out_as_the_plain_loops_say) {
    check_output(SETTINGS("ffn.kind=gated"));
    check_output(SETTINGS("ffn.kind=gated", "ffn.bias=false", "ffn.activation=gelu"));
    check_output(SETTINGS("ffn.kind=dense", "ffn.activation=gelu_tanh", "grid.data=1"));
    check_output(SETTINGS("ffn.kind=dense", "ffn.bias=false", "grid.tensor=7", "grid.data=3"));
    check_output(SETTINGS("ffn.kind=gated", "ffn.activation=relu", "grid.tensor=31"));
    check_output(SETTINGS("grid.tensor=1", "grid.data=1"));
}
END_TEST

/* Compares the runs a and b through the FFNs of `made`. */
static int compare(const ModelCheckpoint *made, const char *a, const char *b) {
    Reader left, right;
    char path[FILES_PATH];
    path_of(path, a, STEP);
    ck_assert_int_eq(reader_open(&left, path), 0);
    path_of(path, b, STEP);
    ck_assert_int_eq(reader_open(&right, path), 0);
    int status = known_row_compare(&left, &right, &made->model);
    reader_close(&left);
    reader_close(&right);
    return status;
}

/* ---- wrong cuts ---- */

/* Changes the pieces of one tensor in the catalog of a checkpoint, and leaves it sound. */
typedef void (*Recut)(Catalog *catalog, int tensor);

static void recut_role(Catalog *catalog, int role, int tensor, CatalogEntry *list[SHARD_MAX]) {
    int count = 0;
    for (int64_t i = 0; i < catalog->entries; i++)
        if (catalog->entry[i].tensor == tensor && catalog->entry[i].role == role)
            list[count++] = &catalog->entry[i];
    ck_assert_int_eq(count, 4);
}

/* Shard i's rows lie in the file of shard i - 1, and the first's in the last. */
static void take_the_neighbours(Catalog *catalog, int tensor) {
    for (int role = 0; role < catalog->roles; role++) {
        CatalogEntry *list[SHARD_MAX];
        recut_role(catalog, role, tensor, list);
        ParamPiece first = list[0]->piece;
        for (int i = 0; i < 3; i++) list[i]->piece = list[i + 1]->piece;
        list[3]->piece = first;
    }
}

/* All shards begin one row later but the first. */
static void move_by_one(Catalog *catalog, int tensor) {
    for (int role = 0; role < catalog->roles; role++) {
        CatalogEntry *list[SHARD_MAX];
        recut_role(catalog, role, tensor, list);
        list[0]->piece.rows++;
        for (int i = 1; i < 4; i++) list[i]->piece.row++;
        list[3]->piece.rows--;
    }
}

static void complete_again(Catalog *catalog) {
    size_t count = (size_t)catalog->tensors * CATALOG_ROLES + 1;
    memset(catalog->first, 0, count * sizeof *catalog->first);
    ck_assert_msg(catalog_complete(catalog) == 0, "%s", error_message());
}

/* A checkpoint `to` with the tensors of `from`, in whose files those of the layer's gate are cut in
 * another way than its up's. Every number is in its global place: it verifies. */
static void recut(ModelCheckpoint *made, int layer, const char *from, const char *to, Recut how) {
    char path[FILES_PATH];
    Reader source;
    Catalog target;
    Hash128 elements, fingerprint;
    path_of(path, from, STEP);
    ck_assert_int_eq(reader_open(&source, path), 0);
    ck_assert_int_eq(catalog_from_params(&target, &made->model.set, 4, 1), 0);
    const Param *gate = &made->model.set.param[made->model.layer[layer].ffn.gate];
    how(&target, catalog_find(&target, gate->name));
    complete_again(&target);
    Reshard job = {.source = &source, .target = &target, .elements = RESHARD_ELEMENTS};
    ck_assert_int_eq(reshard_match(&job), 0);
    path_of(path, to, STEP);
    ck_assert_int_eq(files_make_directories(path), 0);
    ck_assert_int_eq(reshard_write(&job, path, &elements), 0);
    ck_assert_int_eq(fingerprint_identity(&target, made->function, 3, 288, &fingerprint), 0);
    json_t *manifest = manifest_assemble(&target, &made->state, hash_add(fingerprint, elements));
    ck_assert_ptr_nonnull(manifest);
    ck_assert_int_eq(manifest_write(manifest, path), 0);
    ck_assert_msg(checkpoint_verify(path) == 0, "%s", error_message());
    json_decref(manifest);
    free(job.from);
    catalog_release(&target);
    reader_close(&source);
}

START_TEST(wrong_pairs_verify_but_not_by_the_known_row) {
    ModelCheckpoint made;
    scratch_make(scratch);
    make(&made, "good", SETTINGS("grid.data=1"));
    ck_assert_int_eq(compare(&made, "good", "good"), 0);
    recut(&made, 1, "good", "neighbours", take_the_neighbours);
    ck_assert_int_eq(compare(&made, "good", "neighbours"), WEFT_CHECK);
    ck_assert_ptr_nonnull(strstr(error_message(), "the FFN of layer 1 takes a known row to"));
    ck_assert_int_eq(compare(&made, "neighbours", "good"), WEFT_CHECK);
    recut(&made, 2, "good", "moved", move_by_one);
    ck_assert_int_eq(compare(&made, "good", "moved"), WEFT_CHECK);
    ck_assert_ptr_nonnull(strstr(error_message(), "through the FFN of layer 2: "));
    ck_assert_ptr_nonnull(
        strstr(error_message(), "shard 0 of model.layers.2.mlp.gate_proj.weight is [4, 16]"));

    /* a reshard of such a checkpoint makes nothing */
    ck_assert_int_eq(reshard("neighbours", "new", 3, 0), WEFT_RUNTIME);
    ck_assert(strstr(error_message(), "nothing is published") && nothing_is_left());
    ck_assert(reshard("moved", "new", 3, 0) == WEFT_RUNTIME && nothing_is_left());
    ck_assert_int_eq(reshard("good", "new", 3, 0), 0);
    ck_assert(exists("new", "config.ini") && exists("new", STEP) && !exists("new", ".claim"));
    model_checkpoint_close(&made);
    ck_assert_int_eq(files_remove_tree(scratch), 0);
}
END_TEST

/* [gate; up] cut as one matrix: the first half of the shards gets gate rows alone. Each halves what
 * it has and takes the first half for its gate. */
static void cut_as_one(ModelCheckpoint *made, const Ffn *ffn) {
    int64_t rows = ffn->config.d_ff, cols = ffn->config.d_model, half = rows / 4 / 2;
    real *gate = model_checkpoint_whole(made, ffn->gate),
         *up = model_checkpoint_whole(made, ffn->up);
    real *packed = malloc((size_t)(2 * rows * cols) * sizeof *packed);
    memcpy(packed, gate, (size_t)(rows * cols) * sizeof *packed);
    memcpy(packed + rows * cols, up, (size_t)(rows * cols) * sizeof *packed);
    for (int64_t r = 0; r < rows; r++) {
        int64_t shard = r / (2 * half), in_shard = r % (2 * half);
        const real *from = packed + (shard * 4 * half + in_shard) * cols;
        memcpy(gate + r * cols, from, (size_t)cols * sizeof *gate);
        memcpy(up + r * cols, from + 2 * half * cols, (size_t)cols * sizeof *up);
    }
    model_checkpoint_put(made, ffn->gate, gate);
    model_checkpoint_put(made, ffn->up, up);
    free(gate);
    free(up);
    free(packed);
}

START_TEST(a_packed_matrix_cut_as_one_is_seen) {
    ModelCheckpoint made;
    char path[FILES_PATH];
    scratch_make(scratch);
    make(&made, "good", SETTINGS("ffn.d_ff=16"));
    cut_as_one(&made, &made.model.layer[0].ffn);
    path_of(path, "packed", "");
    model_checkpoint_save(&made, path);
    ck_assert_int_eq(compare(&made, "good", "packed"), WEFT_CHECK);
    ck_assert_ptr_nonnull(strstr(error_message(), "the FFN of layer 0 takes"));
    model_checkpoint_close(&made);
    ck_assert_int_eq(files_remove_tree(scratch), 0);
}
END_TEST

/* ---- refusals ---- */

START_TEST(impossible_requests_are_refused_by_name) {
    ModelCheckpoint made;
    static const struct {
        const char *from, *to;
        int tensor, data, status;
        const char *text;
    } request[] = {
        {"source", "source", 3, 0, WEFT_USAGE, "exists already"},
        {"source", "nowhere/new", 3, 0, WEFT_USAGE, "there is no directory"},
        {"source", "new", 65, 0, WEFT_USAGE, "at most 64"},
        {"source", "new", 3, 65, WEFT_USAGE, "at most 64"},
        {"source", "new", 3, 5, WEFT_USAGE, "train.global_batch = 12 is not a multiple"},
        {"source", "new ;x", 3, 0, WEFT_USAGE, "no config can say this"},
        {"none", "new", 3, 0, WEFT_INPUT, "no such directory"},
        {".", "new", 3, 0, WEFT_INPUT, "there is no checkpoint in it"},
    };
    scratch_make(scratch);
    make(&made, "source", SETTINGS("ffn.d_ff=40"));
    model_checkpoint_close(&made);
    for (size_t i = 0; i < sizeof request / sizeof *request; i++) {
        int status = reshard(request[i].from, request[i].to, request[i].tensor, request[i].data);
        ck_assert_int_eq(status, request[i].status);
        ck_assert_msg(strstr(error_message(), request[i].text), "\"%s\" doesn't say \"%s\"",
                      error_message(), request[i].text);
        ck_assert(nothing_is_left());
    }
    ck_assert_int_eq(files_remove_tree(scratch), 0);
}
END_TEST

START_TEST(a_config_of_another_function_is_refused) {
    ModelCheckpoint made, other;
    scratch_make(scratch);
    model_checkpoint_open(&made, SETTINGS(NULL));
    model_checkpoint_declare(&other, SETTINGS("ffn.activation=relu"));
    json_object_set(made.origin, "config", json_object_get(other.origin, "config"));
    char path[FILES_PATH];
    path_of(path, "source", "");
    model_checkpoint_save(&made, path);
    ck_assert_int_eq(reshard("source", "new", 3, 0), WEFT_INPUT);
    ck_assert_ptr_nonnull(strstr(error_message(), "ffn.activation"));
    ck_assert(nothing_is_left());
    model_checkpoint_close(&made);
    model_checkpoint_close(&other);
    ck_assert_int_eq(files_remove_tree(scratch), 0);
}
END_TEST

int main(void) {
    return run_suite(
        "reshard",
        TESTS(files_are_those_that_a_save_on_that_grid_would_write,
              blocks_of_any_size_make_the_same_files,
              the_manifest_tells_of_the_source_and_of_each_reshard, values_alone_are_moved_too,
              the_known_row_comes_out_as_the_plain_loops_say,
              wrong_pairs_verify_but_not_by_the_known_row, a_packed_matrix_cut_as_one_is_seen,
              impossible_requests_are_refused_by_name, a_config_of_another_function_is_refused));
}
