/* A manifest that was edited, with its own digest set right again: every field is checked before it
 * is used. */
#include "base/error.h"
#include "checkpoint/manifest.h"
#include "support/checkpoint_pattern.h"
#include "support/manifest_edit.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static SerialRun run;
static char directory[FILES_PATH];
static json_t *original;

static void begin(void) {
    serial_begin(&run);
    serial_save(&run, 12, 0);
    serial_path(&run, 12, "", directory);
    ck_assert_int_eq(checkpoint_manifest(directory, &original), 0);
}

static void end(void) {
    json_decref(original);
    serial_end(&run);
}

static void edit(const char *path, json_t *value) {
    manifest_edit(directory, original, path, value);
}

static void expect_refused(const char *what, const char *expected) {
    json_t *manifest;
    ck_assert_msg(checkpoint_manifest(directory, &manifest) == WEFT_INPUT, "%s", what);
    ck_assert_ptr_null(manifest);
    ck_assert_msg(strstr(error_message(), "manifest.json: ") != NULL, "%s", error_message());
    ck_assert_msg(strstr(error_message(), expected) != NULL, "%s: not in \"%s\": %s", what,
                  error_message(), expected);
}

START_TEST(missing_and_mistyped_fields_are_named) {
    static const char *const fields[] = {"format",
                                         "version",
                                         "step",
                                         "tokens",
                                         "grid",
                                         "grid/tensor",
                                         "grid/data",
                                         "function",
                                         "tensors",
                                         "tensors/3/name",
                                         "tensors/3/shape",
                                         "tensors/3/axis",
                                         "tensors/3/shards",
                                         "tensors/3/dtype",
                                         "shards",
                                         "shards/40/file",
                                         "shards/40/dataset",
                                         "shards/40/role",
                                         "shards/40/tensor",
                                         "shards/40/offset",
                                         "shards/40/count",
                                         "shards/40/digest",
                                         "view",
                                         "view/digest",
                                         "fingerprint",
                                         "origin"};
    begin();
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char expected[80];
        const char *slash = strrchr(fields[i], '/');
        snprintf(expected, sizeof expected, "field %s is missing", slash ? slash + 1 : fields[i]);
        if (strcmp(fields[i], "origin")) {
            edit(fields[i], NULL);
            expect_refused(fields[i], expected);
        }
        snprintf(expected, sizeof expected, "field %s isn't", slash ? slash + 1 : fields[i]);
        edit(fields[i], json_true());
        expect_refused(fields[i], expected);
    }
    end();
}
END_TEST

START_TEST(impossible_values_are_named) {
    static const struct {
        const char *path, *json, *expected;
    } rows[] = {
        {"format", "\"safetensors\"", "format is \"safetensors\""},
        {"version", "2", "field version is 2, allowed are 1 to 1"},
        {"step", "-1", "field step is -1"},
        {"step", "1.0", "field step isn't an integer"},
        {"tokens", "-5", "field tokens is -5"},
        {"grid/tensor", "0", "field tensor is 0"},
        {"grid/tensor", "65", "field tensor is 65"},
        {"grid/data", "4294967297", "field data is 4294967297"},
        {"grid/data", "2", "the tensor has"},
        {"fingerprint", "\"xyz\"", "field fingerprint: \"xyz\""},
        {"tensors/3", "7", "field name is missing"},
        {"tensors/3/name", "\"\"", "not a name"},
        {"tensors/3/name", "\"a/b\"", "not a name"},
        {"tensors/3/name", "\"model.norm.weight\"",
         "model.norm.weight: not a name, or there twice"},
        {"tensors/3/shape", "[11, 8, 1]", "neither vector nor matrix"},
        {"tensors/3/shape", "[]", "neither vector nor matrix"},
        {"tensors/3/shape", "[11, -8]", "field shape"},
        {"tensors/3/shape", "[11, 0]", "impossible shape"},
        {"tensors/3/shape", "[4611686018427387904, 4]", "impossible shape"},
        {"tensors/3/shape", "[12, 8]", "cover 88 of 96 cells"},
        {"tensors/3/shape", "[10, 8]", "reaches outside"},
        {"tensors/3/axis", "2", "field axis is 2"},
        {"tensors/3/shards", "9", "field shards is 9"},
        {"tensors/3/shards", "4", "the tensor has 4 shards"},
        {"tensors/3/dtype", "\"bfloat16\"", "dtype is bfloat16"},
        {"shards/0/file", "\"../shard-t000-d000.h5\"", "no name of a shard file"},
        {"shards/0/file", "\"shard-t0-d0.h5\"", "no name of a shard file"},
        {"shards/0/file", "\"shard-t-01-d000.h5\"", "no name of a shard file"},
        {"shards/0/file", "\"shard-t000-d001.h5\"", "out of order"},
        {"shards/0/role", "\"gradient\"", "no role gradient"},
        {"shards/0/tensor", "\"nothing\"", "no tensor nothing"},
        {"shards/0/dataset", "\"value/other\"", "dataset is value/other"},
        {"shards/0/offset", "[1]", "field offset doesn't have 2 numbers"},
        {"shards/0/offset", "[0, 0.5]", "field offset"},
        {"shards/0/offset", "[9223372036854775807, 0]", "reaches outside"},
        {"shards/0/offset", "[1, 0]", "lies in two pieces"},
        {"shards/0/count", "[9223372036854775807, 8]", "reaches outside"},
        {"shards/0/count", "[0, 8]", "reaches outside"},
        {"shards/0/digest", "\"00\"", "field digest"},
        {"shards/0", "null", "field file is missing"},
    };
    begin();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *value = json_loads(rows[i].json, JSON_DECODE_ANY, NULL);
        ck_assert_ptr_nonnull(value);
        edit(rows[i].path, value);
        expect_refused(rows[i].json, rows[i].expected);
    }
    edit("shards/17", NULL);
    expect_refused("piece", "cells");
    end();
}
END_TEST

START_TEST(an_edit_without_its_digest_is_seen) {
    static const char *const paths[] = {"optimizer/lr", "function/kind", "origin/tp", "step"};
    begin();
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        json_t *manifest = json_deep_copy(original);
        manifest_put(manifest, paths[i], json_integer(99));
        ck_assert_int_eq(manifest_write(manifest, directory), 0);
        expect_refused(paths[i], "its own digest doesn't match");
        json_decref(manifest);
    }
    end();
}
END_TEST

/* Well-formed, but not what the data are. */
START_TEST(verify_compares_manifest_and_data) {
    static const struct {
        const char *path, *json, *expected;
    } rows[] = {
        {"shards/0/digest", "\"00000000000000000000000000000000\"", "shard-t000-d000.h5: dataset "},
        {"fingerprint", "\"00000000000000000000000000000000\"", "fingerprint is 0000"},
        {"function/kind", "\"mlp\"", "fingerprint is"},
        {"step", "13", "is of step 13"},
        {"tokens", "13", "fingerprint is"},
        {"tensors/3/axis", "1", "attribute axis"},
    };
    Capture capture;
    begin();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        edit(rows[i].path, json_loads(rows[i].json, JSON_DECODE_ANY, NULL));
        capture_begin(&capture, 2);
        int status = checkpoint_verify(directory);
        free(capture_end(&capture));
        ck_assert_int_eq(status, WEFT_CHECK);
        ck_assert_msg(strstr(error_message(), rows[i].expected) != NULL, "%s", error_message());
    }
    edit("optimizer/lr", json_real(0.5)); /* not ours to judge */
    ck_assert_int_eq(checkpoint_verify(directory), 0);
    end();
}
END_TEST

/* Sizes that a hostile manifest agrees on with itself are still not those of the file. */
START_TEST(claimed_sizes_allocate_nothing) {
    Capture capture;
    begin();
    json_t *manifest = json_deep_copy(original), *shard;
    size_t i, tensors = json_array_size(json_object_get(manifest, "tensors"));
    json_t *table = json_array_get(json_object_get(manifest, "tensors"), tensors - 1);
    json_object_set_new(table, "shape", json_pack("[I, I]", (json_int_t)1 << 40, (json_int_t)3));
    json_array_foreach(json_object_get(manifest, "shards"), i, shard) {
        json_t *count = json_object_get(shard, "count"), *offset = json_object_get(shard, "offset");
        if (strcmp(json_string_value(json_object_get(shard, "tensor")), "model.table.weight"))
            continue;
        if (json_integer_value(json_array_get(offset, 0)) == 3) /* the last of 1, 2 and 2 rows */
            json_array_set_new(count, 0, json_integer(((json_int_t)1 << 40) - 3));
    }
    ck_assert_int_eq(manifest_seal(manifest), 0);
    ck_assert_int_eq(manifest_write(manifest, directory), 0);
    capture_begin(&capture, 2);
    int status = checkpoint_verify(directory);
    free(capture_end(&capture));
    ck_assert_int_eq(status, WEFT_CHECK);
    ck_assert_msg(strstr(error_message(), "dataset value/model.table.weight: ") != NULL, "%s",
                  error_message());
    ck_assert_int_eq(checkpoint_load(&run.grid, &run.model.set, directory), WEFT_INPUT);
    ck_assert_ptr_nonnull(strstr(error_message(), "model.table.weight"));
    json_decref(manifest);
    end();
}
END_TEST

int main(void) {
    return run_suite("manifest",
                     TESTS(missing_and_mistyped_fields_are_named, impossible_values_are_named,
                           an_edit_without_its_digest_is_seen, verify_compares_manifest_and_data,
                           claimed_sizes_allocate_nothing));
}
