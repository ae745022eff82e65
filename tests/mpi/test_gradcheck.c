/* weft gradcheck: every kind of FFN passes on 1 and 2 tensor ranks, in both models; a backward that
 * isn't its forward's fails, and names a tensor that it has spoiled. fp64 alone, on 2 ranks. */
#include "base/error.h"
#include "base/log.h"
#include "checkpoint/trace_file.h"
#include "nn/ffn.h"
#include "run/gradcheck.h"
#include "support/arrays.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const decoder[] = {"model.d_model=16", "model.heads=2",  "model.kv_heads=1",
                                      "model.context=8",  "ffn.d_ff=23",    "grid.tensor=2",
                                      "grid.data=2",      "model.layers=1", "train.global_batch=2",
                                      "ffn.bias=true",    "init.std=0.3",   NULL};

static const char *const mlp[] = {
    "model.kind=mlp",       "model.inputs=5",      "model.outputs=4",  "model.d_model=16",
    "ffn.d_ff=23",          "grid.tensor=3",       "grid.data=2",      "model.layers=2",
    "train.global_batch=8", "train.micro_batch=4", "data.kind=hdf5",   "data.held_out=0",
    "eval.every=0",         "model.heads=8",       "model.kv_heads=4", NULL};

typedef struct {
    const char *kind, *activation, *more; /* more: one assignment, or NULL */
    const char *const *base;
} Row;

static void set(Config *config, const char *key, const char *value) {
    char text[128];
    snprintf(text, sizeof text, "%s=%s", key, value);
    ck_assert_msg(config_set(config, text) == 0, "%s", error_message());
}

/* ---- rows for the mlp ---- */

static char rows_file[64];

/* Rank 0 writes them: inputs [12, 5], targets [12] (classes) or [12, 4]. */
static void write_rows(Grid *grid, bool classes) {
    enum { ROWS = 12, INPUTS = 5, OUTPUTS = 4 };
    static const int32_t class[ROWS] = {0, 3, 1, 2, 2, 0, 1, 3, 3, 1, 0, 2};
    real x[ROWS * INPUTS], y[ROWS * OUTPUTS];
    long process = (long)getpid();
    comm_broadcast(grid, GROUP_WORLD, &process, sizeof process, 0);
    snprintf(rows_file, sizeof rows_file, "/tmp/weft-gradcheck-%ld.h5", process);
    if (grid->world_rank == 0) {
        TraceFile file;
        array_fill(x, ROWS * INPUTS, 2, 1);
        array_fill(y, ROWS * OUTPUTS, 2, 2);
        unlink(rows_file);
        ck_assert_msg(trace_create(&file, rows_file, 0) == 0, "%s", error_message());
        TraceBlock inputs = {ROWS, INPUTS, 0, ROWS, x}, targets = {ROWS, OUTPUTS, 0, ROWS, y};
        ck_assert_int_eq(trace_put(&file, "inputs", &inputs), 0);
        ck_assert_int_eq(classes ? trace_put_integers(&file, "targets", class, ROWS)
                                 : trace_put(&file, "targets", &targets),
                         0);
        ck_assert_int_eq(trace_finish(&file), 0);
        trace_abandon(&file);
    }
    comm_barrier(grid, GROUP_WORLD);
}

static void with_rows(bool classes) {
    Grid grid;
    ck_assert_int_eq(comm_start(&grid), 0);
    write_rows(&grid, classes);
    comm_stop(&grid);
}

static void configure(Config *config, const Row *row) {
    config_defaults(config);
    ck_assert_int_eq(config_read(config, "tests/configs/tiny.ini"), 0);
    for (int i = 0; row->base[i]; i++)
        ck_assert_msg(config_set(config, row->base[i]) == 0, "%s", error_message());
    set(config, "ffn.kind", row->kind);
    set(config, "ffn.activation", row->activation);
    if (row->more) ck_assert_msg(config_set(config, row->more) == 0, "%s", error_message());
    if (row->base == mlp) set(config, "data.train", rows_file);
    ck_assert_int_eq(config_resolve(config), 0);
    ck_assert_msg(config_check(config) == 0, "%s", error_message());
}

/* Something done to a model before it is checked. */
typedef void (*Spoil)(Model *model);

static int check(const Row *row, int tp, int dp, Spoil spoil, GradcheckResult *result) {
    Config config;
    Grid grid;
    Trainer trainer;
    GradcheckOptions options = {.bound = GRADCHECK_BOUND, .samples = 1, .seed = 3};
    int status = 0;
    configure(&config, row);
    ck_assert_int_eq(comm_start(&grid), 0);
    ck_assert_int_eq(grid_open(&grid, tp, dp), 0);
    log_enable(false);
    if (!grid.surplus) {
        status = trainer_open(&trainer, &config, &grid, 1, true);
        ck_assert_msg(status == 0, "%s", error_message());
        if (spoil) spoil(&trainer.model);
        ck_assert_int_eq(trainer_survey(&trainer), 0);
        status = gradcheck_trainer(&trainer, &options, result);
        ck_assert_int_gt(result->elements, 0);
        trainer_close(&trainer);
    }
    comm_stop(&grid);
    return status;
}

static void passes(const Row *row, int tp, int dp) {
    GradcheckResult result = {.error = 0};
    int status = check(row, tp, dp, NULL, &result);
    ck_assert_msg(status == 0, "%s %s, tp %d x dp %d: %s", row->kind, row->activation, tp, dp,
                  error_message());
    if (tp * dp == 1 && result.rows)
        printf("  %-6s %-10s %-22s %4d of %4d elements within %.1e\n", row->kind, row->activation,
               row->more ? row->more : "", (int)(result.elements - result.skipped),
               (int)result.elements, result.error);
    ck_assert_msg(10 * result.skipped <= result.elements, "%s %s: %d of %d elements passed over",
                  row->kind, row->activation, (int)result.skipped, (int)result.elements);
}

/* ---- what passes ---- */

/* Any activation goes with any kind. */
START_TEST(every_kind_passes) {
    for (int k = 0; ffn_kinds[k]; k++)
        for (int a = 0; activations[a].name; a++) {
            Row row = {ffn_kinds[k]->name, activations[a].name, NULL, decoder};
            passes(&row, 1 + (k + a) % 2, 1);
        }
}
END_TEST

START_TEST(settings_pass) {
    static const Row row[] = {
        {"gated", "silu", "ffn.swish_beta=1.7", decoder},
        {"gated", "silu", "ffn.gate_clamp=0.5", decoder},
        {"gated", "gelu_tanh", "ffn.linear_clamp=0.5", decoder},
        {"gated", "relu", "ffn.linear_offset=1", decoder},
        {"gated", "gelu", "model.tie_embeddings=false", decoder},
        {"dense", "relu", "ffn.bias=false", decoder},
        {"dense", "gelu", "train.recompute=block", decoder},
        {"gated", "silu", "train.recompute=act", decoder},
        {"dense", "gelu", "train.recompute=none", decoder},
        {"gated", "silu", "parallel.sequence=true", decoder},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        passes(&row[i], i % 2 ? 2 : 1, i % 2 ? 1 : 2);
}
END_TEST

START_TEST(an_mlp_passes) {
    static const Row row[] = {{"gated", "silu", "model.loss=cross_entropy", mlp},
                              {"dense", "relu", "model.loss=squared_error", mlp}};
    static const Row own_rows = {"gated", "silu", "parallel.sequence=true", mlp};
    for (int i = 0; i < 2; i++) {
        with_rows(i == 0);
        passes(&row[i], 1, 2);
        passes(&row[i], 2, 1);
        if (i == 0) passes(&own_rows, 2, 1);
    }
    unlink(rows_file);
}
END_TEST

/* ---- what fails ---- */

static Activation spoiled;

/* The tanh form's values with the erf form's slopes. */
static void exact_backward(Model *model) {
    spoiled = *activation_find("gelu_tanh");
    spoiled.slope = activation_find("gelu")->slope;
    for (int64_t l = 0; l < model->config.layers; l++)
        model->layer[l].ffn.config.branches.activation = &spoiled;
}

static void zero_slope(int64_t n, const real *z, double beta, real *a, real *da) {
    activation_find("silu")->slope(n, z, beta, a, da);
    memset(da, 0, (size_t)n * sizeof *da);
}

/* The gate treated as a constant in the last layer. */
static void constant_gate(Model *model) {
    spoiled = *activation_find("silu");
    spoiled.slope = zero_slope;
    model->layer[model->config.layers - 1].ffn.config.branches.activation = &spoiled;
}

static void fails(const Row *row, Spoil spoil, const char *names) {
    for (int tp = 1; tp <= 2; tp++) {
        GradcheckResult result = {.error = 0};
        int status = check(row, tp, 1, spoil, &result);
        ck_assert_msg(status == (tp > 1 || result.rows ? WEFT_CHECK : 0), "tp %d: status %d", tp,
                      status);
        if (!status) continue; /* surplus */
        ck_assert_msg(strstr(error_message(), names), "\"%s\" isn't named: %s", names,
                      error_message());
        ck_assert_double_gt(result.error, 1e-5);
        ck_assert_int_gt(result.wrong, 0);
    }
}

START_TEST(wrong_gradients_fail) {
    Row tanh_form = {"gated", "gelu_tanh", NULL, decoder};
    Row silu = {"gated", "silu", NULL, decoder};
    fails(&tanh_form, exact_backward, "input of the first layer");
    fails(&silu, constant_gate, "element [");
}
END_TEST

int main(int argc, char **argv) {
    if (gemm_setup()) return EXIT_FAILURE;
    return run_mpi_suite(
        &argc, &argv, "gradcheck",
        TESTS(every_kind_passes, settings_pass, an_mlp_passes, wrong_gradients_fail));
}
