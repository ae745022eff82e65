/* Saving on one layout and loading on another, on 1 to 4 ranks. */
#include "base/error.h"
#include "support/checkpoint_pattern.h"
#include "support/support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { GRID_TENSOR = 8, GRID_DATA = 3, MOST_LAYOUTS = 16 };

static Grid grid;

/* A directory that all ranks know. */
static void make_scratch(char scratch[SCRATCH_PATH]) {
    memset(scratch, 0, SCRATCH_PATH);
    if (grid.world_rank == 0) scratch_make(scratch);
    comm_broadcast(&grid, GROUP_WORLD, scratch, SCRATCH_PATH, 0);
}

static void remove_scratch(const char *scratch) {
    comm_barrier(&grid, GROUP_WORLD);
    if (grid.world_rank == 0) ck_assert_int_eq(files_remove_tree(scratch), 0);
}

typedef struct {
    int tp, dp;
    char run[FILES_PATH];
} Layout;

static int list_layouts(const char *scratch, Layout *layout) {
    int count = 0;
    for (int tp = 1; tp <= grid.world_size; tp++) {
        for (int dp = 1; tp * dp <= grid.world_size && dp <= GRID_DATA; dp++) {
            char name[32];
            snprintf(name, sizeof name, "tp%d-dp%d", tp, dp);
            layout[count].tp = tp;
            layout[count].dp = dp;
            ck_assert_int_eq(files_join(layout[count++].run, FILES_PATH, scratch, name), 0);
        }
    }
    return count;
}

static void step_path(const Layout *layout, const char *file, char path[FILES_PATH]) {
    char name[128];
    snprintf(name, sizeof name, "step-00000012/%s", file);
    ck_assert_int_eq(files_join(path, FILES_PATH, layout->run, name), 0);
}

/* Lays the grid, lets the active ranks do something with a model on it, and closes. */
static void on_layout(const Layout *layout, void (*act)(PatternModel *, void *), void *context) {
    ck_assert_int_eq(grid_open(&grid, layout->tp, layout->dp), 0);
    if (!grid.surplus) {
        PatternModel model;
        pattern_open(&model, &grid, GRID_TENSOR, GRID_DATA);
        act(&model, context);
        pattern_close(&model);
    }
    ck_assert_int_eq(grid_wait_surplus(&grid, 0), 0);
    grid_close(&grid);
}

static void save(PatternModel *model, void *run) {
    pattern_fill(model);
    int status = checkpoint_save(&grid, &model->set, &model->state, run);
    ck_assert_msg(status == 0, "%s", error_message());
}

static void load(PatternModel *model, void *directory) {
    ck_assert_int_gt(pattern_mismatches(model) + (model->set.elements == 0), 0);
    int status = checkpoint_load(&grid, &model->set, directory);
    ck_assert_msg(status == 0, "%s", error_message());
    ck_assert_int_eq(pattern_mismatches(model), 0);
}

START_TEST(gate_and_up_survive_save_and_load_over_all_pairs_of_layouts) {
    char scratch[SCRATCH_PATH], path[FILES_PATH];
    Layout layout[MOST_LAYOUTS];
    make_scratch(scratch);
    int count = list_layouts(scratch, layout);
    for (int i = 0; i < count; i++) on_layout(&layout[i], save, layout[i].run);
    for (int i = 0; i < count; i++) {
        step_path(&layout[i], "", path);
        for (int j = 0; j < count; j++) on_layout(&layout[j], load, path);
    }
    remove_scratch(scratch);
}
END_TEST

/* The manifest without what may differ. */
static json_t *bare_manifest(const Layout *layout) {
    char path[FILES_PATH];
    json_t *manifest;
    step_path(layout, "", path);
    ck_assert_msg(checkpoint_manifest(path, &manifest) == 0, "%s", error_message());
    ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(manifest, "origin"), "tp")),
                     layout->tp);
    json_object_del(manifest, "origin");
    return manifest;
}

static void compare_checkpoints(const Layout *a, const Layout *b) {
    char left[FILES_PATH], right[FILES_PATH];
    FileNames names;
    step_path(a, "", left);
    ck_assert_int_eq(files_list(left, &names), 0);
    ck_assert_int_eq(names.count, GRID_TENSOR * GRID_DATA + 2);
    for (int i = 0; i < names.count; i++) {
        if (!strcmp(names.name[i], "manifest.json")) continue;
        step_path(a, names.name[i], left);
        step_path(b, names.name[i], right);
        ck_assert_msg(same_bytes(left, right), "%s and %s differ", left, right);
    }
    files_names_release(&names);
    json_t *one = bare_manifest(a), *other = bare_manifest(b);
    ck_assert(json_equal(one, other));
    json_decref(one);
    json_decref(other);
}

START_TEST(files_are_the_same_bytes_on_all_layouts) {
    char scratch[SCRATCH_PATH], path[FILES_PATH];
    Layout layout[MOST_LAYOUTS];
    make_scratch(scratch);
    int count = list_layouts(scratch, layout);
    for (int i = 0; i < count; i++) on_layout(&layout[i], save, layout[i].run);
    if (grid.world_rank == 0) {
        for (int i = 1; i < count; i++) compare_checkpoints(&layout[0], &layout[i]);
        step_path(&layout[count - 1], "", path);
        ck_assert_int_eq(checkpoint_verify(path), 0);
    }
    remove_scratch(scratch);
}
END_TEST

typedef struct {
    Hash128 plain, changed;
} TwoHashes;

static void take_fingerprints(PatternModel *model, void *context) {
    TwoHashes *found = context;
    pattern_fill(model);
    ck_assert_int_eq(checkpoint_fingerprint(&grid, &model->set, &model->state, &found->plain), 0);
    int gate = params_find(&model->set, PATTERN_GATE);
    const Param *param = &model->set.param[gate];
    if (range_has(param->owned, 0)) /* one moment of one element */
        param_shard(&model->set, param, PARAM_MOMENT2, 0).data[3] += 1;
    ck_assert_int_eq(checkpoint_fingerprint(&grid, &model->set, &model->state, &found->changed), 0);
}

START_TEST(the_fingerprint_is_the_same_on_all_layouts) {
    char scratch[SCRATCH_PATH];
    Layout layout[MOST_LAYOUTS];
    make_scratch(scratch);
    int count = list_layouts(scratch, layout);
    TwoHashes first = {{0, 0}, {0, 0}};
    for (int i = 0; i < count; i++) {
        TwoHashes found = first;
        on_layout(&layout[i], take_fingerprints, &found);
        if (i == 0) comm_broadcast(&grid, GROUP_WORLD, &found, sizeof found, 0), first = found;
        ck_assert(hash_equal(found.plain, first.plain));
        ck_assert(hash_equal(found.changed, first.changed));
        ck_assert(!hash_equal(found.plain, found.changed));
    }
    remove_scratch(scratch);
}
END_TEST

static void load_damaged(PatternModel *model, void *directory) {
    int status = checkpoint_load(&grid, &model->set, directory);
    ck_assert_int_eq(status, WEFT_INPUT);
    ck_assert(error_is_agreed());
    ck_assert_msg(strstr(error_message(), "shard-t007-d002.h5") != NULL, "%s", error_message());
}

START_TEST(a_missing_file_ends_the_load_on_all_ranks) {
    char scratch[SCRATCH_PATH], path[FILES_PATH];
    Layout layout[MOST_LAYOUTS];
    make_scratch(scratch);
    int count = list_layouts(scratch, layout);
    on_layout(&layout[0], save, layout[0].run);
    step_path(&layout[0], "shard-t007-d002.h5", path);
    if (grid.world_rank == 0) ck_assert_int_eq(unlink(path), 0);
    comm_barrier(&grid, GROUP_WORLD);
    step_path(&layout[0], "", path);
    for (int i = 0; i < count; i++) on_layout(&layout[i], load_damaged, path);
    remove_scratch(scratch);
}
END_TEST

/* The last rank of the grid can't write a byte, as on a full disk. */
static void save_on_a_full_disk(PatternModel *model, void *run) {
    struct rlimit unlimited, none;
    pattern_fill(model);
    getrlimit(RLIMIT_FSIZE, &unlimited);
    none = unlimited;
    none.rlim_cur = 0;
    signal(SIGXFSZ, SIG_IGN);
    bool last = group_rank(&grid, GROUP_GRID) == group_size(&grid, GROUP_GRID) - 1;
    if (last) setrlimit(RLIMIT_FSIZE, &none);
    int status = checkpoint_save(&grid, &model->set, &model->state, run);
    if (last) setrlimit(RLIMIT_FSIZE, &unlimited);
    ck_assert_int_eq(status, WEFT_RUNTIME);
    ck_assert(error_is_agreed());
    ck_assert_msg(strstr(error_message(), ".h5") != NULL, "%s", error_message());
}

START_TEST(a_rank_that_cannot_write_ends_the_save_and_leaves_the_old_checkpoint) {
    char scratch[SCRATCH_PATH], found[FILES_PATH];
    Layout layout[MOST_LAYOUTS];
    make_scratch(scratch);
    int count = list_layouts(scratch, layout);
    on_layout(&layout[0], save, layout[0].run);
    for (int i = 0; i < count; i++) {
        on_layout(&layout[i], save_on_a_full_disk, layout[0].run);
        comm_barrier(&grid, GROUP_WORLD);
        FileNames names;
        ck_assert_int_eq(files_list(layout[0].run, &names), 0);
        ck_assert_int_eq(names.count, 1);
        ck_assert_str_eq(names.name[0], "step-00000012");
        files_names_release(&names);
        ck_assert_int_eq(checkpoint_find(layout[0].run, true, found, sizeof found), 0);
        comm_barrier(&grid, GROUP_WORLD);
    }
    for (int i = 0; i < count; i++) on_layout(&layout[i], save, layout[i].run); /* and again */
    remove_scratch(scratch);
}
END_TEST

int main(int argc, char **argv) {
    if (comm_start(&grid)) return EXIT_FAILURE;
    int code = run_mpi_suite(
        &argc, &argv, "checkpoint_layouts",
        TESTS(gate_and_up_survive_save_and_load_over_all_pairs_of_layouts,
              files_are_the_same_bytes_on_all_layouts, the_fingerprint_is_the_same_on_all_layouts,
              a_missing_file_ends_the_load_on_all_ranks,
              a_rank_that_cannot_write_ends_the_save_and_leaves_the_old_checkpoint));
    return code;
}
