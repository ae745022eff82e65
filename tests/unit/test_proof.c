/* proof.json from anybody's hands, and how two records of a step are told apart. */
#include "base/error.h"
#include "base/files.h"
#include "checkpoint/proof_file.h"
#include "run/record.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HASH_A "00112233445566778899aabbccddeeff"
#define HASH_B "ffeeddccbbaa99887766554433221100"

static char root[64], directory[FILES_PATH];
static json_t *proof;

static json_t *state(int64_t step) {
    return json_pack("{s:I, s:s, s:{s:s, s:s, s:s}}", "step", (json_int_t)step, "fingerprint",
                     HASH_A, "tensors", "value/embed", HASH_A, "value/norm", HASH_A,
                     "moment1/embed", HASH_A);
}

static json_t *step_record(int64_t step) {
    json_t *record = state(step);
    json_t *rest = json_pack("{s:[i, i], s:s, s:s, s:s, s:f}", "samples", 7, 3, "loss", "0x1.8p+1",
                             "grad_norm", "0x1p+0", "lr", "0x1.8p-9", "loss_decimal", 3.0);
    json_object_update(record, rest);
    json_decref(rest);
    return record;
}

static void begin(void) {
    snprintf(root, sizeof root, "/tmp/weft-proof-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    files_join(directory, sizeof directory, root, "step-00000004");
    ck_assert_int_eq(files_make_directories(directory), 0);
    proof = proof_file_begin(4, state(4), "[run]\n", "a machine", "tp 1 x dp 1", (Hash128){1, 2});
    ck_assert_ptr_nonnull(proof);
    for (int64_t step = 5; step <= 6; step++)
        json_array_append_new(json_object_get(proof, "steps"), step_record(step));
}

static void end(void) {
    json_decref(proof);
    files_remove_tree(root);
}

static void expect_refused(const char *what, const char *expected) {
    json_t *read;
    ck_assert_msg(proof_file_read(directory, &read) == WEFT_INPUT, "%s: read", what);
    ck_assert_ptr_null(read);
    ck_assert_msg(strstr(error_message(), "/proof.json: ") && strstr(error_message(), expected),
                  "%s: \"%s\" not in \"%s\"", what, expected, error_message());
}

START_TEST(what_is_written_is_read) {
    json_t *read;
    FileNames names;
    begin();
    ck_assert(!proof_file_exists(directory));
    ck_assert_int_eq(proof_file_write(proof, directory), 0);
    ck_assert(proof_file_exists(directory));
    ck_assert_int_eq(proof_file_read(directory, &read), 0);
    ck_assert(json_equal(read, proof));
    json_decref(read);
    ck_assert_int_eq(files_list(root, &names), 0);
    ck_assert_int_eq(names.count, 1); /* nothing unfinished is left beside it */
    files_names_release(&names);
    end();
}
END_TEST

START_TEST(a_directory_that_is_gone_is_an_error_without_debris) {
    FileNames names;
    begin();
    ck_assert_int_eq(files_remove_tree(directory), 0);
    ck_assert_int_eq(proof_file_write(proof, directory), WEFT_RUNTIME);
    ck_assert_int_eq(files_list(root, &names), 0);
    ck_assert_int_eq(names.count, 0);
    files_names_release(&names);
    end();
}
END_TEST

/* One character of the file at a time, wherever it says something. */
START_TEST(every_changed_character_is_seen) {
    char path[FILES_PATH], *text;
    size_t size, seen = 0;
    json_t *read;
    begin();
    ck_assert_int_eq(proof_file_write(proof, directory), 0);
    files_join(path, sizeof path, directory, PROOF_FILE);
    ck_assert_int_eq(files_read(path, 1 << 20, &text, &size), 0);
    for (size_t i = 0; i < size; i++) {
        if (strchr(" \n", text[i])) continue; /* means nothing between tokens */
        text[i] ^= 1;
        FILE *file = fopen(path, "wb");
        fwrite(text, 1, size, file);
        fclose(file);
        int status = proof_file_read(directory, &read);
        ck_assert_msg(status == WEFT_INPUT, "character %zu: %s", i, text);
        text[i] ^= 1;
        seen++;
    }
    ck_assert_int_gt(seen, 500);
    free(text);
    end();
}
END_TEST

/* Edited, with the digest set right again. */
typedef struct {
    const char *object, *key; /* "": the proof; "start"; "0", "1": a step */
    const char *json;         /* the new value; NULL: the field is taken out */
    const char *expected;
} Edit;

static const Edit edits[] = {
    {"", "format", NULL, "format"},
    {"", "format", "\"weft-checkpoint\"", "is \"weft-checkpoint\" version 1, expected"},
    {"", "version", "2", "version 2, expected"},
    {"", "step", NULL, "step"},
    {"", "step", "\"4\"", "integer"},
    {"", "step", "-1", "step: out of range"},
    {"", "step", "9223372036854775807", "step: out of range"},
    {"", "step", "3", "start: is of step 4"},
    {"", "config", NULL, "config"},
    {"", "config", "3", "string"},
    {"", "identity", NULL, "identity"},
    {"", "layout", NULL, "layout"},
    {"", "data", "\"no hash\"", "data: "},
    {"", "start", NULL, "start"},
    {"", "start", "[]", "start: "},
    {"", "steps", NULL, "steps"},
    {"", "steps", "[]", "steps: a list of at least one"},
    {"", "steps", "{}", "steps: a list of at least one"},
    {"", "steps", "[3]", "step 5: "},
    {"start", "fingerprint", NULL, "start: "},
    {"start", "fingerprint", "\"00\"", "start: fingerprint: "},
    {"start", "tensors", "{}", "start: tensors: hashes by name"},
    {"start", "tensors", "[1]", "start: tensors: hashes by name"},
    {"1", "step", "5", "step 6: is of step 5"},
    {"1", "tensors", "{\"value/norm\": 3}", "step 6: tensors: value/norm: no text"},
    {"1", "tensors", "{\"value/norm\": \"x\"}", "step 6: value/norm: "},
    {"0", "samples", NULL, "step 5: "},
    {"0", "samples", "3", "step 5: samples: a list"},
    {"0", "samples", "[1, 2.5]", "step 5: samples: not an integer"},
    {"0", "loss", NULL, "step 5: "},
    {"0", "loss", "3.0", "step 5: "},
    {"0", "loss", "\"\"", "step 5: loss: \"\" is no number"},
    {"0", "loss", "\"0x1p+1x\"", "step 5: loss: \"0x1p+1x\" is no number"},
    {"0", "grad_norm", "\"much\"", "step 5: grad_norm: \"much\" is no number"},
    {"1", "lr", "\"little\"", "step 6: lr: \"little\" is no number"},
};

static json_t *object_of(const char *name) {
    if (!name[0]) return proof;
    if (!strcmp(name, "start")) return json_object_get(proof, name);
    return json_array_get(json_object_get(proof, "steps"), (size_t)(name[0] - '0'));
}

START_TEST(each_field_is_checked_and_named) {
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        const Edit *edit = &edits[i];
        begin();
        json_t *object = object_of(edit->object);
        int failed = edit->json ? json_object_set_new(object, edit->key,
                                                      json_loads(edit->json, JSON_DECODE_ANY, NULL))
                                : json_object_del(object, edit->key);
        ck_assert_int_eq(failed, 0);
        ck_assert_int_eq(proof_file_write(proof, directory), 0);
        expect_refused(edit->key, edit->expected);
        end();
    }
}
END_TEST

START_TEST(a_proof_belongs_to_its_checkpoint) {
    begin();
    json_t *manifest = json_pack("{s:i, s:s}", "step", 4, "fingerprint", HASH_A);
    ck_assert_int_eq(proof_file_check(directory, manifest), 0); /* there is none */
    ck_assert_int_eq(proof_file_write(proof, directory), 0);
    ck_assert_int_eq(proof_file_check(directory, manifest), 0);
    json_object_set_new(manifest, "fingerprint", json_string(HASH_B));
    ck_assert_int_eq(proof_file_check(directory, manifest), WEFT_INPUT);
    ck_assert(strstr(error_message(), "went on from fingerprint " HASH_A) != NULL);
    json_object_set_new(manifest, "step", json_integer(5));
    ck_assert_int_eq(proof_file_check(directory, manifest), WEFT_INPUT);
    ck_assert(strstr(error_message(), "is of another step") != NULL);
    json_decref(manifest);
    end();
}
END_TEST

/* ---- records ---- */

typedef struct {
    const char *key, *json; /* of the second record */
    const char *expected;   /* NULL: equal */
} Difference;

static const Difference differences[] = {
    {"loss_decimal", "4.0", NULL},
    {"samples", "[7, 4]", "sample 1 of 2: id 3, here 4; no tensor differs"},
    {"lr", "\"0x1.8p-8\"", "lr 0x1.8p-9, here 0x1.8p-8; no tensor differs"},
    {"loss", "\"0x1.9p+1\"", "loss 0x1.8p+1, here 0x1.9p+1; no tensor differs"},
    {"grad_norm", "\"nan\"", "gradient norm 0x1p+0, here nan; no tensor differs"},
    {"tensors",
     "{\"value/embed\": \"" HASH_A "\", \"value/norm\": \"" HASH_B
     "\", \"moment1/embed\": \"" HASH_A "\"}",
     "tensor value/norm"},
    {"tensors",
     "{\"value/embed\": \"" HASH_A "\", \"value/norm\": \"" HASH_B
     "\", \"moment1/embed\": \"" HASH_B "\"}",
     "tensor value/norm, the first of 2 that differ"},
    {"fingerprint", "\"" HASH_B "\"",
     "step 5, fingerprint " HASH_A ", here step 5, " HASH_B ", with equal tensors"},
};

START_TEST(the_first_difference_is_told) {
    char text[512];
    for (size_t i = 0; i < sizeof differences / sizeof *differences; i++) {
        const Difference *d = &differences[i];
        json_t *there = step_record(5), *here = step_record(5);
        ck_assert_int_eq(
            json_object_set_new(here, d->key, json_loads(d->json, JSON_DECODE_ANY, NULL)), 0);
        bool differs = record_difference(there, here, text, sizeof text);
        ck_assert_msg(differs == (d->expected != NULL), "%s", d->json);
        ck_assert_str_eq(text, d->expected ? d->expected : "");
        json_decref(there);
        json_decref(here);
    }
}
END_TEST

START_TEST(a_short_buffer_holds_what_fits) {
    char text[16];
    json_t *there = step_record(5), *here = step_record(5);
    json_object_set_new(here, "loss", json_string("0x1.9p+1"));
    ck_assert(record_difference(there, here, text, sizeof text));
    ck_assert_int_lt(strlen(text), sizeof text);
    json_decref(there);
    json_decref(here);
}
END_TEST

START_TEST(a_step_holds_its_state) {
    json_t *there = state(5), *step = step_record(5), *here = record_state_of(step);
    ck_assert(json_equal(there, here));
    json_decref(there);
    json_decref(step);
    json_decref(here);
}
END_TEST

START_TEST(only_what_decides_a_step_counts_as_changed) {
    Config before, now;
    config_defaults(&before);
    now = before;
    now.run.threads = 3;
    now.eval.every = 7;
    now.checkpoint.keep = 9;
    snprintf(now.train.recompute, sizeof now.train.recompute, "block");
    ck_assert_ptr_null(record_config_changes(&now, &before));
    now.optim.beta2 = 0.5;
    now.train.steps = before.train.steps + 1;
    snprintf(now.grid.reduction, sizeof now.grid.reduction, "allreduce");
    char *changes = record_config_changes(&now, &before);
    ck_assert_ptr_nonnull(changes);
    ck_assert(strstr(changes, "optim.beta2 ") != NULL);
    ck_assert(strstr(changes, "train.steps ") != NULL);
    ck_assert(strstr(changes, "grid.reduction exact -> allreduce") != NULL);
    ck_assert(strstr(changes, "threads") == NULL);
    free(changes);
}
END_TEST

int main(void) {
    return run_suite(
        "proof", TESTS(what_is_written_is_read, a_directory_that_is_gone_is_an_error_without_debris,
                       every_changed_character_is_seen, each_field_is_checked_and_named,
                       a_proof_belongs_to_its_checkpoint, the_first_difference_is_told,
                       a_short_buffer_holds_what_fits, a_step_holds_its_state,
                       only_what_decides_a_step_counts_as_changed));
}
