/* verify --deep: what digests can't tell because it was saved as it is. */
#include "base/error.h"
#include "checkpoint/manifest.h"
#include "checkpoint/proof_file.h"
#include "checkpoint/verify.h"
#include "support/checkpoint_pattern.h"
#include "support/support.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static SerialRun run;

/* The pattern, with second moments as training leaves them: the pattern's `up` is negative. */
static void begin(void) {
    serial_begin(&run);
    for (int row = 0; row < 11; row++) {
        for (int col = 0; col < 8; col++) {
            real *up = pattern_element(&run.model, PATTERN_UP, PARAM_MOMENT2, row, col);
            *up = -*up;
        }
    }
}

/* Of the checkpoint of step 12: 0, or the message holds `expected`. */
static void expect(const char *expected, VerifyReport *report) {
    char path[FILES_PATH];
    serial_path(&run, 12, "", path);
    int status = verify_deep(path, false, report);
    if (expected) {
        ck_assert_int_eq(status, WEFT_CHECK);
        ck_assert_msg(strstr(error_message(), expected) != NULL, "not \"%s\" in \"%s\"", expected,
                      error_message());
        ck_assert_ptr_nonnull(strstr(error_message(), path));
    } else {
        ck_assert_msg(status == 0, "%s", error_message());
    }
}

START_TEST(a_good_one_is_counted) {
    VerifyReport report;
    begin();
    serial_save(&run, 12, 0);
    expect(NULL, &report);
    ck_assert_int_eq(report.files, 8 * 3 + 2);
    ck_assert_int_eq(report.tensors, 9);
    ck_assert_int_eq(report.roles, 3);
    ck_assert_int_eq(report.cells, 1758);
    ck_assert_int_gt(report.datasets, 3 * 9);
    ck_assert_int_gt(report.bytes, 1758 * (int64_t)sizeof(real));
    ck_assert(!report.proof);
    serial_end(&run);
}
END_TEST

START_TEST(numbers_that_training_does_not_leave) {
    static const struct {
        const char *tensor;
        ParamRole role;
        int row, col;
        double value;
        const char *expected; /* NULL: it does */
    } rows[] = {
        {PATTERN_GATE, PARAM_VALUE, 5, 2, NAN,
         "dataset value/" PATTERN_GATE
         ": cell [5, 2] of the tensor isn't finite: nan (such are 1 "},
        {PATTERN_GATE, PARAM_VALUE, 5, 2, INFINITY, "isn't finite: inf"},
        {PATTERN_GATE, PARAM_MOMENT1, 5, 2, -INFINITY,
         "dataset moment1/" PATTERN_GATE ": cell [5, 2] of the tensor isn't finite: -inf"},
        {PATTERN_GATE, PARAM_MOMENT2, 5, 2, NAN, "dataset moment2/"},
        {PATTERN_GATE, PARAM_MOMENT2, 5, 2, -0.25, "cell [5, 2] of the tensor is negative: -0.25"},
        {PATTERN_GATE, PARAM_MOMENT2, 5, 2, -1e-30, "is negative: -1"},
        {"model.layers.0.mlp.gate_proj.bias", PARAM_MOMENT2, 0, 3, -3,
         "cell [3] of the tensor is negative: -3"},
        {PATTERN_GATE, PARAM_MOMENT2, 5, 2, -0.0, NULL},
        {PATTERN_GATE, PARAM_MOMENT1, 5, 2, -0.25, NULL},
        {PATTERN_GATE, PARAM_VALUE, 5, 2, -0.25, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin();
        *pattern_element(&run.model, rows[i].tensor, rows[i].role, rows[i].row, rows[i].col) =
            (real)rows[i].value;
        serial_save(&run, 12, 0);
        char path[FILES_PATH];
        serial_path(&run, 12, "", path);
        ck_assert_int_eq(checkpoint_verify(path), 0); /* the digests are right */
        expect(rows[i].expected, NULL);
        serial_end(&run);
    }
}
END_TEST

/* A proof of two steps after step 12, from the present state; the caller's to spoil. */
static json_t *make_proof(void) {
    char path[FILES_PATH];
    const char *number = "0x1.8p+1", *hash = "0123456789abcdef0123456789abcdef";
    const char *tensor = "value/model.norm.weight";
    json_t *manifest;
    serial_path(&run, 12, "", path);
    ck_assert_int_eq(checkpoint_manifest(path, &manifest), 0);
    json_t *start = json_pack("{s:i, s:O, s:{s:s}}", "step", 12, "fingerprint",
                              json_object_get(manifest, "fingerprint"), "tensors", tensor, hash);
    json_t *proof = proof_file_begin(12, start, "", "", "", (Hash128){1, 2});
    ck_assert_ptr_nonnull(proof);
    for (int i = 13; i <= 14; i++) {
        json_t *step = json_pack("{s:i, s:s, s:{s:s}, s:[i, i], s:s, s:s, s:s}", "step", i,
                                 "fingerprint", hash, "tensors", tensor, hash, "samples", 3, 4,
                                 "loss", number, "grad_norm", number, "lr", number);
        ck_assert_int_eq(json_array_append_new(json_object_get(proof, "steps"), step), 0);
    }
    json_decref(manifest);
    return proof;
}

static void write_proof(json_t *proof) {
    char path[FILES_PATH];
    serial_path(&run, 12, "", path);
    ck_assert_msg(proof_file_write(proof, path) == 0, "%s", error_message());
    json_decref(proof);
}

static void overwrite_proof(const char *text) {
    char path[FILES_PATH];
    serial_path(&run, 12, PROOF_FILE, path);
    ck_assert_int_eq(files_write(path, text, strlen(text)), 0);
}

START_TEST(a_proof_is_read) {
    VerifyReport report;
    char path[FILES_PATH], *text;
    size_t size;
    begin();
    serial_save(&run, 12, 0);
    write_proof(make_proof());
    expect(NULL, &report);
    ck_assert(report.proof);

    serial_path(&run, 12, PROOF_FILE, path);
    ck_assert_int_eq(files_read(path, 1 << 20, &text, &size), 0);
    char *place = strstr(text, "0x1.8p+1");
    ck_assert_ptr_nonnull(place);
    place[4] = '9';
    overwrite_proof(text);
    free(text);
    expect(PROOF_FILE ": damaged", NULL);
    serial_path(&run, 12, "", path);
    ck_assert_int_eq(checkpoint_verify(path), 0); /* nothing of it is loaded */

    overwrite_proof("{]");
    expect(PROOF_FILE ": line 1", NULL);
    overwrite_proof("");
    expect(PROOF_FILE ": line", NULL);
    serial_end(&run);
}
END_TEST

START_TEST(a_proof_of_something_else) {
    begin();
    serial_save(&run, 12, 0);
    json_t *proof = make_proof();
    json_object_set_new(json_object_get(proof, "start"), "fingerprint",
                        json_string("00000000000000000000000000000000"));
    write_proof(proof);
    expect(PROOF_FILE ": training went on from fingerprint 0000", NULL);
    proof = make_proof();
    json_array_remove(json_object_get(proof, "steps"), 0);
    write_proof(proof);
    expect(PROOF_FILE ": ", NULL);
    serial_end(&run);
}
END_TEST

int main(void) {
    return run_suite("verify_deep",
                     TESTS(a_good_one_is_counted, numbers_that_training_does_not_leave,
                           a_proof_is_read, a_proof_of_something_else));
}
