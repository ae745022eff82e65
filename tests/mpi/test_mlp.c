/* The mlp against the naive one: loss and every gradient under both losses, and what only an mlp
 * has. On 3 ranks; tp 1 runs on every rank by itself. */
#include "base/error.h"
#include "nn/observer.h"
#include "support/oracle_layouts.h"
#include "support/support.h"
#include "support/whole.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Relative to the tensor's largest gradient; seen: 1.2e-14 in fp64, 1.3e-6 in fp32. */
static const double tolerance = sizeof(real) == 8 ? 1e-12 : 6e-6;

static const OraclePlan base = {.name = "base",
                                .model = MODEL_MLP,
                                .inputs = 21,
                                .outputs = 11,
                                .d_model = 40,
                                .layers = 2,
                                .d_ff = 93,
                                .sequences = 70,
                                .context = 1,
                                .kind = "gated",
                                .activation = "silu",
                                .bias = true,
                                .masked = true,
                                .hidden_dropout = 0.1,
                                .output_dropout = 0.2,
                                .shards = 8,
                                .microbatches = 2,
                                .fusion = FUSION_BLOCK};

static const HeadLoss losses[] = {LOSS_CROSS_ENTROPY, LOSS_SQUARED_ERROR};

START_TEST(kinds_and_losses_equal_the_naive_mlp) {
    static const char *const row[][3] = {{"gated silu", "gated", "silu"},
                                         {"gated gelu_tanh", "gated", "gelu_tanh"},
                                         {"dual relu", "dual", "relu"},
                                         {"dense gelu", "dense", "gelu"},
                                         {"dense relu", "dense", "relu"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        OraclePlan plan = base;
        plan.name = row[i][0];
        plan.kind = row[i][1];
        plan.activation = row[i][2];
        plan.loss = losses[i % 2];
        oracle_check_plan(&plan, tolerance);
    }
}
END_TEST

START_TEST(recompute_modes_equal_the_naive_mlp) {
    OraclePlan plan = base;
    plan.name = "cross entropy, gated";
    oracle_check_modes(&plan, tolerance);
    plan.name = "squared error, dense";
    plan.kind = "dense";
    plan.activation = "gelu";
    plan.loss = LOSS_SQUARED_ERROR;
    plan.microbatches = 3;
    oracle_check_modes(&plan, tolerance);
}
END_TEST

START_TEST(uneven_cuts_equal_the_naive_mlp) {
    for (int l = 0; l < 2; l++) {
        OraclePlan plan = base;
        plan.name = "width 37, 1 input, 1 or 2 outputs, 3 threads";
        plan.loss = losses[l];
        plan.d_model = 37;
        plan.inputs = 1;
        plan.outputs = losses[l] == LOSS_SQUARED_ERROR ? 1 : 2;
        plan.sequences = 129;
        plan.threads = 3;
        oracle_check_plan(&plan, tolerance);
        plan = base;
        plan.name = "fewer of everything than shards";
        plan.loss = losses[l];
        plan.sequences = 2;
        plan.d_model = 5;
        plan.d_ff = 3;
        plan.outputs = 2;
        plan.masked = false;
        oracle_check_plan(&plan, tolerance);
        plan = base;
        plan.name = "3 shards, no bias, no dropout, 7 layers";
        plan.loss = losses[l];
        plan.shards = plan.inputs = 3;
        plan.layers = 7;
        plan.bias = false;
        plan.hidden_dropout = plan.output_dropout = 0;
        oracle_check_plan(&plan, tolerance);
    }
}
END_TEST

/* Many outputs go through the head in several chunks of rows, each with its part of the bias. */
START_TEST(a_chunked_head_equals_the_naive_mlp) {
    OraclePlan plan = base;
    plan.name = "40000 outputs, head in two chunks";
    plan.loss = LOSS_SQUARED_ERROR;
    plan.outputs = 40000;
    plan.layers = plan.microbatches = 1;
    plan.d_model = 8;
    plan.sequences = 140;
    oracle_check_plan(&plan, tolerance);
}
END_TEST

START_TEST(sequence_regions_equal_the_naive_mlp) {
    for (int l = 0; l < 2; l++) {
        OraclePlan plan = base;
        plan.sequence = true;
        plan.loss = losses[l];
        plan.transport = l ? TRANSPORT_MESSAGES : TRANSPORT_WINDOW;
        plan.name = l ? "own rows, squared error, messages" : "own rows, cross entropy";
        oracle_check_modes(&plan, tolerance);
        plan.name = "2 rows, fewer of everything than shards";
        plan.sequences = 2;
        plan.d_model = plan.d_ff = 3;
        plan.masked = false;
        oracle_check_plan(&plan, tolerance);
    }
}
END_TEST

START_TEST(allreduce_is_close) {
    OraclePlan plan = base;
    plan.name = "allreduce, squared error, block";
    plan.reduction = REDUCTION_ALLREDUCE;
    plan.loss = LOSS_SQUARED_ERROR;
    plan.recompute = RECOMPUTE_BLOCK;
    oracle_check_plan(&plan, tolerance);
}
END_TEST

/* ---- one model beside its oracle, on every layout ---- */

typedef void (*OnModel)(Model *model, Oracle *oracle);

static void with_model(Grid *grid, const OraclePlan *plan, OnModel body) {
    Oracle oracle;
    Model model;
    oracle_open(&oracle, plan);
    oracle_subject(&model, plan, grid);
    oracle_weights(&model, &oracle);
    body(&model, &oracle);
    model_release(&model);
    oracle_close(&oracle);
}

static OraclePlan plain_plan(HeadLoss loss) {
    OraclePlan plan = base;
    plan.loss = loss;
    plan.microbatches = 1;
    plan.hidden_dropout = plan.output_dropout = 0;
    return plan;
}

static int64_t naive_hits(const Oracle *oracle) {
    const double *outputs = naive_mlp_outputs(oracle->mlp);
    int64_t hits = 0, n = oracle->plan.outputs;
    for (int64_t t = 0; t < oracle->plan.sequences; t++) {
        int best = 0;
        for (int c = 1; c < n; c++)
            if (outputs[t * n + c] > outputs[t * n + best]) best = c;
        hits += oracle->targets[t] == best;
    }
    return hits;
}

/* Then every class has the largest logit, 0: of masked rows too, that don't count. */
static void zero_outputs(Model *model) {
    static const char *const name[] = {"output.weight", "output.bias"};
    for (int i = 0; i < 2; i++) {
        const Param *param = &model->set.param[params_find(&model->set, name[i])];
        double *zeros = naive_array(param->rows * param->cols);
        whole_scatter(&model->set, param, PARAM_VALUE, zeros);
        free(zeros);
    }
}

static void check_evaluation(Model *model, Oracle *oracle) {
    bool classes = oracle->plan.loss == LOSS_CROSS_ENTROPY;
    Microbatch batch = oracle_batch(oracle, 0);
    int64_t hits, expected = classes ? naive_hits(oracle) : 0;
    double loss;
    ck_assert_int_eq(model_evaluate(model, &batch, &loss, &hits), 0);
    loss /= oracle->divisor;
    ck_assert_msg(loss == oracle_train(model, oracle), "other than in training without dropout");
    ck_assert(whole_difference(1, &loss, &oracle->loss) <= tolerance);
    ck_assert_int_eq(hits, expected);
    ck_assert(!classes || (hits > 0 && hits < oracle->divisor));
    zero_outputs(model);
    ck_assert_int_eq(model_evaluate(model, &batch, &loss, &hits), 0);
    ck_assert_int_eq(hits, classes ? (int64_t)oracle->divisor : 0);
}

static void check_outputs(Model *model, Oracle *oracle) {
    int64_t n = oracle->plan.outputs, rows = oracle->plan.sequences;
    Microbatch batch = oracle_batch(oracle, 0);
    double *outputs = naive_array(rows * n);
    for (int64_t t = 0; t < rows; t += 3) {
        ck_assert_int_eq(model_logits(model, &batch, t, outputs + t * n), 0);
        double found = whole_difference(n, outputs + t * n, naive_mlp_outputs(oracle->mlp) + t * n);
        ck_assert_msg(found <= 10 * tolerance, "row %d: outputs differ by %g", (int)t, found);
    }
    free(outputs);
}

static void check_predictions(Grid *grid, const void *context) {
    OraclePlan plan = plain_plan(*(const HeadLoss *)context);
    with_model(grid, &plan, check_evaluation);
    with_model(grid, &plan, check_outputs);
}

START_TEST(hits_and_outputs_are_those_of_the_naive_mlp) {
    for (int l = 0; l < 2; l++) oracle_on_layouts(check_predictions, &losses[l]);
}
END_TEST

/* ---- rows ---- */

static Hash128 bits_of(Model *model, const Oracle *oracle) {
    double loss = oracle_train(model, oracle);
    Hash128 gradients = whole_hash(model->grid, &model->set, PARAM_GRADIENT);
    return hash_bytes((Hash128[]){gradients, hash_bytes(&loss, sizeof loss)}, 2 * sizeof gradients);
}

/* What a masked row should have given doesn't matter, NaN neither; what another should have given
 * does. */
static void check_masked(Model *model, Oracle *oracle) {
    int64_t n = oracle->plan.outputs, masked = 3, other = 4;
    ck_assert(oracle->targets[masked] < 0 && oracle->targets[other] >= 0);
    Hash128 before = bits_of(model, oracle);
    for (int64_t i = 0; i < n; i++) oracle->real_values[masked * n + i] = (real)NAN;
    ck_assert_msg(hash_equal(before, bits_of(model, oracle)), "a masked row counts");
    oracle->real_values[other * n + n - 1] += 1;
    ck_assert(!hash_equal(before, bits_of(model, oracle)));
}

/* Rows of inputs may lie apart: the same bits. */
static void check_apart(Model *model, Oracle *oracle) {
    int64_t a = oracle->plan.inputs, rows = oracle->plan.sequences, gap = 5;
    Hash128 hash[2];
    Microbatch batch = oracle_batch(oracle, 0);
    real *apart = calloc((size_t)(rows * (a + gap)), sizeof *apart);
    ck_assert_ptr_nonnull(apart);
    for (int64_t t = 0; t < rows; t++)
        memcpy(apart + t * (a + gap), tensor_row(batch.inputs, t), (size_t)a * sizeof *apart);
    for (int i = 0; i < 2; i++) {
        double loss;
        if (i) batch.inputs = (Tensor){apart, rows, a, a + gap};
        memset(model->set.arena[PARAM_GRADIENT], 0, params_bytes(&model->set, 1));
        ck_assert_int_eq(model_train(model, &(Pass){1, 2, true}, &batch, 1, &loss), 0);
        hash[i] = whole_hash(model->grid, &model->set, PARAM_GRADIENT);
    }
    ck_assert(hash_equal(hash[0], hash[1]));
    free(apart);
}

static void check_rows(Grid *grid, const void *context) {
    (void)context;
    OraclePlan plan = plain_plan(LOSS_SQUARED_ERROR);
    with_model(grid, &plan, check_masked);
    with_model(grid, &plan, check_apart);
}

START_TEST(masked_rows_and_the_place_of_rows_change_nothing) {
    oracle_on_layouts(check_rows, NULL);
}
END_TEST

/* ---- the comparison can fail ---- */

START_TEST(a_mix_up_is_noticed) {
    OraclePlan plan = plain_plan(LOSS_CROSS_ENTROPY), other = plan;
    Oracle oracle;
    Model model;
    Grid grid;
    grid_serial(&grid);
    oracle_open(&oracle, &plan);
    other.loss = LOSS_SQUARED_ERROR;
    oracle.plan.loss = other.loss; /* weft's batches have values; the naive loss is past */
    oracle_subject(&model, &other, &grid);
    oracle_weights(&model, &oracle);
    OracleResult result = oracle_compare(&model, &grid, &oracle, oracle_train(&model, &oracle));
    ck_assert(result.loss > 10 * tolerance && result.gradient > 10 * tolerance);
    model_release(&model);
    oracle_close(&oracle);
}
END_TEST

/* ---- what an mlp is made of ---- */

/* Of one layer, forward and then backward. */
static const char *const seen_names[] = {"input",
                                         "norm.ffn",
                                         "ffn.gate",
                                         "ffn.up",
                                         "ffn.act",
                                         "ffn.down",
                                         "resid.ffn",
                                         "norm.final",
                                         "logits",
                                         "loss",
                                         "output.weight",
                                         "output.bias",
                                         "model.norm.weight",
                                         "head.input",
                                         "model.layers.0.mlp.down_proj.bias",
                                         "model.layers.0.mlp.down_proj.weight",
                                         "model.layers.0.mlp.gate_proj.weight",
                                         "model.layers.0.mlp.gate_proj.bias",
                                         "model.layers.0.mlp.up_proj.weight",
                                         "model.layers.0.mlp.up_proj.bias",
                                         "model.layers.0.norm.weight",
                                         "layer.input",
                                         "input.weight",
                                         "input.bias"};
enum { PLACES = sizeof seen_names / sizeof *seen_names };

typedef struct {
    Hash128 bits[PLACES]; /* sums over pieces */
    bool first_rank;      /* counts what is not cut */
} Record;

static void record(void *context, const Seen *seen) {
    Record *here = context;
    ck_assert_int_lt(seen->place, PLACES);
    ck_assert_str_eq(seen->name, seen_names[seen->place]);
    if (!seen->cut && !here->first_rank) return;
    Hash128 *bits = &here->bits[seen->place];
    for (int64_t i = 0; i < seen->data.rows; i++)
        *bits = hash_add(
            *bits, hash_elements(hash_text(seen->name), (seen->row + i) * seen->cols + seen->col,
                                 tensor_row(seen->data, i), seen->data.cols, sizeof(real)));
}

static Record reference; /* of tp 1 without recomputation */

static void check_seen(Model *model, Oracle *oracle) {
    Record here = {.first_rank = model->set.tensor_rank == 0};
    Observer observer = {.see = record, .context = &here};
    model->space.observer = &observer;
    oracle_train(model, oracle);
    ck_assert_int_eq(observer.place, PLACES);
    comm_sum_hashes(model->grid, GROUP_TENSOR, here.bits, PLACES);
    if (model->grid->tp == 1 && oracle->plan.recompute == RECOMPUTE_NONE) reference = here;
    for (int p = 0; p < PLACES; p++)
        ck_assert_msg(hash_equal(here.bits[p], reference.bits[p]), "other bits in %s",
                      seen_names[p]);
}

static void check_observed(Grid *grid, const void *context) {
    (void)context;
    OraclePlan plan = base;
    plan.layers = plan.microbatches = 1;
    for (int mode = RECOMPUTE_NONE; mode <= RECOMPUTE_BLOCK; mode++) {
        plan.recompute = (Recompute)mode;
        with_model(grid, &plan, check_seen);
    }
}

START_TEST(observers_are_shown_the_same_everywhere) { oracle_on_layouts(check_observed, NULL); }
END_TEST

static void check_parts(Model *model, Oracle *oracle) {
    (void)oracle;
    ck_assert_ptr_null(model->exchange_attention);
    for (int p = 0; p < model->set.count; p++) {
        const Param *param = &model->set.param[p];
        ck_assert_msg(!strstr(param->name, "attn"), "%s", param->name);
        ck_assert_int_eq(param->decay, param->rank == 2);
    }
    ck_assert_uint_eq(model->arena.used, model->arena.capacity);
    ck_assert_uint_eq(model_forward_products(&model->config), 40 * 21 + 2 * 3 * 40 * 93 + 40 * 11);
    int64_t layer = 40 + 3 * 40 * 93 + 93 + 93 + 40;
    ck_assert_int_eq(params_count(&model->set), 40 * 21 + 40 + 2 * layer + 40 + 11 * 40 + 11);
}

static void check_anatomy(Grid *grid, const void *context) {
    (void)context;
    with_model(grid, &base, check_parts);
}

START_TEST(an_mlp_has_nothing_of_attention) { oracle_on_layouts(check_anatomy, NULL); }
END_TEST

int main(int argc, char **argv) {
    if (gemm_setup()) return EXIT_FAILURE;
    return run_mpi_suite(
        &argc, &argv, "mlp",
        TESTS(kinds_and_losses_equal_the_naive_mlp, sequence_regions_equal_the_naive_mlp,
              recompute_modes_equal_the_naive_mlp, uneven_cuts_equal_the_naive_mlp,
              a_chunked_head_equals_the_naive_mlp, allreduce_is_close,
              hits_and_outputs_are_those_of_the_naive_mlp,
              masked_rows_and_the_place_of_rows_change_nothing, a_mix_up_is_noticed,
              observers_are_shown_the_same_everywhere, an_mlp_has_nothing_of_attention));
}
