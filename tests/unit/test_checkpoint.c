/* Checkpoints in one process: what is written, restored and told. Damage is in
 * test_checkpoint_damage.c. */
#include "base/error.h"
#include "base/files.h"
#include "support/checkpoint_pattern.h"
#include "support/support.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static SerialRun run;

static Hash128 live_fingerprint(void) {
    Hash128 hash;
    ck_assert_int_eq(checkpoint_fingerprint(&run.grid, &run.model.set, &run.model.state, &hash), 0);
    return hash;
}

static real *element(const char *name, ParamRole role, int64_t i) {
    const Param *param = &run.model.set.param[params_find(&run.model.set, name)];
    return param_shard(&run.model.set, param, role, 0).data + i;
}

START_TEST(what_is_saved_verifies_and_is_restored) {
    char path[FILES_PATH];
    serial_begin(&run);
    serial_save(&run, 12, 0);
    serial_path(&run, 12, "", path);
    ck_assert_int_eq(checkpoint_verify(path), 0);
    PatternModel other;
    pattern_open(&other, &run.grid, 8, 3);
    ck_assert_int_gt(pattern_mismatches(&other), 0);
    ck_assert_int_eq(checkpoint_load(&run.grid, &other.set, path), 0);
    ck_assert_int_eq(pattern_mismatches(&other), 0);
    pattern_close(&other);
    serial_end(&run);
}
END_TEST

START_TEST(any_logical_grid_loads_into_any_other) {
    static const int grids[][2] = {{8, 3}, {1, 1}, {3, 2}, {7, 5}, {12, 1}};
    enum { GRIDS = sizeof grids / sizeof *grids };
    char path[FILES_PATH];
    serial_begin(&run);
    for (int from = 0; from < GRIDS; from++) {
        PatternModel saved, loaded;
        pattern_open(&saved, &run.grid, grids[from][0], grids[from][1]);
        pattern_fill(&saved);
        saved.state.step = from;
        ck_assert_int_eq(checkpoint_save(&run.grid, &saved.set, &saved.state, run.run_dir), 0);
        serial_path(&run, from, "", path);
        ck_assert_int_eq(checkpoint_verify(path), 0);
        for (int to = 0; to < GRIDS; to++) {
            pattern_open(&loaded, &run.grid, grids[to][0], grids[to][1]);
            ck_assert_int_eq(checkpoint_load(&run.grid, &loaded.set, path), 0);
            ck_assert_int_eq(pattern_mismatches(&loaded), 0);
            pattern_close(&loaded);
        }
        pattern_close(&saved);
    }
    serial_end(&run);
}
END_TEST

START_TEST(files_do_not_know_the_time) {
    char first[FILES_PATH], again[FILES_PATH], other_run[SCRATCH_PATH];
    FileNames names;
    serial_begin(&run);
    serial_save(&run, 12, 0);
    sleep(2); /* the object times of HDF5 are whole seconds */
    memcpy(other_run, run.run_dir, sizeof other_run);
    scratch_make(run.run_dir);
    serial_save(&run, 12, 0);
    serial_path(&run, 12, "", again);
    ck_assert_int_eq(files_list(again, &names), 0);
    ck_assert_int_eq(names.count, 8 * 3 + 2);
    for (int i = 0; i < names.count; i++) {
        serial_path(&run, 12, names.name[i], again);
        snprintf(first, sizeof first, "%s/step-00000012/%s", other_run, names.name[i]);
        ck_assert_msg(same_bytes(first, again), "%s differs", names.name[i]);
    }
    files_names_release(&names);
    ck_assert_int_eq(files_remove_tree(other_run), 0);
    serial_end(&run);
}
END_TEST

START_TEST(the_manifest_has_the_live_fingerprint) {
    char path[FILES_PATH], text[HASH_TEXT];
    json_t *manifest;
    serial_begin(&run);
    serial_save(&run, 12, 0);
    serial_path(&run, 12, "", path);
    ck_assert_int_eq(checkpoint_manifest(path, &manifest), 0);
    hash_format(live_fingerprint(), text);
    ck_assert_str_eq(json_string_value(json_object_get(manifest, "fingerprint")), text);
    json_decref(manifest);
    serial_end(&run);
}
END_TEST

START_TEST(the_fingerprint_sees_one_ulp_a_swap_and_the_function) {
    serial_begin(&run);
    Hash128 plain = live_fingerprint();
    for (int role = 0; role < PARAM_ROLES; role++) {
        real *one = element(PATTERN_GATE, (ParamRole)role, 2), kept = *one;
        *one = sizeof(real) == 8 ? (real)nextafter((double)*one, 1e9)
                                 : (real)nextafterf((float)*one, 1e9f);
        bool seen = !hash_equal(live_fingerprint(), plain);
        ck_assert_int_eq(seen, role != PARAM_GRADIENT);
        *one = kept;
    }
    real *a = element(PATTERN_UP, PARAM_VALUE, 0), *b = element(PATTERN_UP, PARAM_VALUE, 5),
         kept = *a;
    *a = *b, *b = kept;
    ck_assert(!hash_equal(live_fingerprint(), plain));
    *b = *a, *a = kept;
    ck_assert(hash_equal(live_fingerprint(), plain));
    a = element(PATTERN_GATE, PARAM_MOMENT1, 1), b = element(PATTERN_GATE, PARAM_MOMENT2, 1),
    kept = *a;
    *a = *b, *b = kept;
    ck_assert(!hash_equal(live_fingerprint(), plain));
    *b = *a, *a = kept;
    a = element(PATTERN_GATE, PARAM_VALUE, 1), kept = *a; /* -0 is another state than +0 */
    *a = 0;
    Hash128 zero = live_fingerprint();
    *a = -*a;
    ck_assert(!hash_equal(live_fingerprint(), zero));
    *a = kept;

    run.model.state.step++;
    ck_assert(!hash_equal(live_fingerprint(), plain));
    run.model.state.step--;
    run.model.state.tokens++;
    ck_assert(!hash_equal(live_fingerprint(), plain));
    run.model.state.tokens--;
    json_object_set_new(run.model.function, "kind", json_string("mlp"));
    ck_assert(!hash_equal(live_fingerprint(), plain));
    json_object_set_new(run.model.function, "kind", json_string("decoder"));
    ck_assert(hash_equal(live_fingerprint(), plain));
    serial_end(&run);
}
END_TEST

START_TEST(the_fingerprint_knows_no_grid_no_details_and_no_origin) {
    serial_begin(&run);
    Hash128 plain = live_fingerprint();
    json_object_set_new(run.model.details, "reduction", json_string("allreduce"));
    json_object_set_new(run.model.origin, "host", json_string("elsewhere"));
    ck_assert(hash_equal(live_fingerprint(), plain));
    for (int tensor = 1; tensor < 9; tensor++) {
        for (int data = 1; data < 4; data++) {
            Hash128 found;
            PatternModel other;
            pattern_open(&other, &run.grid, tensor, data);
            pattern_fill(&other);
            ck_assert_int_eq(checkpoint_fingerprint(&run.grid, &other.set, &other.state, &found),
                             0);
            ck_assert(hash_equal(found, plain));
            pattern_close(&other);
        }
    }
    serial_end(&run);
}
END_TEST

/* The view through other eyes than weft's: `h5dump` prints one number a line, which must be the
 * pattern. */
static void check_h5dump(const char *dataset, int tensor, ParamRole role, int64_t cells) {
    char path[FILES_PATH], command[FILES_PATH + 256], line[256];
    serial_path(&run, 12, "checkpoint.h5", path);
    snprintf(command, sizeof command, "h5dump -y -w 1 -m %%.1f -d '%s' '%s'", dataset, path);
    FILE *dump = popen(command, "r");
    ck_assert_ptr_nonnull(dump);
    int64_t seen = 0;
    bool data = false;
    while (fgets(line, sizeof line, dump)) {
        char *end;
        double value = strtod(line, &end);
        if (data && end != line && seen < cells)
            ck_assert_double_eq(value, (double)pattern_value(tensor, role, seen++));
        if (strstr(line, "DATA {")) data = true;
        if (strchr(line, '}')) data = false;
    }
    ck_assert_int_eq(pclose(dump), 0);
    ck_assert_msg(seen == cells, "%s: %d of %d numbers", dataset, (int)seen, (int)cells);
}

START_TEST(h5dump_shows_whole_tensors) {
    static const ParamRole roles[] = {PARAM_VALUE, PARAM_MOMENT1, PARAM_MOMENT2};
    static const char *const groups[] = {"/", "/moment1/", "/moment2/"};
    serial_begin(&run);
    serial_save(&run, 12, 0);
    for (int i = 0; i < run.model.set.count; i++) {
        for (int r = 0; r < 3; r++) {
            char dataset[PARAM_NAME + 16];
            const Param *param = &run.model.set.param[i];
            snprintf(dataset, sizeof dataset, "%s%s", groups[r], param->name);
            check_h5dump(dataset, i, roles[r], param->rows * param->cols);
        }
    }
    serial_end(&run);
}
END_TEST

START_TEST(inspect_ends_with_the_fingerprint) {
    Capture capture;
    char path[FILES_PATH], hash[HASH_TEXT], expected[128];
    serial_begin(&run);
    serial_save(&run, 12, 0);
    serial_path(&run, 12, "", path);
    capture_begin(&capture, 1);
    int status = checkpoint_inspect(path, true);
    char *text = capture_end(&capture);
    ck_assert_int_eq(status, 0);
    hash_format(live_fingerprint(), hash);
    snprintf(expected, sizeof expected, "\nfingerprint %s step 12\n", hash);
    ck_assert_ptr_nonnull(strstr(text, expected));
    ck_assert_str_eq(strstr(text, expected) + strlen(expected), "");
    for (int i = 0; i < run.model.set.count; i++)
        ck_assert_ptr_nonnull(strstr(text, run.model.set.param[i].name));
    ck_assert_ptr_nonnull(strstr(text, PATTERN_GATE " " REAL_NAME " [11, 8] axis 0 in 8 shards"));
    ck_assert_ptr_nonnull(strstr(text, "\nfunction.ffn.hidden_dropout = 0.1\n"));
    ck_assert_ptr_nonnull(strstr(text, "shard-t007-d002.h5 moment2"));
    free(text);
    serial_end(&run);
}
END_TEST

START_TEST(differences_name_nested_keys) {
    json_t *a = json_pack("{s:s, s:{s:s, s:i, s:b}, s:[i,i]}", "kind", "decoder", "ffn",
                          "activation", "silu", "d_ff", 172, "bias", 1, "list", 1, 2);
    json_t *b = json_pack("{s:s, s:{s:s, s:i, s:f}, s:[i,i]}", "kind", "decoder", "ffn",
                          "activation", "gelu_tanh", "d_ff", 172, "dropout", 0.5, "list", 1, 3);
    char *text = checkpoint_differences(a, b);
    ck_assert_str_eq(text, "ffn.activation: checkpoint silu, config gelu_tanh\n"
                           "ffn.bias: checkpoint true, config has none\n"
                           "ffn.dropout: checkpoint has none, config 0.5\n"
                           "list: checkpoint [1,2], config [1,3]");
    free(text);
    ck_assert_ptr_null(checkpoint_differences(a, a));
    json_decref(a);
    json_decref(b);
}
END_TEST

START_TEST(another_model_is_refused_by_name) {
    char path[FILES_PATH];
    PatternModel other;
    int index;
    serial_begin(&run);
    serial_save(&run, 12, 0);
    serial_path(&run, 12, "", path);
    pattern_open(&other, &run.grid, 8, 3);
    other.set.param[3].rows = 12; /* the catalog's shape is compared before any data is read */
    ck_assert_int_eq(checkpoint_load(&run.grid, &other.set, path), WEFT_INPUT);
    ck_assert_ptr_nonnull(strstr(error_message(), PATTERN_UP " is [11, 8]"));
    other.set.param[3].rows = 11;
    memcpy(other.set.param[2].name, "other", 6);
    ck_assert_int_eq(checkpoint_load(&run.grid, &other.set, path), WEFT_INPUT);
    ck_assert_ptr_nonnull(strstr(error_message(), PATTERN_GATE " isn't in the configured model"));
    memcpy(other.set.param[2].name, PATTERN_GATE, sizeof PATTERN_GATE);
    ParamSpec extra = {.name = "extra.weight", .rank = 1, .rows = 1, .cols = 4, .unit_size = 1};
    ck_assert_int_eq(params_declare(&other.set, &extra, &index), 0);
    ck_assert_int_eq(checkpoint_load(&run.grid, &other.set, path), WEFT_INPUT);
    ck_assert_ptr_nonnull(
        strstr(error_message(), "extra.weight of the configured model is missing"));
    pattern_close(&other);
    serial_end(&run);
}
END_TEST

START_TEST(values_alone_can_be_saved_but_not_trained_on) {
    char path[FILES_PATH];
    serial_begin(&run);
    real *moment1 = run.model.set.arena[PARAM_MOMENT1];
    run.model.set.arena[PARAM_MOMENT1] = NULL;
    serial_save(&run, 12, 0);
    serial_path(&run, 12, "", path);
    ck_assert_int_eq(checkpoint_verify(path), 0);
    ck_assert_int_eq(checkpoint_load(&run.grid, &run.model.set, path), 0);
    run.model.set.arena[PARAM_MOMENT1] = moment1;
    ck_assert_int_eq(checkpoint_load(&run.grid, &run.model.set, path), WEFT_INPUT);
    ck_assert_ptr_nonnull(strstr(error_message(), "no optimizer moments"));
    serial_end(&run);
}
END_TEST

int main(void) {
    return run_suite(
        "checkpoint",
        TESTS(what_is_saved_verifies_and_is_restored, any_logical_grid_loads_into_any_other,
              files_do_not_know_the_time, the_manifest_has_the_live_fingerprint,
              the_fingerprint_sees_one_ulp_a_swap_and_the_function,
              the_fingerprint_knows_no_grid_no_details_and_no_origin, h5dump_shows_whole_tensors,
              inspect_ends_with_the_fingerprint, differences_name_nested_keys,
              another_model_is_refused_by_name, values_alone_can_be_saved_but_not_trained_on));
}
