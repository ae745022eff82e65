/* Whole training steps of both models on tp 1, 2, 3 x dp 1, 2: what must be equal on all of them,
 * bit for bit, and on all replicas. On 6 ranks. */
#include "base/error.h"
#include "run/drift.h"
#include "run/trainer.h"
#include "support/array_file.h"
#include "support/naive.h"
#include "support/support.h"
#include "support/whole.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 3, MOST_TP = 3, MOST_DP = 2 };

static const double roundoff = sizeof(real) == 8 ? 0x1p-53 : 0x1p-24;

static Config config_of(const char *const *assignments, int count) {
    Config config;
    config_defaults(&config);
    ck_assert_msg(config_read(&config, "tests/configs/tiny.ini") == 0, "%s", error_message());
    for (int i = 0; i < count; i++)
        ck_assert_msg(config_set(&config, assignments[i]) == 0, "%s", error_message());
    ck_assert_msg(config_resolve(&config) == 0, "%s", error_message());
    ck_assert_msg(config_check(&config) == 0, "%s", error_message());
    return config;
}

static Config small_config(void) { return config_of((const char *[]){"model.layers=1"}, 1); }

/* ---- an mlp, and rows for it ---- */

enum { ROWS = 256, INPUTS = 12, OUTPUTS = 5 };

static ArrayFile rows_file; /* on the first rank; all know its path */

static void write_rows(void) {
    static double inputs[ROWS * INPUTS], values[ROWS * OUTPUTS];
    for (int i = 0; i < ROWS * INPUTS; i++) inputs[i] = sin(i * 0.7) + i % 7;
    for (int i = 0; i < ROWS * OUTPUTS; i++) values[i] = inputs[i % (ROWS * INPUTS)] * cos(i);
    rows_file = array_file_begin(0);
    array_file_add(&rows_file, "inputs", H5T_IEEE_F64LE, 2, (hsize_t[]){ROWS, INPUTS},
                   LAYOUT_CONTIGUOUS, inputs);
    array_file_add(&rows_file, "targets", H5T_IEEE_F64LE, 2, (hsize_t[]){ROWS, OUTPUTS},
                   LAYOUT_CONTIGUOUS, values);
    array_file_end(&rows_file);
}

static Config mlp_config(void) {
    Grid grid;
    char train[128];
    ck_assert_int_eq(comm_start(&grid), 0);
    if (!rows_file.path[0] && grid.world_rank == 0) write_rows();
    comm_broadcast(&grid, GROUP_WORLD, rows_file.path, sizeof rows_file.path, 0);
    comm_stop(&grid);
    snprintf(train, sizeof train, "data.train=%s", rows_file.path);
    const char *const set[] = {"model.kind=mlp",
                               "model.inputs=12",
                               "model.outputs=5",
                               "model.d_model=37",
                               "model.layers=2",
                               "data.kind=hdf5",
                               "train.micro_batch=11",
                               "train.global_batch=88",
                               "optim.clip=0.01",
                               "model.loss=squared_error",
                               "model.heads=8",
                               "model.kv_heads=4",
                               train};
    return config_of(set, sizeof set / sizeof *set);
}

typedef void (*OnTrainer)(Trainer *trainer, Grid *grid);

/* A trainer with its initial weights, on the ranks of one layout; the others pass it by. */
static void on_layout(const Config *config, int tp, int dp, OnTrainer body) {
    Grid grid;
    Trainer trainer;
    ck_assert_int_eq(comm_start(&grid), 0);
    ck_assert_msg(grid_open(&grid, tp, dp) == 0, "%s", error_message());
    if (!grid.surplus) {
        int status = trainer_open(&trainer, config, &grid, 1, true);
        ck_assert_msg(status == 0, "tp %d x dp %d: %s", tp, dp, error_message());
        ck_assert_int_eq(trainer_survey(&trainer), 0);
        body(&trainer, &grid);
        trainer_close(&trainer);
    }
    grid_wait_surplus(&grid, 0);
    comm_stop(&grid);
}

static void on_layouts(OnTrainer body) {
    Config config[] = {small_config(), mlp_config()};
    for (int m = 0; m < 2; m++)
        for (int dp = 1; dp <= MOST_DP; dp++)
            for (int tp = 1; tp <= MOST_TP; tp++) {
                config[m].parallel.sequence = false;
                on_layout(&config[m], tp, dp, body);
                config[m].parallel.sequence = true;
                if (tp > 1) on_layout(&config[m], tp, dp, body);
            }
}

static StepReport step(Trainer *trainer) {
    StepReport report = {0};
    ck_assert_msg(trainer_step(trainer, &report) == 0, "%s", error_message());
    return report;
}

/* ---- norms and losses ---- */

typedef struct {
    double norm[STEPS], loss[STEPS];
} Trajectory;

static Trajectory reference; /* tp 1 x dp 1, on the world's first rank */

static void run_steps(Trainer *trainer, Grid *grid) {
    Trajectory here = {0};
    for (int i = 0; i < STEPS; i++) {
        StepReport report = step(trainer);
        here.norm[i] = report.norm;
        here.loss[i] = report.loss;
        ck_assert_msg(report.norm > trainer->config.optim.clip, "step %d: clipping is idle", i);
    }
    int ranks = grid->tp * grid->dp;
    Trajectory *all = calloc((size_t)ranks, sizeof *all);
    ck_assert_ptr_nonnull(all);
    comm_gather_all(grid, GROUP_GRID, &here, sizeof here, all);
    if (ranks == 1) reference = here;
    comm_broadcast(grid, GROUP_GRID, &reference, sizeof reference, 0);
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < STEPS; i++) {
            ck_assert_msg(all[r].norm[i] == reference.norm[i],
                          "tp %d x dp %d, rank %d, step %d: norm %a, at one rank %a", grid->tp,
                          grid->dp, r, i, all[r].norm[i], reference.norm[i]);
            ck_assert_msg(all[r].loss[i] == reference.loss[i],
                          "tp %d x dp %d, rank %d, step %d: loss %a, at one rank %a", grid->tp,
                          grid->dp, r, i, all[r].loss[i], reference.loss[i]);
        }
    free(all);
}

START_TEST(norms_and_losses_are_equal_on_all_layouts) { on_layouts(run_steps); }
END_TEST

/* Another cut is another order of sums: there are last bits to differ in. */
START_TEST(another_cut_has_other_bits) {
    Config config = small_config();
    Grid grid;
    Trainer trainer;
    double norm[2];
    Hash128 gradient[2];
    for (int i = 0; i < 2; i++) {
        if (i) ck_assert_int_eq(config_set(&config, "grid.tensor=7"), 0);
        grid_serial(&grid);
        ck_assert_int_eq(trainer_open(&trainer, &config, &grid, 1, true), 0);
        norm[i] = step(&trainer).norm;
        gradient[i] = whole_hash(&grid, &trainer.model.set, PARAM_GRADIENT);
        trainer_close(&trainer);
    }
    ck_assert(!hash_equal(gradient[0], gradient[1]));
    ck_assert_msg(fabs(norm[0] - norm[1]) < 1000 * roundoff * norm[0], "%g and %g", norm[0],
                  norm[1]);
}
END_TEST

/* Every element of the whole model once, replicated tensors too. */
static void check_norm(Trainer *trainer, Grid *grid) {
    const ParamSet *set = &trainer->model.set;
    double found = step(trainer).norm, sum = 0;
    for (int p = 0; p < set->count; p++) {
        const Param *param = &set->param[p];
        double *gradient = whole_gather(grid, set, param, PARAM_GRADIENT);
        for (int64_t i = 0; i < param->rows * param->cols; i++) sum += gradient[i] * gradient[i];
        free(gradient);
    }
    ck_assert_msg(fabs(found - sqrt(sum)) < 1e-13 * found, "tp %d x dp %d: %.17g, expected %.17g",
                  grid->tp, grid->dp, found, sqrt(sum));
}

START_TEST(norm_counts_every_element_once) { on_layouts(check_norm); }
END_TEST

/* ---- replicas ---- */

/* The bytes of a tensor on this rank that the ranks of `group` must all have. */
static void assert_replicas(Grid *grid, Group group, const ParamSet *set, const Param *param,
                            ParamRole role) {
    for (int s = (int)param->owned.begin; s < param->owned.end; s++) {
        Tensor shard = param_shard(set, param, role, s);
        size_t bytes = (size_t)(shard.rows * shard.cols) * sizeof(real);
        int ranks = group_size(grid, group);
        char *all = calloc((size_t)ranks, bytes);
        ck_assert_ptr_nonnull(all);
        comm_gather_all(grid, group, shard.data, bytes, all);
        for (int r = 1; r < ranks; r++)
            ck_assert_msg(!memcmp(all, all + (size_t)r * bytes, bytes),
                          "tp %d x dp %d: %s differs on rank %d", grid->tp, grid->dp, param->name,
                          r);
        free(all);
    }
}

static void check_replicas(Trainer *trainer, Grid *grid) {
    const ParamSet *set = &trainer->model.set;
    const ParamRole role[] = {PARAM_VALUE, PARAM_MOMENT1, PARAM_MOMENT2};
    for (int i = 0; i < STEPS; i++) step(trainer);
    for (int p = 0; p < set->count; p++)
        for (int i = 0; i < 3; i++) {
            const Param *param = &set->param[p];
            if (param->split == SPLIT_NONE) assert_replicas(grid, GROUP_GRID, set, param, role[i]);
            assert_replicas(grid, GROUP_DATA, set, param, role[i]);
        }
    ck_assert_msg(drift_check(grid, set) == 0, "%s", error_message());
}

START_TEST(replicas_are_equal_after_some_steps) { on_layouts(check_replicas); }
END_TEST

/* One gain on one rank by one unit in the last place: found, and named. */
static void check_nudge(Trainer *trainer, Grid *grid) {
    const ParamSet *set = &trainer->model.set;
    int ranks = grid->tp * grid->dp;
    step(trainer);
    const Param *gain = &set->param[params_find(set, "model.norm.weight")];
    real *value = param_shard(set, gain, PARAM_VALUE, 0).data + 5;
    for (int nudged = 0; ranks > 1 && nudged < ranks; nudged++) {
        real before = *value;
        if (group_rank(grid, GROUP_GRID) == nudged)
            *value = (real)(sizeof(real) == 8 ? nextafter((double)before, 9)
                                              : nextafterf((float)before, 9));
        ck_assert_int_ne(drift_check(grid, set), 0);
        ck_assert_msg(strstr(error_message(), gain->name) != NULL, "%s", error_message());
        error_clear();
        *value = before;
        ck_assert_msg(drift_check(grid, set) == 0, "%s", error_message());
    }
}

START_TEST(a_replica_nudged_by_one_ulp_is_named) { on_layouts(check_nudge); }
END_TEST

/* ---- what a step does to the weights ---- */

/* AdamW after clipping, in double, from the gradient that the step left behind. */
static void check_update(Trainer *trainer, Grid *grid) {
    const ParamSet *set = &trainer->model.set;
    double **before = calloc((size_t)set->count, sizeof *before);
    ck_assert_ptr_nonnull(before);
    for (int p = 0; p < set->count; p++)
        before[p] = whole_gather(grid, set, &set->param[p], PARAM_VALUE);
    StepReport report = step(trainer);
    const double clip = trainer->config.optim.clip, decay = trainer->config.optim.weight_decay;
    ck_assert_double_eq(report.rate, trainer->config.optim.lr / (double)trainer->schedule.warmup);
    for (int p = 0; p < set->count; p++) {
        const Param *param = &set->param[p];
        double *after = whole_gather(grid, set, param, PARAM_VALUE);
        double *gradient = whole_gather(grid, set, param, PARAM_GRADIENT);
        ck_assert_int_eq(param->decay, param->rank == 2);
        for (int64_t i = 0; i < param->rows * param->cols; i++) {
            double g = gradient[i] * clip / report.norm; /* m/sqrt(v) is g/|g| in the first step */
            double expected = before[p][i] * (param->decay ? 1 - report.rate * decay : 1) -
                              report.rate * g / (fabs(g) + trainer->config.optim.eps);
            ck_assert_msg(fabs(after[i] - expected) < 8 * roundoff * (fabs(expected) + report.rate),
                          "%s[%d]: %.9g, expected %.9g", param->name, (int)i, after[i], expected);
        }
        free(before[p]);
        free(after);
        free(gradient);
    }
    free(before);
}

START_TEST(the_first_step_is_that_of_adamw) { on_layouts(check_update); }
END_TEST

int main(int argc, char **argv) {
    if (gemm_setup()) return EXIT_FAILURE;
    int status =
        run_mpi_suite(&argc, &argv, "layouts",
                      TESTS(norms_and_losses_are_equal_on_all_layouts, another_cut_has_other_bits,
                            norm_counts_every_element_once, replicas_are_equal_after_some_steps,
                            a_replica_nudged_by_one_ulp_is_named, the_first_step_is_that_of_adamw));
    if (rows_file.path[0]) unlink(rows_file.path);
    return status;
}
