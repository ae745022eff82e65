/* What must be true of feed-forward networks whatever their numbers: closed gates, symmetry,
 * counts, initial values, refusals; and values by hand. On 3 ranks; tp 1, 2, 3. */
#include "base/error.h"
#include "support/arrays.h"
#include "support/ffn_suite.h"
#include "support/naive.h"
#include "support/oracle.h"
#include "support/support.h"
#include "support/whole.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void put(FfnRig *rig, const char *name, const double *values) {
    whole_scatter(&rig->set, ffn_rig_param(rig, name), PARAM_VALUE, values);
}

/* ---- closed gates ---- */

/* A gate of -1000 everywhere: nothing of up comes through, except where the activation is linear
 * on the left. */
static void check_closed(Grid *grid, const FfnRigPlan *plan) {
    if (!ffn_find(plan->kind)->has_gate) return;
    bool closes = strcmp(plan->activation, "identity") != 0;
    FfnRig rig;
    ffn_rig_open(&rig, grid, plan);
    ffn_rig_fill(&rig, 10);
    double *gate = naive_array(plan->d_ff * plan->d_model), *bias = naive_array(plan->d_ff);
    for (int64_t c = 0; c < plan->d_ff; c++) bias[c] = -1000;
    put(&rig, "gate_proj.weight", gate);
    put(&rig, "gate_proj.bias", bias);
    for (int64_t c = 0; c < plan->d_ff; c++) bias[c] = c % 2 ? 500 : -500;
    put(&rig, "up_proj.bias", bias);
    ffn_rig_forward(&rig, false);
    double *hidden = ffn_rig_hidden(&rig);
    for (int64_t i = 0; i < plan->rows * plan->d_ff; i++)
        ck_assert_msg((hidden[i] == 0) == closes, "%s: hidden %g", ffn_rig_name(&rig), hidden[i]);
    free(gate);
    free(bias);
    free(hidden);
    ffn_rig_close(&rig);
}

static void closed_on(Grid *grid) {
    on_kinds(grid, check_closed);
    on_kinds_with(&suite_bounded_plan, grid, check_closed);
}

START_TEST(a_negative_gate_closes_its_unit) { on_layouts(closed_on); }
END_TEST

/* ---- symmetry ---- */

typedef struct {
    const char *name;
    bool bias, offset, clamp;
    bool biases_too; /* gate and up exchange their biases as well */
} Exchanged;

static const Exchanged exchanged[] = {{"no biases", false, false, false, false},
                                      {"biases stay", true, false, false, false},
                                      {"biases too", true, false, false, true},
                                      {"offset", false, true, false, false},
                                      {"clamp", false, false, true, false}};
enum { EXCHANGED = sizeof exchanged / sizeof *exchanged };

/* Which kinds don't care which branch is the gate, in the order of `exchanged`; all others do. */
static const struct {
    const char *kind, *activation; /* NULL: any */
    bool symmetric[EXCHANGED];
} symmetries[] = {{"gated", "identity", {true, false, true, false, false}}, /* Bilinear */
                  {"dual", NULL, {true, false, true, true, true}}}; /* has no offset and no clamp */

static bool is_symmetric(const FfnRigPlan *plan, int how) {
    for (size_t i = 0; i < sizeof symmetries / sizeof *symmetries; i++) {
        const char *activation = symmetries[i].activation;
        if (!strcmp(plan->kind, symmetries[i].kind) &&
            (!activation || !strcmp(plan->activation, activation)))
            return symmetries[i].symmetric[how];
    }
    return false;
}

static void exchange_values(FfnRig *rig, const char *one, const char *other) {
    const Param *a = ffn_rig_param(rig, one), *b = ffn_rig_param(rig, other);
    double *was_a = whole_gather(rig->grid, &rig->set, a, PARAM_VALUE);
    double *was_b = whole_gather(rig->grid, &rig->set, b, PARAM_VALUE);
    whole_scatter(&rig->set, a, PARAM_VALUE, was_b);
    whole_scatter(&rig->set, b, PARAM_VALUE, was_a);
    free(was_a);
    free(was_b);
}

static void check_exchange(Grid *grid, const FfnRigPlan *kind) {
    if (!ffn_find(kind->kind)->has_gate) return;
    for (int how = 0; how < EXCHANGED; how++) {
        FfnRigPlan plan = *kind;
        plan.bias = exchanged[how].bias;
        plan.linear_offset = exchanged[how].offset;
        plan.gate_clamp = exchanged[how].clamp ? 0.5 : 0;
        plan = suite_fit(plan);
        FfnRig rig;
        ffn_rig_open(&rig, grid, &plan);
        ffn_rig_fill(&rig, 11);
        ffn_rig_forward(&rig, true);
        double *before = ffn_rig_rows(rig.y);
        exchange_values(&rig, "gate_proj.weight", "up_proj.weight");
        if (exchanged[how].biases_too) exchange_values(&rig, "gate_proj.bias", "up_proj.bias");
        ffn_rig_forward(&rig, true);
        double *after = ffn_rig_rows(rig.y);
        double found = whole_difference(plan.rows * plan.d_model, after, before);
        ck_assert_msg(is_symmetric(&plan, how) ? found < 16 * ROUNDOFF : found > 0.05,
                      "%s: gate and up exchanged (%s): y differs by %g", ffn_rig_name(&rig),
                      exchanged[how].name, found);
        free(before);
        free(after);
        ffn_rig_close(&rig);
    }
}

static void exchange_on(Grid *grid) { on_kinds(grid, check_exchange); }

START_TEST(gate_and_up_are_not_the_same) { on_layouts(exchange_on); }
END_TEST

/* ---- counts ---- */

static int64_t weights_of(Grid *grid, const char *kind, int64_t d, int64_t width) {
    FfnRigPlan plan = {
        .kind = kind, .activation = "silu", .rows = 1, .d_model = d, .d_ff = width, .shards = 8};
    FfnRig rig;
    ffn_rig_open(&rig, grid, &plan);
    int64_t count = params_count(&rig.set);
    ffn_rig_close(&rig);
    return count;
}

/* Shazeer 2020, section 2: three matrices of 2/3 the width have the parameters of two. */
static void check_counts(Grid *grid) {
    for (int64_t d = 3; d <= 48; d += 9) {
        ck_assert_int_eq(weights_of(grid, "dense", d, 4 * d), 8 * d * d);
        ck_assert_int_eq(weights_of(grid, "gated", d, 8 * d / 3), 8 * d * d);
        ck_assert_int_eq(weights_of(grid, "dual", d, 8 * d / 3), 8 * d * d);
    }
}

START_TEST(two_thirds_of_the_width_in_three_matrices) { on_layouts(check_counts); }
END_TEST

/* ---- initial values ---- */

/* Largest share of equal elements between two arrays, as they lie and one of them transposed. */
static double likeness(int64_t rows, int64_t cols, const double *a, const double *b) {
    int64_t straight = 0, turned = 0;
    for (int64_t i = 0; i < rows * cols; i++) {
        straight += a[i] == b[i];
        turned += a[i] == b[i % cols * rows + i / cols];
    }
    return (double)(straight > turned ? straight : turned) / (double)(rows * cols);
}

/* The weight matrices of a seed, in the order of the set. */
static int initial_values(Grid *grid, const FfnRigPlan *plan, uint64_t seed, double *matrix[3]) {
    FfnRig rig;
    int count = 0;
    ffn_rig_open(&rig, grid, plan);
    params_initialize(&rig.set, seed, 1);
    for (int p = 0; p < rig.set.count; p++)
        if (rig.set.param[p].rank == 2)
            matrix[count++] = whole_gather(grid, &rig.set, &rig.set.param[p], PARAM_VALUE);
    ffn_rig_close(&rig);
    return count;
}

/* gate, up and down are drawn apart, and by their seed. */
static void check_draws(Grid *grid, const FfnRigPlan *plan) {
    double *matrix[6];
    int count = initial_values(grid, plan, 1, matrix);
    ck_assert_int_eq(count, ffn_find(plan->kind)->projections);
    count += initial_values(grid, plan, 2, matrix + count);
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < i; j++) {
            double equal = likeness(plan->d_ff, plan->d_model, matrix[i], matrix[j]);
            ck_assert_msg(equal < 0.01, "%s, tp %d: draws %d and %d share %g of their values",
                          plan->kind, grid->tp, i, j, equal);
        }
        ck_assert(likeness(plan->d_ff, plan->d_model, matrix[i], matrix[i]) == 1);
    }
    for (int i = 0; i < count; i++) free(matrix[i]);
}

static void draws_on(Grid *grid) { on_kinds(grid, check_draws); }

START_TEST(projections_and_seeds_are_drawn_apart) { on_layouts(draws_on); }
END_TEST

/* ---- refusals ---- */

START_TEST(what_a_kind_does_not_have_is_refused_by_name) {
    static const struct {
        FfnRigPlan plan;
        const char *words; /* in the message */
    } row[] = {
        {{.kind = "gatted", .activation = "silu", .d_ff = 4}, "ffn.kind = gatted"},
        {{.kind = "gated", .activation = "swish", .d_ff = 4}, "ffn.activation"},
        {{.kind = "gated", .activation = "silu", .d_ff = 0}, "ffn.d_ff = 0"},
        {{.kind = "dense", .activation = "silu", .d_ff = -3}, "ffn.d_ff = -3"},
        {{.kind = "dense", .activation = "silu", .d_ff = 4, .gate_bias = true}, "ffn.gate_bias"},
        {{.kind = "dense", .activation = "silu", .d_ff = 4, .gate_clamp = 7}, "ffn.gate_clamp = 7"},
        {{.kind = "dense", .activation = "silu", .d_ff = 4, .linear_clamp = 7}, "ffn.linear_clamp"},
        {{.kind = "dual", .activation = "relu", .d_ff = 4, .gate_clamp = 7}, "ffn.gate_clamp = 7"},
        {{.kind = "dual", .activation = "relu", .d_ff = 4, .linear_clamp = 7}, "ffn.linear_clamp"},
        {{.kind = "dual", .activation = "relu", .d_ff = 4, .linear_offset = 1},
         "ffn.linear_offset = 1"},
        {{.kind = "gated", .activation = "gelu", .d_ff = 4, .beta = 2}, "ffn.swish_beta = 2"},
        {{.kind = "gated", .activation = "silu", .d_ff = 4, .beta = 1e-3},
         "ffn.swish_beta = 0.001"},
        {{.kind = "gated", .activation = "silu", .d_ff = 4, .beta = NAN}, "ffn.swish_beta = nan"},
        {{.kind = "gated", .activation = "silu", .d_ff = 4, .beta = 2, .gate_clamp = 7}, NULL},
        {{.kind = "dual", .activation = "silu", .d_ff = 4, .beta = 2, .gate_bias = true}, NULL},
        {{.kind = "dense", .activation = "silu", .d_ff = 4, .beta = 2, .up_bias = true}, NULL},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        FfnRigPlan plan = row[i].plan;
        plan.d_model = 4;
        FfnConfig config = ffn_rig_config(&plan);
        AxisLayout axis = axis_layout(plan.d_ff > 0 ? plan.d_ff : 1, 2, 1);
        Workspace space = {.threads = 1, .rows = 1, .row_shards = 1};
        ParamSet set;
        Ffn ffn;
        params_init(&set, 0, 1);
        int status = ffn_declare(&ffn, &set, &space, &config, &axis, "mlp", 0);
        if (row[i].words)
            ck_assert_msg(status == WEFT_USAGE && strstr(error_message(), row[i].words),
                          "row %d: status %d, %s", (int)i, status, error_message());
        else
            ck_assert_msg(status == 0, "row %d: %s", (int)i, error_message());
        params_release(&set);
    }
}
END_TEST

/* ---- by hand ---- */

static const double by_hand_tolerance = sizeof(real) == 8 ? 1e-12 : 5e-7;

/* d = f = 1, Wg = x = 1, Wu = 2, Wd = 3; with as many digits as were given. */
static void check_scalars(Grid *grid) {
    static const struct {
        FfnRigPlan plan;
        double y, tolerance;
    } row[] = {
        {{.kind = "gated", .activation = "silu"}, 4.38635147, 5e-9},
        {{.kind = "gated", .activation = "gelu_tanh"}, 5.04715, 5e-6},
        {{.kind = "gated", .activation = "gelu"}, 5.04807, 5e-6},
        {{.kind = "gated", .activation = "relu"}, 6, 0},
        {{.kind = "gated", .activation = "identity"}, 6, 0},
        {{.kind = "gated", .activation = "sigmoid"}, 4.386351472, 5e-10},
        {{.kind = "gated", .activation = "quick_gelu"}, 5.074774596, 5e-10},
        {{.kind = "gated", .activation = "silu", .beta = 1.702}, 5.074774596, 5e-10},
        {{.kind = "gated", .activation = "relu", .gate_clamp = 0.5}, 3, 0},
        {{.kind = "gated", .activation = "relu", .linear_clamp = 1.5}, 4.5, 0},
        {{.kind = "gated", .activation = "relu", .linear_offset = 1}, 9, 0},
        {{.kind = "dual", .activation = "relu"}, 6, 0},
        {{.kind = "dual", .activation = "silu"}, 3.863485559, 5e-10},
        {{.kind = "dense", .activation = "silu"}, 5.284782468, 5e-10},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        FfnRigPlan plan = row[i].plan;
        plan.rows = plan.d_model = plan.d_ff = 1;
        plan.shards = 8;
        FfnRig rig;
        ffn_rig_open(&rig, grid, &plan);
        if (rig.ffn.gate >= 0) put(&rig, "gate_proj.weight", (double[]){1});
        put(&rig, "up_proj.weight", (double[]){2});
        put(&rig, "down_proj.weight", (double[]){3});
        rig.x.data[0] = 1;
        ffn_rig_forward(&rig, true);
        ck_assert_msg(fabs((double)rig.y.data[0] - row[i].y) <=
                          row[i].tolerance + by_hand_tolerance * row[i].y,
                      "%s: %.9g, expected %.9g", ffn_rig_name(&rig), (double)rig.y.data[0],
                      row[i].y);
        ffn_rig_close(&rig);
    }
}

START_TEST(scalars_by_hand) { on_layouts(check_scalars); }
END_TEST

static void assert_values(Grid *grid, const char *what, const double *got, const double *expected) {
    for (int i = 0; i < 3; i++)
        ck_assert_msg(fabs(got[i] - expected[i]) < 5e-7 + by_hand_tolerance * fabs(expected[i]),
                      "tp %d: %s[%d] is %.8g, expected %.8g", grid->tp, what, i, got[i],
                      expected[i]);
}

/* x = Wd = dy = 1: the weight gradients are those of gate and up. */
static void check_vectors(Grid *grid) {
    FfnRigPlan plan = {
        .kind = "gated", .activation = "silu", .rows = 1, .d_model = 1, .d_ff = 3, .shards = 8};
    FfnRig rig;
    ffn_rig_open(&rig, grid, &plan);
    put(&rig, "gate_proj.weight", (double[]){-1, 0, 1});
    put(&rig, "up_proj.weight", (double[]){2, 3, 4});
    put(&rig, "down_proj.weight", (double[]){1, 1, 1});
    rig.x.data[0] = rig.dy.data[0] = 1;
    ffn_rig_forward(&rig, true);
    double *hidden = ffn_rig_hidden(&rig);
    assert_values(grid, "silu(gate) * up", hidden, (double[]){-0.537883, 0, 2.924234});
    ffn_rig_backward(&rig, true);
    const Param *gate = ffn_rig_param(&rig, "gate_proj.weight");
    double *dgate = whole_gather(grid, &rig.set, gate, PARAM_GRADIENT);
    const Param *up = ffn_rig_param(&rig, "up_proj.weight");
    double *dup = whole_gather(grid, &rig.set, up, PARAM_GRADIENT);
    assert_values(grid, "dgate", dgate, (double[]){0.144659, 1.5, 3.710682});
    assert_values(grid, "dup", dup, (double[]){-0.268941, 0, 0.731059});
    free(hidden);
    free(dgate);
    free(dup);
    ffn_rig_close(&rig);
}

START_TEST(vectors_by_hand) { on_layouts(check_vectors); }
END_TEST

int main(int argc, char **argv) {
    if (gemm_setup()) return EXIT_FAILURE;
    return run_mpi_suite(
        &argc, &argv, "ffn properties",
        TESTS(a_negative_gate_closes_its_unit, gate_and_up_are_not_the_same,
              two_thirds_of_the_width_in_three_matrices, projections_and_seeds_are_drawn_apart,
              what_a_kind_does_not_have_is_refused_by_name, scalars_by_hand, vectors_by_hand));
}
