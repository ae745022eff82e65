/* The whole decoder against the naive one: loss and every gradient, and what must not be the same.
 * On 3 ranks; tp 1 runs on every rank by itself. */
#include "base/error.h"
#include "support/oracle_layouts.h"
#include "support/support.h"
#include "support/whole.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Relative to the tensor's largest gradient; seen: 1.0e-14 in fp64, 1.6e-6 in fp32. */
static const double tolerance = sizeof(real) == 8 ? 1e-12 : 6e-6;

static const OraclePlan base = {.vocab = 259,
                                .d_model = 64,
                                .layers = 2,
                                .heads = 4,
                                .kv_heads = 2,
                                .d_ff = 172,
                                .sequences = 2,
                                .context = 80,
                                .kind = "gated",
                                .activation = "silu",
                                .bias = true,
                                .masked = true,
                                .hidden_dropout = 0.1,
                                .output_dropout = 0.2,
                                .shards = 8,
                                .microbatches = 2,
                                .fusion = FUSION_BLOCK};

START_TEST(ffn_kinds_equal_the_naive_model) {
    static const struct {
        const char *name, *kind, *activation;
        bool tied;
    } row[] = {{"gated silu", "gated", "silu", false},
               {"gated gelu_tanh, tied", "gated", "gelu_tanh", true},
               {"gated gelu", "gated", "gelu", false},
               {"dense relu, tied", "dense", "relu", true},
               {"dense gelu", "dense", "gelu", false}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        OraclePlan plan = base;
        plan.name = row[i].name;
        plan.kind = row[i].kind;
        plan.activation = row[i].activation;
        plan.tied = row[i].tied;
        oracle_check_plan(&plan, tolerance);
    }
}
END_TEST

START_TEST(recompute_modes_equal_the_naive_model) {
    OraclePlan plan = base;
    plan.name = "gated silu";
    oracle_check_modes(&plan, tolerance);
    plan.name = "dense gelu";
    plan.kind = "dense";
    plan.activation = "gelu";
    oracle_check_modes(&plan, tolerance);
}
END_TEST

START_TEST(uneven_cuts_equal_the_naive_model) {
    OraclePlan plan = base;
    plan.name = "d_ff 341, 1 kv head, 150 rows, 3 threads";
    plan.d_ff = 341;
    plan.kv_heads = 1;
    plan.sequences = 1;
    plan.context = 150;
    plan.threads = 3;
    oracle_check_plan(&plan, tolerance);
    plan = base;
    plan.name = "fewer rows and channels than shards";
    plan.context = 1;
    plan.d_ff = 5;
    plan.vocab = 7;
    plan.masked = false;
    oracle_check_plan(&plan, tolerance);
    plan = base;
    plan.name = "3 shards, no bias, no dropout";
    plan.shards = 3;
    plan.bias = false;
    plan.hidden_dropout = plan.output_dropout = 0;
    oracle_check_plan(&plan, tolerance);
    plan = base;
    plan.name = "output dropout alone";
    plan.hidden_dropout = 0;
    oracle_check_plan(&plan, tolerance);
}
END_TEST

/* Larger vocabularies go through the head in several chunks of rows. */
START_TEST(a_chunked_head_equals_the_naive_model) {
    OraclePlan plan = base;
    plan.name = "vocab 20011, head in two chunks";
    plan.vocab = 20011;
    plan.layers = 1;
    plan.d_model = 16;
    plan.sequences = 3;
    plan.microbatches = 1;
    plan.tied = true;
    oracle_check_plan(&plan, tolerance);
}
END_TEST

/* ---- each rank its own rows of the stream ---- */

START_TEST(sequence_regions_equal_the_naive_model) {
    OraclePlan plan = base;
    plan.sequence = true;
    plan.name = "own rows";
    oracle_check_modes(&plan, tolerance);
    plan.transport = TRANSPORT_MESSAGES;
    plan.name = "own rows, messages";
    oracle_check_modes(&plan, tolerance);
    plan.name = "own rows, dense gelu, tied";
    plan.kind = "dense";
    plan.activation = "gelu";
    plan.tied = true;
    oracle_check_plan(&plan, tolerance);
}
END_TEST

START_TEST(sequence_regions_with_uneven_rows) {
    OraclePlan plan = base;
    plan.sequence = true;
    plan.name = "own rows of 149, 3 threads";
    plan.sequences = 1;
    plan.context = 149;
    plan.threads = 3;
    oracle_check_plan(&plan, tolerance);
    plan.name = "own rows, 2 of them";
    plan.sequences = 2;
    plan.context = 1;
    plan.masked = false;
    oracle_check_modes(&plan, tolerance);
    plan.name = "own rows, 2 of them, messages";
    plan.transport = TRANSPORT_MESSAGES;
    plan.d_ff = 1;
    oracle_check_plan(&plan, tolerance);
    plan.name = "own rows, head in two chunks";
    plan.vocab = 20011;
    plan.sequences = 3;
    plan.context = 80;
    plan.d_model = 16;
    oracle_check_plan(&plan, tolerance);
}
END_TEST

/* A kept hash holds all of this against the bits of a stream that isn't cut. */
START_TEST(sequence_regions_change_no_bit) {
    OraclePlan plan = base;
    Oracle oracle;
    Hash128 first = {0};
    plan.name = "whole";
    oracle_open(&oracle, &plan);
    oracle_check_layouts(&oracle, &plan, tolerance, &first);
    plan.sequence = true;
    for (int i = 0; i < 6; i++) {
        char name[64];
        plan.recompute = (Recompute)(i % 3);
        plan.transport = i < 3 ? TRANSPORT_WINDOW : TRANSPORT_MESSAGES;
        plan.threads = 1 + i % 2;
        snprintf(name, sizeof name, "own rows, mode %d, %s", i % 3, i < 3 ? "window" : "messages");
        plan.name = name;
        oracle_check_layouts(&oracle, &plan, tolerance, &first);
    }
    oracle_close(&oracle);
}
END_TEST

START_TEST(allreduce_is_close) {
    OraclePlan plan = base;
    plan.name = "reduction = allreduce";
    plan.reduction = REDUCTION_ALLREDUCE;
    oracle_check_plan(&plan, tolerance);
    plan.name = "allreduce, own rows";
    plan.sequence = true;
    oracle_check_plan(&plan, tolerance);
    plan.sequence = false;
    plan.name = "allreduce, dense relu, block";
    plan.kind = "dense";
    plan.activation = "relu";
    plan.recompute = RECOMPUTE_BLOCK;
    oracle_check_plan(&plan, tolerance);
}
END_TEST

/* ---- the comparison itself can fail ---- */

static OraclePlan small_plan(void) {
    OraclePlan plan = base;
    plan.name = "small";
    plan.context = 20;
    plan.microbatches = 1;
    return plan;
}

START_TEST(one_element_off_by_a_millionth_is_noticed) {
    OraclePlan plan = small_plan();
    Oracle oracle;
    Model model;
    Grid grid;
    oracle_open(&oracle, &plan);
    grid_serial(&grid);
    oracle_subject(&model, &plan, &grid);
    oracle_weights(&model, &oracle);
    double loss = oracle_train(&model, &oracle);
    double step = sizeof(real) == 8 ? 1e-6 : 1e-4; /* of the tensor's largest gradient */
    for (int p = 0; p < model.set.count; p++) {
        const Param *param = &model.set.param[p];
        double *expected = naive_gradient(oracle.naive, param->name), largest = 0;
        for (int64_t i = 0; i < param->rows * param->cols; i++)
            largest = fmax(largest, fabs(expected[i]));
        real *corner =
            whole_element(&model.set, param, PARAM_GRADIENT, param->rows - 1, param->cols - 1);
        real before = *corner;
        *corner += (real)(step * largest);
        OracleResult result = oracle_compare(&model, &grid, &oracle, loss);
        ck_assert_msg(result.gradient > tolerance && !strcmp(result.tensor, param->name),
                      "%s: a wrong element went unnoticed", param->name);
        *corner = before;
    }
    ck_assert(oracle_compare(&model, &grid, &oracle, loss * (1 + step)).loss > tolerance);
    ck_assert(oracle_compare(&model, &grid, &oracle, loss).gradient <= tolerance);
    model_release(&model);
    oracle_close(&oracle);
}
END_TEST

/* The largest difference when weft computes `subject` and the naive model `plan`. */
static OracleResult mismatch(const OraclePlan *plan, const OraclePlan *subject, Grid *grid) {
    Oracle oracle;
    Model model;
    oracle_open(&oracle, plan);
    oracle_subject(&model, subject, grid);
    oracle_weights(&model, &oracle);
    OracleResult result = oracle_compare(&model, grid, &oracle, oracle_train(&model, &oracle));
    model_release(&model);
    oracle_close(&oracle);
    return result;
}

START_TEST(a_mix_up_is_noticed) {
    OraclePlan plan = small_plan(), other = plan;
    Grid grid;
    grid_serial(&grid);
    plan.activation = "gelu";
    other.activation = "gelu_tanh";
    ck_assert_msg(mismatch(&plan, &other, &grid).gradient > 10 * tolerance, "erf and tanh");
    plan = other = small_plan();
    other.hidden_dropout = 0.11;
    ck_assert_msg(mismatch(&plan, &other, &grid).gradient > 10 * tolerance, "hidden dropout");
    other = plan;
    other.output_dropout = 0.21;
    ck_assert_msg(mismatch(&plan, &other, &grid).gradient > 10 * tolerance, "output dropout");
    ck_assert_msg(mismatch(&plan, &plan, &grid).gradient <= tolerance, "nothing is mixed up");
}
END_TEST

/* ---- faults that are silent elsewhere ---- */

static void fill_tensor(Model *model, const char *name, double value) {
    const Param *param = &model->set.param[params_find(&model->set, name)];
    for (int s = (int)param->owned.begin; s < param->owned.end; s++) {
        Tensor shard = param_shard(&model->set, param, PARAM_VALUE, s);
        for (int64_t i = 0; i < shard.rows * shard.cols; i++) shard.data[i] = (real)value;
    }
}

typedef struct {
    double probability;
    bool sequence;
} BiasCase;

/* All weights 0: the stream holds what down's bias adds to it, times the output mask. */
static void check_bias(Grid *grid, const void *context) {
    double probability = ((const BiasCase *)context)->probability;
    OraclePlan plan = small_plan();
    plan.layers = 1;
    plan.hidden_dropout = 0;
    plan.output_dropout = probability;
    plan.sequence = ((const BiasCase *)context)->sequence;
    Oracle oracle;
    Model model;
    oracle_open(&oracle, &plan);
    oracle_subject(&model, &plan, grid);
    fill_tensor(&model, "model.layers.0.mlp.down_proj.bias", 3);
    oracle_train(&model, &oracle);
    Tensor stream = model.stream[1];
    int64_t first = model.space.stream.own.begin;
    for (int64_t t = 0; t < stream.rows; t++)
        for (int64_t j = 0; j < stream.cols; j++) {
            double mask = probability > 0
                              ? oracle_mask(PHILOX_OUTPUT_DROPOUT, 0, ORACLE_FIRST_MICROBATCH,
                                            first + t, j, probability)
                              : 1;
            ck_assert_msg(tensor_row(stream, t)[j] == 3 * (real)mask,
                          "tp %d: row %d, channel %d is %g, expected %g", grid->tp, (int)t, (int)j,
                          (double)tensor_row(stream, t)[j], 3 * mask);
        }
    model_release(&model);
    oracle_close(&oracle);
}

START_TEST(row_parallel_bias_is_added_once) {
    oracle_on_layouts(check_bias, &(BiasCase){0, false});
    oracle_on_layouts(check_bias, &(BiasCase){0, true});
}
END_TEST

/* What every rank holds is the mask of global row and channel: replicas agree. */
START_TEST(output_masks_match_on_replicated_rows) {
    oracle_on_layouts(check_bias, &(BiasCase){0.25, false});
    oracle_on_layouts(check_bias, &(BiasCase){0.25, true});
}
END_TEST

/* With an lm head of 0 every token has the probability 1/259 exactly: a padding row would count. */
static void check_vocab(Grid *grid, const void *context) {
    (void)context;
    OraclePlan plan = small_plan();
    Oracle oracle;
    Model model;
    oracle_open(&oracle, &plan);
    oracle_subject(&model, &plan, grid);
    oracle_weights(&model, &oracle);
    fill_tensor(&model, "lm_head.weight", 0);
    double loss = oracle_train(&model, &oracle);
    ck_assert_msg(fabs(loss - log(259)) < 1e-13 * log(259), "tp %d: loss %.17g, expected %.17g",
                  grid->tp, loss, log(259));
    model_release(&model);
    oracle_close(&oracle);
}

START_TEST(vocab_259_over_8_shards_has_no_padding) { oracle_on_layouts(check_vocab, NULL); }
END_TEST

static void check_evaluation(Grid *grid, const void *context) {
    (void)context;
    OraclePlan plan = small_plan(), plain = plan;
    plain.hidden_dropout = plain.output_dropout = 0;
    Oracle oracle;
    Model with, without;
    oracle_open(&oracle, &plain);
    oracle_subject(&with, &plan, grid);
    oracle_subject(&without, &plain, grid);
    oracle_weights(&with, &oracle);
    oracle_weights(&without, &oracle);
    double evaluated = oracle_evaluate(&with, &oracle), trained = oracle_train(&without, &oracle);
    ck_assert_msg(evaluated == oracle_evaluate(&without, &oracle), "tp %d", grid->tp);
    ck_assert_msg(evaluated == trained, "tp %d: %a and %a", grid->tp, evaluated, trained);
    ck_assert(whole_difference(1, &evaluated, &oracle.loss) <= tolerance);
    ck_assert_msg(fabs(oracle_train(&with, &oracle) - evaluated) > 1e-4, "dropout is never on");
    model_release(&without);
    model_release(&with);
    oracle_close(&oracle);
}

START_TEST(evaluation_has_no_dropout) { oracle_on_layouts(check_evaluation, NULL); }
END_TEST

int main(int argc, char **argv) {
    if (gemm_setup()) return EXIT_FAILURE;
    return run_mpi_suite(
        &argc, &argv, "model",
        TESTS(ffn_kinds_equal_the_naive_model, recompute_modes_equal_the_naive_model,
              uneven_cuts_equal_the_naive_model, a_chunked_head_equals_the_naive_model,
              sequence_regions_equal_the_naive_model, sequence_regions_with_uneven_rows,
              sequence_regions_change_no_bit, allreduce_is_close,
              one_element_off_by_a_millionth_is_noticed, a_mix_up_is_noticed,
              row_parallel_bias_is_added_once, output_masks_match_on_replicated_rows,
              vocab_259_over_8_shards_has_no_padding, evaluation_has_no_dropout));
}
