/* Saving while the state goes on changing, on 1 to 3 ranks. */
#include "base/clock.h"
#include "base/error.h"
#include "checkpoint/saver.h"
#include "support/checkpoint_pattern.h"
#include "support/support.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GRID_TENSOR = 8, GRID_DATA = 3 };

static Grid grid;
static PatternModel model;
static Saver *saver;
static char run[SCRATCH_PATH];

/* All ranks along the tensor axis; the data axis is test_checkpoint_layouts' business. */
static void begin(void) {
    memset(run, 0, sizeof run);
    if (grid.world_rank == 0) scratch_make(run);
    comm_broadcast(&grid, GROUP_WORLD, run, sizeof run, 0);
    ck_assert_int_eq(grid_open(&grid, grid.world_size, 1), 0);
    pattern_open(&model, &grid, GRID_TENSOR, GRID_DATA);
    pattern_fill(&model);
    ck_assert_int_eq(saver_open(&saver, &grid, &model.set, &model.state.places), 0);
}

static void end(void) {
    saver_close(saver);
    pattern_close(&model);
    comm_barrier(&grid, GROUP_WORLD);
    if (grid.world_rank == 0) ck_assert_int_eq(files_remove_tree(run), 0);
    grid_close(&grid);
}

static void overwrite_state(void) {
    static const ParamRole roles[] = {PARAM_VALUE, PARAM_MOMENT1, PARAM_MOMENT2};
    for (int r = 0; r < 3; r++)
        for (int64_t i = 0; i < model.set.elements; i++) model.set.arena[roles[r]][i] = (real)-7;
}

static bool exists(const char *name) {
    char path[FILES_PATH];
    ck_assert_int_eq(files_join(path, sizeof path, run, name), 0);
    return files_exists(path);
}

static void expect_pattern(const char *name) {
    char path[FILES_PATH];
    overwrite_state();
    ck_assert_int_eq(files_join(path, sizeof path, run, name), 0);
    ck_assert_msg(checkpoint_load(&grid, &model.set, path) == 0, "%s", error_message());
    ck_assert_int_eq(pattern_mismatches(&model), 0);
}

START_TEST(what_is_saved_is_the_state_at_the_beginning) {
    begin();
    for (int i = 0; i < 20; i++) {
        char name[32];
        model.state.step = i;
        snprintf(name, sizeof name, "step-%08d", i);
        ck_assert_int_eq(saver_begin(saver, &model.state, run), 0);
        overwrite_state();
        ck_assert(saver_is_under_way(saver));
        ck_assert_msg(saver_finish(saver) == 0, "%s", error_message());
        ck_assert(!saver_is_under_way(saver));
        expect_pattern(name);
    }
    end();
}
END_TEST

START_TEST(it_ends_by_looking_now_and_then) {
    begin();
    ck_assert_int_eq(saver_begin(saver, &model.state, run), 0);
    int stages = 0;
    while (saver_is_under_way(saver)) {
        int64_t busy = saver_is_busy(saver);
        comm_max_int64(&grid, GROUP_GRID, &busy, 1);
        if (busy)
            clock_sleep(0.001);
        else
            ck_assert_msg(saver_advance(saver) == 0, "%s", error_message());
        stages += !busy;
    }
    ck_assert_int_eq(stages, 2);
    ck_assert_int_eq(saver_step(saver), 12);
    ck_assert_int_eq(saver_advance(saver), 0); /* nothing to do */
    ck_assert_int_eq(saver_finish(saver), 0);
    expect_pattern("step-00000012");
    end();
}
END_TEST

/* A file that another rank makes meanwhile may keep its folder from going. */
static int remove_under_writers(void) {
    int status = files_remove_tree(run);
    for (int again = 0; status && again < 1000; again++) {
        clock_sleep(0.001);
        status = files_remove_tree(run);
    }
    return status;
}

START_TEST(a_failed_save_leaves_nothing_and_the_next_one_succeeds) {
    char path[FILES_PATH];
    begin();
    ck_assert_int_eq(files_join(path, sizeof path, run, "step-00000012"), 0);
    if (grid.world_rank == 0) ck_assert_int_eq(symlink("/tmp", path), 0);
    ck_assert_int_eq(saver_begin(saver, &model.state, run), WEFT_RUNTIME);
    ck_assert_ptr_nonnull(strstr(error_message(), "step-00000012: is in the way"));
    ck_assert(error_is_agreed());
    ck_assert(!saver_is_under_way(saver));
    comm_barrier(&grid, GROUP_WORLD);
    if (grid.world_rank == 0) ck_assert_int_eq(unlink(path), 0);

    /* The directory that is written into goes away once the copy is taken. */
    ck_assert_int_eq(saver_begin(saver, &model.state, run), 0);
    if (grid.world_rank == 0) ck_assert_int_eq(remove_under_writers(), 0);
    int status = saver_finish(saver);
    ck_assert(status == WEFT_RUNTIME && error_is_agreed());
    ck_assert_msg(strstr(error_message(), run) != NULL, "%s", error_message());
    ck_assert(!exists("step-00000012"));

    ck_assert_int_eq(saver_begin(saver, &model.state, run), 0);
    ck_assert_msg(saver_finish(saver) == 0, "%s", error_message());
    ck_assert(!exists(".tmp-step-00000012"));
    expect_pattern("step-00000012");
    end();
}
END_TEST

START_TEST(the_copy_is_as_large_as_predicted) {
    begin();
    size_t bytes;
    ck_assert_int_eq(saver_bytes_predicted(&model.set, &model.state.places, grid.tensor_rank,
                                           grid.data_rank, &bytes),
                     0);
    ck_assert_uint_eq(bytes, saver_bytes(saver));
    int64_t elements = 0;
    for (int i = 0; i < model.set.count; i++)
        elements += model.set.param[i].rows * model.set.param[i].cols;
    int64_t total = 0, all[8];
    int64_t mine = (int64_t)bytes;
    comm_gather_all(&grid, GROUP_GRID, &mine, sizeof mine, all);
    for (int r = 0; r < grid.tp; r++) total += all[r];
    ck_assert_int_eq(total, 3 * elements * (int64_t)sizeof(real));
    end();
}
END_TEST

int main(int argc, char **argv) {
    if (comm_start(&grid)) return 1;
    int code = run_mpi_suite(&argc, &argv, "saver",
                             TESTS(what_is_saved_is_the_state_at_the_beginning,
                                   it_ends_by_looking_now_and_then,
                                   a_failed_save_leaves_nothing_and_the_next_one_succeeds,
                                   the_copy_is_as_large_as_predicted));
    return code;
}
