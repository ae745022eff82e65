/* The conformance suite of feed-forward kinds, run over every row of ffn_kinds with every
 * activation: what any kind must hold, and values by hand. On 3 ranks; tp 1, 2, 3. */
#include "base/error.h"
#include "support/arrays.h"
#include "support/ffn_rig.h"
#include "support/naive.h"
#include "support/oracle.h"
#include "support/support.h"
#include "support/whole.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TP = 3 };

typedef void (*OnLayout)(Grid *grid);

static void on_layouts(OnLayout body) {
    for (int tp = 1; tp <= MOST_TP; tp++) {
        Grid grid;
        ck_assert_int_eq(comm_start(&grid), 0);
        ck_assert_msg(grid_open(&grid, tp, 1) == 0, "%s", error_message());
        if (!grid.surplus) body(&grid);
        comm_stop(&grid);
    }
}

typedef void (*OnKind)(Grid *grid, const FfnRigPlan *plan);

/* Uneven: 45 channels over 8 shards. */
static void on_kinds(Grid *grid, OnKind body) {
    for (int k = 0; ffn_kinds[k]; k++)
        for (const Activation *a = activations; a->name; a++) {
            FfnRigPlan plan = {.kind = ffn_kinds[k]->name,
                               .activation = a->name,
                               .rows = 13,
                               .d_model = 24,
                               .d_ff = 45,
                               .bias = true,
                               .hidden_dropout = 0.2,
                               .shards = 8,
                               .seed = ORACLE_SEED};
            body(grid, &plan);
        }
}

static size_t bytes_of(Tensor x) { return (size_t)(x.rows * x.cols) * sizeof(real); }

static real *copy_of(Tensor x) {
    real *copy = malloc(bytes_of(x));
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, x.data, bytes_of(x));
    return copy;
}

/* ---- gradients ---- */

/* sum(y * dy), whose gradients backward computes. */
static double objective(FfnRig *rig) {
    double sum = 0;
    ffn_rig_forward(rig, true);
    for (int64_t i = 0; i < rig->y.rows * rig->y.cols; i++)
        sum += (double)rig->y.data[i] * (double)rig->dy.data[i];
    return sum;
}

/* Central difference for a value that may lie on another rank; steps that float holds exactly. */
static double slope(FfnRig *rig, real *value) {
    double h = sizeof(real) == 8 ? 0x1p-17 : 0x1p-7;
    real before = value ? *value : 0;
    if (value) *value = (real)((double)before + h);
    double right = objective(rig);
    if (value) *value = (real)((double)before - h);
    double left = objective(rig);
    if (value) *value = before;
    return (right - left) / (2 * h);
}

/* A coarse net under any kind, known to the naive model or not: relative to the largest. */
static void check_slopes(Grid *grid, const FfnRigPlan *plan) {
    double tolerance = sizeof(real) == 8 ? 1e-7 : 3e-3;
    if (!strcmp(plan->activation, "relu")) return; /* kinks: see test_differences.c and below */
    FfnRig rig;
    ffn_rig_open(&rig, grid, plan);
    ffn_rig_fill(&rig, 1);
    ffn_rig_forward(&rig, true);
    ffn_rig_backward(&rig, true);
    double expected = (double)rig.dx.data[7];
    double found = slope(&rig, &rig.x.data[7]);
    ck_assert_msg(fabs(expected - found) < tolerance * fmax(1, fabs(found)),
                  "%s %s, tp %d: dx %g, slope %g", plan->kind, plan->activation, grid->tp, expected,
                  found);
    for (int p = 0; p < rig.set.count; p++) {
        const Param *param = &rig.set.param[p];
        double *gradient = whole_gather(grid, &rig.set, param, PARAM_GRADIENT), largest = 0;
        int64_t size = param->rows * param->cols;
        for (int64_t i = 0; i < size; i++) largest = fmax(largest, fabs(gradient[i]));
        const int64_t element[] = {0, size / 3, size - 1};
        for (int i = 0; i < 3; i++) {
            found = slope(&rig, whole_element(&rig.set, param, PARAM_VALUE,
                                              element[i] / param->cols, element[i] % param->cols));
            ck_assert_msg(fabs(gradient[element[i]] - found) < tolerance * largest,
                          "%s %s, tp %d: %s: gradient %g, slope %g", plan->kind, plan->activation,
                          grid->tp, param->name, gradient[element[i]], found);
        }
        free(gradient);
    }
    ffn_rig_close(&rig);
}

static void slopes_on(Grid *grid) { on_kinds(grid, check_slopes); }

START_TEST(gradients_are_slopes) { on_layouts(slopes_on); }
END_TEST

/* A second backward of the same adds the same: weight gradients double, dx doesn't. */
static void check_accumulation(Grid *grid, const FfnRigPlan *plan) {
    FfnRig rig;
    ffn_rig_open(&rig, grid, plan);
    ffn_rig_fill(&rig, 2);
    ffn_rig_forward(&rig, true);
    ffn_rig_backward(&rig, true);
    real *dx = copy_of(rig.dx);
    Tensor all = tensor_view(rig.set.arena[PARAM_GRADIENT], 1, rig.set.elements);
    real *once = copy_of(all);
    ffn_rig_forward(&rig, true);
    ffn_rig_backward(&rig, true);
    ck_assert(array_same(dx, rig.dx.data, rig.dx.rows * rig.dx.cols));
    for (int64_t i = 0; i < all.cols; i++)
        ck_assert_msg(all.data[i] == 2 * once[i], "%s %s: %g after %g", plan->kind,
                      plan->activation, (double)all.data[i], (double)once[i]);
    free(once);
    free(dx);
    ffn_rig_close(&rig);
}

static void accumulation_on(Grid *grid) { on_kinds(grid, check_accumulation); }

START_TEST(gradients_accumulate) { on_layouts(accumulation_on); }
END_TEST

/* ---- the same bits, again and everywhere ---- */

static void check_again(Grid *grid, const FfnRigPlan *plan) {
    FfnRig rig;
    ffn_rig_open(&rig, grid, plan);
    ffn_rig_fill(&rig, 3);
    ffn_rig_forward(&rig, true);
    double *first = ffn_rig_hidden(&rig);
    Range owned = rig.saved.hidden.owned;
    for (int s = (int)owned.begin; s < owned.end; s++)
        memset(rig.saved.hidden.shard[s].data, 0, bytes_of(rig.saved.hidden.shard[s]));
    ffn_activate(&rig.ffn, &(Pass){3, 2, true}, &rig.saved);
    double *again = ffn_rig_hidden(&rig);
    ck_assert_msg(!memcmp(first, again, (size_t)(plan->rows * plan->d_ff) * sizeof *first),
                  "%s %s, tp %d: recomputed otherwise", plan->kind, plan->activation, grid->tp);
    free(first);
    free(again);
    ffn_rig_close(&rig);
}

static void again_on(Grid *grid) { on_kinds(grid, check_again); }

START_TEST(hidden_is_recomputed_bit_for_bit) { on_layouts(again_on); }
END_TEST

static Hash128 hash_of_run(Grid *grid, const FfnRigPlan *plan) {
    FfnRig rig;
    ffn_rig_open(&rig, grid, plan);
    ffn_rig_fill(&rig, 4);
    ffn_rig_forward(&rig, true);
    ffn_rig_backward(&rig, true);
    Hash128 part[] = {hash_bytes(rig.y.data, bytes_of(rig.y)),
                      hash_bytes(rig.dx.data, bytes_of(rig.dx)),
                      whole_hash(grid, &rig.set, PARAM_GRADIENT)};
    ffn_rig_close(&rig);
    return hash_bytes(part, sizeof part);
}

static void check_layout_bits(Grid *grid, const FfnRigPlan *plan) {
    Grid alone;
    grid_serial(&alone);
    ck_assert_msg(hash_equal(hash_of_run(grid, plan), hash_of_run(&alone, plan)),
                  "%s %s: tp %d has other bits than tp 1", plan->kind, plan->activation, grid->tp);
}

static void layout_bits_on(Grid *grid) { on_kinds(grid, check_layout_bits); }

START_TEST(every_layout_has_the_same_bits) { on_layouts(layout_bits_on); }
END_TEST

/* ---- rows are apart ---- */

/* Another row 5 leaves all other rows of y and dx as they were, bit for bit. */
static void check_rows_apart(Grid *grid, const FfnRigPlan *plan) {
    enum { CHANGED = 5 };
    FfnRig rig;
    ffn_rig_open(&rig, grid, plan);
    ffn_rig_fill(&rig, 5);
    ffn_rig_forward(&rig, true);
    ffn_rig_backward(&rig, true);
    real *y = copy_of(rig.y), *dx = copy_of(rig.dx);
    for (int64_t j = 0; j < plan->d_model; j++) tensor_row(rig.x, CHANGED)[j] *= 3;
    ffn_rig_forward(&rig, true);
    ffn_rig_backward(&rig, true);
    for (int64_t t = 0; t < plan->rows; t++) {
        bool same = array_same(y + t * plan->d_model, tensor_row(rig.y, t), plan->d_model) &&
                    array_same(dx + t * plan->d_model, tensor_row(rig.dx, t), plan->d_model);
        ck_assert_msg(same == (t != CHANGED), "%s %s, tp %d: row %d", plan->kind, plan->activation,
                      grid->tp, (int)t);
    }
    free(y);
    free(dx);
    ffn_rig_close(&rig);
}

static void rows_apart_on(Grid *grid) { on_kinds(grid, check_rows_apart); }

START_TEST(a_row_does_not_see_another) { on_layouts(rows_apart_on); }
END_TEST

/* Rows in another order: y's rows in that order, within a tolerance (BLAS gives a row other bits at
 * another place). Without dropout, which belongs to the place. */
static void check_permutation(Grid *grid, const FfnRigPlan *masked) {
    FfnRigPlan plan = *masked;
    plan.hidden_dropout = 0;
    FfnRig rig;
    ffn_rig_open(&rig, grid, &plan);
    ffn_rig_fill(&rig, 6);
    ffn_rig_forward(&rig, true);
    double *expected = naive_array(plan.rows * plan.d_model);
    double *got = naive_array(plan.rows * plan.d_model);
    real *x = copy_of(rig.x);
    for (int64_t t = 0; t < plan.rows; t++) {
        int64_t from = (t * 5 + 3) % plan.rows;
        for (int64_t j = 0; j < plan.d_model; j++) {
            expected[t * plan.d_model + j] = (double)tensor_row(rig.y, from)[j];
            tensor_row(rig.x, t)[j] = x[from * plan.d_model + j];
        }
    }
    ffn_rig_forward(&rig, true);
    for (int64_t i = 0; i < plan.rows * plan.d_model; i++) got[i] = (double)rig.y.data[i];
    double found = whole_difference(plan.rows * plan.d_model, got, expected);
    ck_assert_msg(found < 16 * ROUNDOFF, "%s %s, tp %d: rows in another order differ by %g",
                  plan.kind, plan.activation, grid->tp, found);
    free(expected);
    free(got);
    free(x);
    ffn_rig_close(&rig);
}

static void permutation_on(Grid *grid) { on_kinds(grid, check_permutation); }

START_TEST(permuted_rows_give_permuted_rows) { on_layouts(permutation_on); }
END_TEST

/* ---- hidden masks ---- */

/* up = 0, its bias 1, relu: hidden is the mask itself. Each rank has the mask of its channels. */
static void check_masks(Grid *grid) {
    FfnRigPlan plan = {.kind = "dense",
                       .activation = "relu",
                       .rows = 40,
                       .d_model = 2,
                       .d_ff = 90,
                       .bias = true,
                       .hidden_dropout = 0.25,
                       .shards = 8,
                       .seed = ORACLE_SEED};
    FfnRig rig;
    ffn_rig_open(&rig, grid, &plan);
    double *ones = naive_array(plan.d_ff);
    for (int64_t c = 0; c < plan.d_ff; c++) ones[c] = 1;
    whole_scatter(&rig.set, ffn_rig_param(&rig, "up_proj.bias"), PARAM_VALUE, ones);
    int status = ffn_hidden(&rig.ffn, &(Pass){ORACLE_STEP, 9, true}, rig.x, &rig.saved);
    ck_assert_int_eq(status, 0);
    double *hidden = ffn_rig_hidden(&rig);
    int64_t dropped = 0, equal = 0, half = plan.d_ff / 2;
    for (int64_t i = 0; i < plan.rows * plan.d_ff; i++) {
        int64_t row = i / plan.d_ff, channel = i % plan.d_ff;
        double mask = oracle_mask(PHILOX_HIDDEN_DROPOUT, 0, 9, row, channel, 0.25);
        ck_assert_msg(hidden[i] == (double)(real)mask, "tp %d: row %d, channel %d", grid->tp,
                      (int)row, (int)channel);
        dropped += mask == 0;
        if (channel < half) equal += (hidden[i] == 0) == (hidden[i + half] == 0);
    }
    /* 3600 draws with p 1/4; 1800 pairs that agree with probability 5/8: within 5 deviations. */
    ck_assert_msg(llabs(dropped - 900) < 130, "%lld dropped", (long long)dropped);
    ck_assert_msg(llabs(equal - 1125) < 103, "halves agree %lld times", (long long)equal);
    free(ones);
    free(hidden);
    ffn_rig_close(&rig);
}

START_TEST(hidden_masks_differ_where_channels_do) { on_layouts(check_masks); }
END_TEST

/* ---- by hand ---- */

static void put(FfnRig *rig, const char *name, const double *values) {
    whole_scatter(&rig->set, ffn_rig_param(rig, name), PARAM_VALUE, values);
}

static const double by_hand_tolerance = sizeof(real) == 8 ? 1e-12 : 5e-7;

/* d = f = 1, Wg = x = 1, Wu = 2, Wd = 3. */
static void check_scalars(Grid *grid) {
    static const struct {
        const char *activation;
        double y, tolerance; /* as many digits as were given */
    } row[] = {{"silu", 4.38635147, 5e-9}, {"gelu_tanh", 5.04715, 5e-6}, {"gelu", 5.04807, 5e-6}};
    for (int i = 0; i < 3; i++) {
        FfnRigPlan plan = {"gated", row[i].activation, 1, 1, 1, false, 0, 8, 0};
        FfnRig rig;
        ffn_rig_open(&rig, grid, &plan);
        put(&rig, "gate_proj.weight", (double[]){1});
        put(&rig, "up_proj.weight", (double[]){2});
        put(&rig, "down_proj.weight", (double[]){3});
        rig.x.data[0] = 1;
        ffn_rig_forward(&rig, true);
        ck_assert_msg(fabs((double)rig.y.data[0] - row[i].y) <
                          row[i].tolerance + by_hand_tolerance * row[i].y,
                      "%s, tp %d: %.9g, expected %.9g", row[i].activation, grid->tp,
                      (double)rig.y.data[0], row[i].y);
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
    FfnRigPlan plan = {"gated", "silu", 1, 1, 3, false, 0, 8, 0};
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
    if (gemm_setup(1)) return EXIT_FAILURE;
    return run_mpi_suite(&argc, &argv, "ffn",
                         TESTS(gradients_are_slopes, gradients_accumulate,
                               hidden_is_recomputed_bit_for_bit, every_layout_has_the_same_bits,
                               a_row_does_not_see_another, permuted_rows_give_permuted_rows,
                               hidden_masks_differ_where_channels_do, scalars_by_hand,
                               vectors_by_hand));
}
