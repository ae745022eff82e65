/* Steps that overflow for real causes, built into the weights: the guard keeps them from the
 * parameters, and names the same first tensor at every layout and in every recompute mode. Faults
 * that go away are in e2e/nonfinite.sh. On 3 ranks. */
#include "base/error.h"
#include "base/log.h"
#include "nn/observer.h"
#include "run/guard.h"
#include "support/support.h"
#include "support/whole.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 8, ROWS = 32, WIDTH = 64, CHANNEL = 100, LAYOUTS = 4 };

static const double huge = sizeof(real) == 8 ? 1e160 : 1e20; /* its square overflows */
static const double most = sizeof(real) == 8 ? DBL_MAX : FLT_MAX;
static const int layouts[LAYOUTS][2] = {{1, 1}, {2, 1}, {3, 1}, {1, 3}}; /* tp, dp */

typedef void (*OnTrainer)(Trainer *trainer, Grid *grid);

/* 8 microbatches of one sequence in 4 batch shards. No dropout: it would hide elements. */
static Config small_config(const char *mode, const char *policy) {
    char recompute[64], nonfinite[64];
    snprintf(recompute, sizeof recompute, "train.recompute=%s", mode);
    snprintf(nonfinite, sizeof nonfinite, "train.on_nonfinite=%s", policy);
    const char *const set[] = {recompute, nonfinite, "ffn.hidden_dropout=0", "ffn.output_dropout=0",
                               "model.tie_embeddings=false"};
    Config config;
    config_defaults(&config);
    ck_assert_msg(config_read(&config, "tests/configs/tiny.ini") == 0, "%s", error_message());
    for (int i = 0; i < 5; i++) ck_assert_int_eq(config_set(&config, set[i]), 0);
    ck_assert_msg(config_check(&config) == 0, "%s", error_message());
    return config;
}

static void on_layout(const Config *config, int tp, int dp, OnTrainer body) {
    Grid grid;
    Trainer trainer;
    ck_assert_int_eq(comm_start(&grid), 0);
    ck_assert_msg(grid_open(&grid, tp, dp) == 0, "%s", error_message());
    if (!grid.surplus) {
        int status = trainer_open(&trainer, config, &grid, 1, true);
        ck_assert_msg(status == 0, "tp %d x dp %d: %s", tp, dp, error_message());
        body(&trainer, &grid);
        trainer_close(&trainer);
    }
    grid_wait_surplus(&grid, 0);
    comm_stop(&grid);
}

static void on_layouts(const char *policy, OnTrainer body) {
    Config config = small_config("none", policy);
    for (int i = 0; i < LAYOUTS; i++) on_layout(&config, layouts[i][0], layouts[i][1], body);
    config.parallel.sequence = true;
    on_layout(&config, 3, 1, body);
}

static void on_modes(const char *policy, OnTrainer body) {
    static const char *const modes[] = {"act", "block"};
    for (int m = 0; m < 2; m++) {
        Config config = small_config(modes[m], policy);
        on_layout(&config, 1, 1, body);
        on_layout(&config, 3, 1, body);
        config.parallel.sequence = true;
        on_layout(&config, 2, 1, body);
    }
}

static const Param *find(const Trainer *trainer, const char *name) {
    int place = params_find(&trainer->model.set, name);
    ck_assert_msg(place >= 0, "there is no %s", name);
    return &trainer->model.set.param[place];
}

static void put(Trainer *trainer, const char *name, int64_t row, int64_t col, double value) {
    real *here = whole_element(&trainer->model.set, find(trainer, name), PARAM_VALUE, row, col);
    if (here) *here = (real)value;
}

static void put_row(Trainer *trainer, const char *name, int64_t row, double value) {
    for (int64_t j = 0; j < find(trainer, name)->cols; j++) put(trainer, name, row, j, value);
}

static void put_col(Trainer *trainer, const char *name, int64_t col, double value) {
    for (int64_t i = 0; i < find(trainer, name)->rows; i++) put(trainer, name, i, col, value);
}

/* Values and moments, whole. */
static Hash128 state_hash(Trainer *trainer, Grid *grid) {
    const ParamSet *set = &trainer->model.set;
    Hash128 part[] = {whole_hash(grid, set, PARAM_VALUE), whole_hash(grid, set, PARAM_MOMENT1),
                      whole_hash(grid, set, PARAM_MOMENT2)};
    return hash_bytes(part, sizeof part);
}

/* ---- a search ---- */

typedef struct {
    GuardPlace place;
    int64_t microbatch, row, col;
    int layer;
    bool gradient;
    const char *name;
    double value; /* NaN: whatever it is */
} Expected;

static void assert_finding(const Finding *found, const Expected *expected) {
    char text[512];
    guard_describe(found, text, sizeof text);
    ck_assert_msg(
        found->place == (int64_t)expected->place && found->microbatch == expected->microbatch &&
            found->row == expected->row && found->col == expected->col &&
            found->layer == expected->layer && found->gradient == expected->gradient &&
            !strcmp(found->name, expected->name) && !isfinite(found->value),
        "found: %s; expected %s [%d, %d] of microbatch %d, layer %d", text, expected->name,
        (int)expected->row, (int)expected->col, (int)expected->microbatch, expected->layer);
    if (!isnan(expected->value)) ck_assert_double_eq(found->value, expected->value);
}

/* The step ends the run: its state is as it was, and the message names what was expected. */
static void assert_stop(Trainer *trainer, Grid *grid, const Expected *expected) {
    StepReport report = {0};
    Finding found;
    char text[512];
    Hash128 before = state_hash(trainer, grid);
    int64_t step = trainer->step;
    ck_assert_int_eq(trainer_step(trainer, &report), WEFT_RUNTIME);
    ck_assert(error_is_agreed());
    ck_assert(hash_equal(before, state_hash(trainer, grid)));
    ck_assert_int_eq(trainer->step, step);
    ck_assert_int_eq(guard_search(trainer, &found), 0);
    assert_finding(&found, expected);
    guard_describe(&found, text, sizeof text);
    ck_assert_msg(strstr(error_message(), text) != NULL, "\"%s\" lacks \"%s\"", error_message(),
                  text);
    ck_assert_ptr_null(trainer->model.space.observer);
}

/* ---- forward, in one microbatch of many ---- */

typedef struct {
    int token;
    int64_t microbatch, row;
} Rare;

/* A token that one microbatch of the first step alone reads, after the first batch shard. */
static Rare find_rare(Trainer *trainer) {
    int64_t seen[256] = {0}, last[256], row[256];
    for (int64_t m = 0; m < BATCH; m++) {
        ck_assert_int_eq(dataset_train_batch(&trainer->data, 0, BATCH, m, &trainer->micro, NULL),
                         0);
        for (int64_t t = ROWS - 1; t >= 0; t--) {
            int token = trainer->micro.tokens[t] & 255;
            seen[token] |= (int64_t)1 << m;
            last[token] = m;
            row[token] = t;
        }
    }
    for (int token = 0; token < 256; token++)
        if (seen[token] && last[token] >= 3 && seen[token] == (int64_t)1 << last[token])
            return (Rare){token, last[token], row[token]};
    ck_abort_msg("no token is in one microbatch alone");
    return (Rare){0};
}

/* Dimension 0 of the stream is zero, but for tokens that are given it: nothing writes to it. */
static void free_dimension(Trainer *trainer) {
    put_col(trainer, "model.embed_tokens.weight", 0, 0);
    for (int l = 0; l < 2; l++) {
        char name[PARAM_NAME];
        snprintf(name, sizeof name, "model.layers.%d.self_attn.o_proj.weight", l);
        put_row(trainer, name, 0, 0);
        snprintf(name, sizeof name, "model.layers.%d.mlp.down_proj.weight", l);
        put_row(trainer, name, 0, 0);
    }
}

/* The token is `value` in the free dimension and nothing else. */
static void give(Trainer *trainer, int token, double value) {
    put_row(trainer, "model.embed_tokens.weight", token, 0);
    put(trainer, "model.embed_tokens.weight", token, 0, value);
}

/* Such a token, with the sign of `gate`, overflows in this channel of layer 1. */
static void set_trap(Trainer *trainer, int64_t channel, double gate) {
    put(trainer, "model.layers.1.mlp.gate_proj.weight", channel, 0, gate);
    put(trainer, "model.layers.1.mlp.up_proj.weight", channel, 0, huge);
}

static Expected overflow_forward(Trainer *trainer) {
    Rare rare = find_rare(trainer);
    free_dimension(trainer);
    give(trainer, rare.token, 1000);
    set_trap(trainer, CHANNEL, huge);
    return (Expected){GUARD_MICROBATCH, rare.microbatch, rare.row, CHANNEL, 1, false,
                      "ffn.act",        INFINITY};
}

static void check_forward(Trainer *trainer, Grid *grid) {
    Expected expected = overflow_forward(trainer);
    assert_stop(trainer, grid, &expected);
}

START_TEST(one_token_overflows_in_forward) {
    on_layouts("stop", check_forward);
    on_modes("stop", check_forward);
}
END_TEST

/* In two channels: a later one in the first row, an earlier one in a later row. */
static void check_first_row(Trainer *trainer, Grid *grid) {
    Expected expected = {GUARD_MICROBATCH, 0, 0, CHANNEL, 1, false, "ffn.act", -INFINITY};
    int other = 1;
    ck_assert_int_eq(dataset_train_batch(&trainer->data, 0, BATCH, 0, &trainer->micro, NULL), 0);
    while (trainer->micro.tokens[other] == trainer->micro.tokens[0]) other++;
    free_dimension(trainer);
    give(trainer, trainer->micro.tokens[0], -1000);
    give(trainer, trainer->micro.tokens[other], 1000);
    set_trap(trainer, CHANNEL, -huge);
    set_trap(trainer, CHANNEL / 5, huge);
    assert_stop(trainer, grid, &expected);
}

START_TEST(the_first_row_of_all_pieces_counts) { on_layouts("stop", check_first_row); }
END_TEST

/* ---- backward ---- */

/* A closed gate hides what is beyond it from forward, and multiplies the gradient of the gate. */
static Expected overflow_backward(Trainer *trainer) {
    put_row(trainer, "model.layers.0.mlp.gate_proj.weight", CHANNEL, 0);
    put_row(trainer, "model.layers.0.mlp.up_proj.weight", CHANNEL, huge);
    put_col(trainer, "model.layers.0.mlp.down_proj.weight", CHANNEL, huge * sqrt(huge));
    return (Expected){
        GUARD_MICROBATCH, 0, CHANNEL, 0, 0, true, "model.layers.0.mlp.gate_proj.weight", NAN};
}

static void check_backward(Trainer *trainer, Grid *grid) {
    Expected expected = overflow_backward(trainer);
    assert_stop(trainer, grid, &expected);
    ck_assert_ptr_nonnull(strstr(error_message(), ": loss 5."));
}

START_TEST(a_gradient_overflows) {
    on_layouts("stop", check_backward);
    on_modes("stop", check_backward);
}
END_TEST

/* ---- sums ---- */

/* With up closed, all that is beyond it reaches nothing but up's own gradient in one channel, in
 * proportion to `factor`. */
static void scale_gradient(Trainer *trainer, double factor) {
    put_row(trainer, "model.layers.0.mlp.gate_proj.weight", CHANNEL, 0);
    put(trainer, "model.layers.0.mlp.gate_proj.bias", 0, CHANNEL, 1);
    put_row(trainer, "model.layers.0.mlp.up_proj.weight", CHANNEL, 0);
    put_col(trainer, "model.layers.0.mlp.down_proj.weight", CHANNEL, factor);
}

static bool is_up_gradient(const Seen *seen) {
    return seen->gradient && !strcmp(seen->name, "model.layers.0.mlp.up_proj.weight");
}

static void note_largest(void *context, const Seen *seen) {
    double *largest = context;
    if (!is_up_gradient(seen)) return;
    for (int64_t i = 0; i < seen->data.rows; i++)
        for (int64_t j = 0; seen->row + i == CHANNEL && j < seen->data.cols; j++)
            *largest = fmax(*largest, fabs((double)tensor_row(seen->data, i)[j]));
}

static double sum_factor; /* every microbatch's gradient fits, their sum doesn't */
static int sum_column;    /* the first whose sum doesn't */

/* At factor 1: the largest element within batch shards against the largest of the sum. */
static void find_factor(Trainer *trainer, Grid *grid) {
    double within = 0, loss, norm, sum = 0;
    Observer observer = {.see = note_largest, .context = &within};
    scale_gradient(trainer, 1);
    trainer->model.space.observer = &observer;
    ck_assert_int_eq(trainer_gradient(trainer, &loss, &norm), 0);
    double *whole =
        whole_gather(grid, &trainer->model.set, find(trainer, "model.layers.0.mlp.up_proj.weight"),
                     PARAM_GRADIENT);
    const double *row = whole + CHANNEL * WIDTH;
    for (int j = 0; j < WIDTH; j++) sum = fmax(sum, fabs(row[j]));
    ck_assert_msg(sum > 1.2 * within, "largest sum %g, within a batch shard %g", sum, within);
    sum_factor = most / sqrt(sum * within);
    while (fabs(row[sum_column]) * sum_factor < most) sum_column++;
    free(whole);
}

static void check_sum(Trainer *trainer, Grid *grid) {
    Expected expected = {
        GUARD_SUM, 0, CHANNEL, sum_column, -1, false, "model.layers.0.mlp.up_proj.weight", NAN};
    scale_gradient(trainer, sum_factor);
    assert_stop(trainer, grid, &expected);
}

START_TEST(a_sum_over_the_batch_overflows) {
    Config config = small_config("none", "stop");
    Grid grid;
    Trainer trainer;
    grid_serial(&grid);
    ck_assert_int_eq(trainer_open(&trainer, &config, &grid, 1, true), 0);
    find_factor(&trainer, &grid);
    trainer_close(&trainer);
    on_layouts("stop", check_sum);
}
END_TEST

/* Squares are taken in double: floats can't overflow it, doubles can. */
static void check_norm(Trainer *trainer, Grid *grid) {
    scale_gradient(trainer, sizeof(real) == 8 ? 1e200 : 1e36);
    if (sizeof(real) == 8) {
        assert_stop(trainer, grid,
                    &(Expected){.place = GUARD_RESULT, .layer = -1, .name = "", .value = INFINITY});
        return;
    }
    StepReport report = {0};
    ck_assert_msg(trainer_step(trainer, &report) == 0, "%s", error_message());
    ck_assert_double_gt(report.norm, 1e30);
    ck_assert(!report.repeated);
}

START_TEST(a_norm_overflows_in_double_alone) { on_layouts("stop", check_norm); }
END_TEST

/* ---- parameters ---- */

/* Skipping would mend nothing. */
static void check_parameter(Trainer *trainer, Grid *grid) {
    Expected expected = {
        GUARD_PARAMETER, 0, 5, 9, -1, false, "model.layers.1.self_attn.q_proj.weight", NAN};
    put(trainer, expected.name, 5, 9, NAN);
    assert_stop(trainer, grid, &expected);
}

START_TEST(a_damaged_parameter_comes_first) {
    on_layouts("stop", check_parameter);
    on_layouts("skip", check_parameter);
}
END_TEST

/* One replica alone: its rank is named, and the others don't go on without it. */
static void check_replica(Trainer *trainer, Grid *grid) {
    const Param *gain = find(trainer, "model.norm.weight");
    bool last = grid->tensor_rank == grid->tp - 1;
    Finding found;
    StepReport report = {0};
    ck_assert_int_eq(trainer_step(trainer, &report), 0);

    /* its gradient alone: the norm counts another replica */
    param_shard(&trainer->model.set, gain, PARAM_GRADIENT, 0).data[3] = last ? (real)INFINITY : 0;
    double norm = gradient_norm(&trainer->norm, &trainer->model.set, grid, 1);
    ck_assert(last ? !isfinite(norm) : isfinite(norm) != 0);
    report.norm = norm;
    ck_assert_int_eq(guard_step(trainer, &report), 0);
    ck_assert(report.repeated && isfinite(report.norm));

    if (last) param_shard(&trainer->model.set, gain, PARAM_VALUE, 0).data[3] = (real)INFINITY;
    ck_assert_int_eq(trainer_step(trainer, &report), WEFT_RUNTIME);
    ck_assert_int_eq(guard_search(trainer, &found), 0);
    Expected expected = {GUARD_PARAMETER, 0, 0, 3, -1, false, "model.norm.weight", INFINITY};
    assert_finding(&found, &expected);
    ck_assert_int_eq(found.rank, grid->tp - 1);
}

START_TEST(one_replica_is_damaged) {
    Config config = small_config("none", "stop");
    on_layout(&config, 3, 1, check_replica);
}
END_TEST

/* ---- skipping ---- */

static Hash128 mended; /* the state after a skipped and a good step, at the first layout */

static void check_skip(Trainer *trainer, Grid *grid) {
    StepReport report = {0};
    overflow_forward(trainer);
    Hash128 before = state_hash(trainer, grid);
    ck_assert_msg(trainer_step(trainer, &report) == 0, "%s", error_message());
    ck_assert(report.skipped && report.repeated && !isfinite(report.loss));
    ck_assert(hash_equal(before, state_hash(trainer, grid)));
    ck_assert_int_eq(trainer->skips, 1);
    ck_assert_int_eq(trainer->step, 1);
    ck_assert_int_eq(trainer->tokens_seen, BATCH * ROWS);
    ck_assert_int_eq(report.step, 1);
    ck_assert_double_eq(report.rate, schedule_rate(&trainer->schedule, 0));

    put(trainer, "model.layers.1.mlp.gate_proj.weight", CHANNEL, 0, 0);
    put(trainer, "model.layers.1.mlp.up_proj.weight", CHANNEL, 0, 0);
    ck_assert_msg(trainer_step(trainer, &report) == 0, "%s", error_message());
    ck_assert(!report.skipped && !report.repeated && isfinite(report.loss));
    ck_assert_int_eq(trainer->skips, 0);
    Hash128 after = state_hash(trainer, grid);
    ck_assert(!hash_equal(before, after));
    if (grid->tp * grid->dp == 1) mended = after;
    comm_broadcast(grid, GROUP_GRID, &mended, sizeof mended, 0);
    ck_assert_msg(hash_equal(after, mended), "tp %d x dp %d: another state", grid->tp, grid->dp);
}

START_TEST(a_skipped_step_changes_no_parameter) { on_layouts("skip", check_skip); }
END_TEST

static void check_many(Trainer *trainer, Grid *grid) {
    Expected expected = overflow_backward(trainer);
    for (int i = 0; i < GUARD_SKIPS; i++) {
        StepReport report = {0};
        ck_assert_msg(trainer_step(trainer, &report) == 0, "%s", error_message());
        ck_assert(report.skipped);
    }
    assert_stop(trainer, grid, &expected);
    ck_assert_ptr_nonnull(strstr(error_message(), "after 10 skipped steps in a row"));
    ck_assert_int_eq(trainer->step, GUARD_SKIPS);
}

START_TEST(ten_in_a_row_are_enough) {
    Config config = small_config("none", "skip");
    on_layout(&config, 1, 1, check_many);
    on_layout(&config, 2, 1, check_many);
}
END_TEST

int main(int argc, char **argv) {
    if (gemm_setup()) return EXIT_FAILURE;
    log_enable(false);
    return run_mpi_suite(&argc, &argv, "guard",
                         TESTS(one_token_overflows_in_forward, the_first_row_of_all_pieces_counts,
                               a_gradient_overflows, a_sum_over_the_batch_overflows,
                               a_norm_overflows_in_double_alone, a_damaged_parameter_comes_first,
                               one_replica_is_damaged, a_skipped_step_changes_no_parameter,
                               ten_in_a_row_are_enough));
}
