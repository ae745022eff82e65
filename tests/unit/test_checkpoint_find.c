/* Which checkpoint is taken, which are kept, which are replaced. */
#include "base/error.h"
#include "support/checkpoint_pattern.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static SerialRun run;

static void remove_file(int64_t step, const char *file) {
    char path[FILES_PATH];
    serial_path(&run, step, file, path);
    ck_assert_int_eq(unlink(path), 0);
}

START_TEST(find_takes_the_newest_good_one_and_says_what_it_skips) {
    Capture capture;
    char found[FILES_PATH], expected[FILES_PATH], slashed[SCRATCH_PATH + 32];
    serial_begin(&run);
    ck_assert_int_eq(checkpoint_find(run.run_dir, true, found, sizeof found), 0);
    ck_assert_str_eq(found, "");
    serial_save(&run, 9, 0);
    serial_save(&run, 20, 0);
    serial_save(&run, 100, 0);
    snprintf(slashed, sizeof slashed, "%s///", run.run_dir);
    serial_path(&run, 100, "", expected);
    ck_assert_int_eq(checkpoint_find(slashed, true, found, sizeof found), 0);
    ck_assert_str_eq(found, expected);

    snprintf(slashed, sizeof slashed, "%s/.tmp-step-00000200", run.run_dir);
    ck_assert_int_eq(mkdir(slashed, 0777), 0);
    remove_file(100, "shard-t003-d001.h5");
    capture_begin(&capture, 2);
    int status = checkpoint_find(run.run_dir, false, found, sizeof found);
    char *text = capture_end(&capture);
    ck_assert_int_eq(status, 0);
    serial_path(&run, 20, "", expected);
    ck_assert_str_eq(found, expected);
    ck_assert_ptr_nonnull(strstr(text, "step-00000100: skipped: "));
    ck_assert_ptr_nonnull(strstr(text, "shard-t003-d001.h5: file is missing"));
    ck_assert_ptr_null(strstr(text, ".tmp-"));
    free(text);

    serial_path(&run, 100, "", expected);
    ck_assert_int_eq(checkpoint_find(expected, true, found, sizeof found), WEFT_INPUT);
    ck_assert_ptr_nonnull(strstr(error_message(), "shard-t003-d001.h5"));
    serial_path(&run, 100, "/", expected); /* ends in slashes */
    ck_assert_int_eq(checkpoint_find(expected, true, found, sizeof found), WEFT_INPUT);
    serial_path(&run, 20, "", expected);
    ck_assert_int_eq(checkpoint_find(expected, true, found, sizeof found), 0);
    ck_assert_str_eq(found, expected);

    remove_file(20, "manifest.json");
    remove_file(9, "checkpoint.h5");
    ck_assert_int_eq(checkpoint_find(run.run_dir, true, found, sizeof found), WEFT_INPUT);
    ck_assert_ptr_nonnull(strstr(error_message(), "none of its 3 checkpoints"));
    ck_assert_int_eq(checkpoint_find("/no/such/run", true, found, sizeof found), WEFT_INPUT);
    serial_end(&run);
}
END_TEST

static void check_names(int count, const char *const *expected) {
    FileNames names;
    ck_assert_int_eq(files_list(run.run_dir, &names), 0);
    ck_assert_int_eq(names.count, count);
    for (int i = 0; i < count; i++) ck_assert_str_eq(names.name[i], expected[i]);
    files_names_release(&names);
}

START_TEST(pruning_keeps_the_newest_and_removes_leftovers) {
    char path[FILES_PATH];
    serial_begin(&run);
    serial_save(&run, 1, 0);
    serial_save(&run, 2, 2);
    check_names(2, (const char *[]){"step-00000001", "step-00000002"});
    snprintf(path, sizeof path, "%s/.tmp-step-00000077", run.run_dir);
    ck_assert_int_eq(mkdir(path, 0777), 0);
    serial_save(&run, 3, 2);
    check_names(2, (const char *[]){"step-00000002", "step-00000003"});
    serial_save(&run, 4, 1);
    check_names(1, (const char *[]){"step-00000004"});
    serial_save(&run, 2, 1); /* what was saved just now stays, and a later step isn't older */
    check_names(2, (const char *[]){"step-00000002", "step-00000004"});
    serial_save(&run, 123456789, 0);
    check_names(3, (const char *[]){"step-00000002", "step-00000004", "step-123456789"});
    serial_end(&run);
}
END_TEST

static ino_t inode_of(const char *path) {
    struct stat status;
    ck_assert_int_eq(stat(path, &status), 0);
    return status.st_ino;
}

START_TEST(a_step_is_replaced_only_for_a_reason) {
    char path[FILES_PATH];
    serial_begin(&run);
    serial_save(&run, 5, 0);
    serial_path(&run, 5, "", path);
    ino_t first = inode_of(path);
    serial_save(&run, 5, 0); /* the same state: nothing to do */
    ck_assert(inode_of(path) == first);
    const Param *gate = &run.model.set.param[params_find(&run.model.set, PATTERN_GATE)];
    param_shard(&run.model.set, gate, PARAM_MOMENT1, 0).data[4] += 1;
    serial_save(&run, 5, 0);
    ino_t second = inode_of(path);
    ck_assert(second != first);
    ck_assert_int_eq(checkpoint_verify(path), 0);
    remove_file(5, "shard-t000-d000.h5");
    serial_save(&run, 5, 0);
    ck_assert(inode_of(path) != second);
    ck_assert_int_eq(checkpoint_verify(path), 0);
    check_names(1, (const char *[]){"step-00000005"});
    serial_end(&run);
}
END_TEST

START_TEST(what_is_not_a_directory_is_not_replaced) {
    char path[FILES_PATH];
    serial_begin(&run);
    serial_path(&run, 5, "", path);
    run.model.state.step = 5;
    ck_assert_int_eq(symlink("/tmp", path), 0);
    ck_assert_int_eq(checkpoint_save(&run.grid, &run.model.set, &run.model.state, run.run_dir),
                     WEFT_RUNTIME);
    ck_assert_ptr_nonnull(strstr(error_message(), "step-00000005: is in the way"));
    check_names(1, (const char *[]){"step-00000005"});
    ck_assert_int_eq(unlink(path), 0);
    serial_save(&run, 5, 0);
    serial_end(&run);
}
END_TEST

START_TEST(details_may_not_replace_fields) {
    serial_begin(&run);
    json_object_set_new(run.model.details, "fingerprint", json_string("0"));
    ck_assert_int_eq(checkpoint_save(&run.grid, &run.model.set, &run.model.state, run.run_dir),
                     WEFT_RUNTIME);
    ck_assert_ptr_nonnull(strstr(error_message(), "fingerprint"));
    check_names(0, NULL);
    serial_end(&run);
}
END_TEST

int main(void) {
    return run_suite("checkpoint_find", TESTS(find_takes_the_newest_good_one_and_says_what_it_skips,
                                              pruning_keeps_the_newest_and_removes_leftovers,
                                              a_step_is_replaced_only_for_a_reason,
                                              what_is_not_a_directory_is_not_replaced,
                                              details_may_not_replace_fields));
}
