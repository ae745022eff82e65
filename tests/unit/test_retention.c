/* Which checkpoints a save leaves. */
#include "base/error.h"
#include "checkpoint/publish.h"
#include "support/checkpoint_pattern.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static SerialRun run;

/* What is in the run directory, as "1 2 .tmp-..." */
static void expect(const char *expected) {
    FileNames names;
    char text[512] = "";
    ck_assert_int_eq(files_list(run.run_dir, &names), 0);
    for (int i = 0; i < names.count; i++) {
        int64_t step;
        size_t used = strlen(text);
        if (publish_step_parse(names.name[i], &step))
            snprintf(text + used, sizeof text - used, "%s%d", used ? " " : "", (int)step);
        else
            snprintf(text + used, sizeof text - used, "%s%s", used ? " " : "", names.name[i]);
    }
    files_names_release(&names);
    ck_assert_str_eq(text, expected);
}

static void save(int64_t step, double held_out) {
    json_object_set_new(run.model.origin, "held_out_loss", json_real(held_out));
    serial_save(&run, step, run.model.state.retention.keep);
}

START_TEST(the_newest_and_every_so_many_th_stay) {
    serial_begin(&run);
    run.model.state.retention = (CheckpointRetention){.keep = 2, .keep_every = 30};
    for (int64_t step = 10; step <= 100; step += 10) serial_save(&run, step, 2);
    expect("30 60 90 100");
    serial_end(&run);
}
END_TEST

START_TEST(the_best_stays_until_there_is_a_better_one) {
    serial_begin(&run);
    run.model.state.retention = (CheckpointRetention){.keep = 1, .keep_best = true};
    save(1, 5.0);
    save(2, 3.0);
    save(3, 4.0);
    expect("2 3");
    save(4, 3.0); /* the earlier of equals */
    expect("2 4");
    save(5, 2.5);
    expect("5");
    json_object_del(run.model.origin, "held_out_loss");
    serial_save(&run, 6, 1);
    expect("5 6");
    serial_save(&run, 7, 1);
    expect("5 7");
    serial_end(&run);
}
END_TEST

START_TEST(without_a_number_all_stay) {
    serial_begin(&run);
    run.model.state.retention = (CheckpointRetention){.keep_every = 100, .keep_best = true};
    for (int64_t step = 1; step <= 4; step++) serial_save(&run, step, 0);
    expect("1 2 3 4");
    serial_end(&run);
}
END_TEST

/* The old ones may be all there is. */
START_TEST(nothing_is_removed_for_a_new_one_that_is_damaged) {
    char path[FILES_PATH];
    CheckpointRetention retention = {.keep = 1};
    serial_begin(&run);
    for (int64_t step = 1; step <= 3; step++) serial_save(&run, step, 0);
    serial_path(&run, 3, "shard-t002-d001.h5", path);
    ck_assert_int_eq(truncate(path, 3000), 0);
    ck_assert_int_eq(publish_prune(run.run_dir, 3, &retention), WEFT_RUNTIME);
    ck_assert_ptr_nonnull(strstr(error_message(), "older checkpoints stay"));
    ck_assert_ptr_nonnull(strstr(error_message(), "shard-t002-d001.h5"));
    expect("1 2 3");
    ck_assert_int_eq(publish_prune(run.run_dir, 2, &retention), 0); /* 2 is good; 3 isn't older */
    expect("2 3");
    serial_end(&run);
}
END_TEST

/* Where two names can't be exchanged, a replacement has two renames, and may be killed between. */
START_TEST(a_replacement_that_was_killed_half_way_is_put_back) {
    char path[FILES_PATH], aside[FILES_PATH];
    serial_begin(&run);
    serial_save(&run, 5, 0);
    serial_save(&run, 6, 0);
    serial_path(&run, 5, "", path);
    snprintf(aside, sizeof aside, "%s/.tmp-step-00000005-old", run.run_dir);
    ck_assert_int_eq(rename(path, aside), 0);
    snprintf(aside, sizeof aside, "%s/.tmp-step-00000005", run.run_dir);
    ck_assert_int_eq(mkdir(aside, 0777), 0);
    snprintf(aside, sizeof aside, "%s/.tmp-step-00000006-old", run.run_dir);
    ck_assert_int_eq(mkdir(aside, 0777), 0); /* its step is there */
    publish_recover(run.run_dir);
    expect("5 6");
    ck_assert_int_eq(checkpoint_verify(path), 0);
    serial_end(&run);
}
END_TEST

int main(void) {
    return run_suite("retention",
                     TESTS(the_newest_and_every_so_many_th_stay,
                           the_best_stays_until_there_is_a_better_one, without_a_number_all_stay,
                           nothing_is_removed_for_a_new_one_that_is_damaged,
                           a_replacement_that_was_killed_half_way_is_put_back));
}
