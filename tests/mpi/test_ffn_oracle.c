/* The conformance suite of feed-forward kinds against the naive network in double, against central
 * differences, and against one packed product of gate and up. On 3 ranks; tp 1, 2, 3.
 *
 * Full over kind, activation, tp and recompute mode; over the rest every pair of choices, for every
 * kind and activation. */
#include "support/arrays.h"
#include "support/ffn_oracle.h"
#include "support/ffn_suite.h"
#include "support/oracle.h"
#include "support/pairwise.h"
#include "support/support.h"
#include "support/whole.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Relative to a tensor's largest value. Seen: 1.5e-6 (25 roundoffs) and 2.1e-15 (19). */
#define TOLERANCE (64 * ROUNDOFF)

/* What a mode has computed is nothing for the next. */
static void clear_results(FfnRig *rig) {
    memset(rig->set.arena[PARAM_GRADIENT], 0, params_bytes(&rig->set, 1));
    for (int64_t i = 0; i < rig->y.rows * rig->y.cols; i++)
        tensor_row(rig->y, i / rig->y.cols)[i % rig->y.cols] =
            tensor_row(rig->dx, i / rig->y.cols)[i % rig->y.cols] = (real)NAN;
}

/* Recompute modes `first` to `last` against one oracle. */
static void check_oracle(Grid *grid, const FfnRigPlan *plan, Recompute first, Recompute last) {
    FfnRig rig;
    FfnOracle oracle;
    const char *what = "";
    ffn_rig_open(&rig, grid, plan);
    ffn_rig_fill(&rig, 7);
    ffn_oracle_run(&oracle, &rig, true);
    for (Recompute mode = first; mode <= last; mode++) {
        clear_results(&rig);
        ffn_rig_forward(&rig, true);
        ffn_rig_recompute(&rig, true, mode);
        ffn_rig_backward(&rig, true);
        double found = ffn_oracle_compare(&oracle, &rig, &what);
        ck_assert_msg(found <= TOLERANCE, "%s, recompute mode %d: %s differs by %g",
                      ffn_rig_name(&rig), (int)mode, what, found);
    }
    ffn_oracle_release(&oracle);
    ffn_rig_close(&rig);
}

/* ---- kind x activation x tp x recompute mode ---- */

static void check_modes(Grid *grid, const FfnRigPlan *plan) {
    check_oracle(grid, plan, RECOMPUTE_NONE, RECOMPUTE_BLOCK);
}

static void modes_on(Grid *grid) {
    on_kinds(grid, check_modes);
    on_kinds_with(&suite_bounded_plan, grid, check_modes);
}

START_TEST(every_kind_equals_the_oracle) { on_layouts(modes_on); }
END_TEST

/* ---- pairs of everything else ---- */

enum { TP, MODE, BIAS, DROPOUT, BOUNDS, BETA, WIDTH, ROWS, SHARDS, GAP, FACTORS };

static const double betas[] = {0, 1.702, 0.3};
/* Uneven; one channel a shard; a rank without a shard. */
static const int64_t widths[] = {45, 341, 172, 8, 2};
static const int64_t row_counts[] = {1, 7, 129};
static const int shard_counts[] = {8, 3};
static const int64_t gaps[] = {0, 5};

static const int levels[FACTORS] = {[TP] = MOST_TP, [MODE] = RECOMPUTE_BLOCK + 1,
                                    [BIAS] = 5,     [DROPOUT] = 2,
                                    [BOUNDS] = 5,   [BETA] = 3,
                                    [WIDTH] = 5,    [ROWS] = 3,
                                    [SHARDS] = 2,   [GAP] = 2};

/* BIAS: none, gate, up, down, all; BOUNDS: none, gate, up, offset, all. */
static FfnRigPlan plan_of(const int *row, const FfnRigPlan *kind) {
    int bias = row[BIAS], bounds = row[BOUNDS];
    return suite_fit((FfnRigPlan){.kind = kind->kind,
                                  .activation = kind->activation,
                                  .rows = row_counts[row[ROWS]],
                                  .d_model = 12,
                                  .d_ff = widths[row[WIDTH]],
                                  .gate_bias = bias == 1 || bias == 4,
                                  .up_bias = bias == 2 || bias == 4,
                                  .down_bias = bias == 3 || bias == 4,
                                  .hidden_dropout = row[DROPOUT] ? 0.25 : 0,
                                  .beta = betas[row[BETA]],
                                  .gate_clamp = bounds == 1 || bounds == 4 ? 0.75 : 0,
                                  .linear_clamp = bounds == 2 || bounds == 4 ? 1 : 0,
                                  .linear_offset = bounds == 3   ? -0.5
                                                   : bounds == 4 ? 1
                                                                 : 0,
                                  .shards = shard_counts[row[SHARDS]],
                                  .gap = gaps[row[GAP]],
                                  .seed = ORACLE_SEED});
}

static void check_pairs(Grid *grid, const FfnRigPlan *kind) {
    Pairwise table = pairwise_table(FACTORS, levels);
    for (int r = 0; r < table.count; r++) {
        if (table.row[r][TP] != grid->tp - 1) continue;
        FfnRigPlan plan = plan_of(table.row[r], kind);
        Recompute mode = (Recompute)table.row[r][MODE];
        check_oracle(grid, &plan, mode, mode);
    }
}

static void pairs_on(Grid *grid) { on_kinds(grid, check_pairs); }

START_TEST(every_pair_of_choices_equals_the_oracle) { on_layouts(pairs_on); }
END_TEST

START_TEST(all_pairs_are_in_the_table) {
    Pairwise table = pairwise_table(FACTORS, levels);
    ck_assert_int_eq(pairwise_missing(&table, FACTORS, levels), 0);
    ck_assert_int_le(table.count, 40);
    table.count = 20; /* fewer than 5 x 5 can't have them all */
    ck_assert_int_gt(pairwise_missing(&table, FACTORS, levels), 0);
}
END_TEST

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
    double h = sizeof(real) == 8 ? 0x1p-20 : 0x1p-7;
    real before = value ? *value : 0;
    if (value) *value = (real)((double)before + h);
    double right = objective(rig);
    if (value) *value = (real)((double)before - h);
    double left = objective(rig);
    if (value) *value = before;
    return (right - left) / (2 * h);
}

/* A coarse net under any kind, whatever its oracle says: relative to the largest. */
static void check_slopes(Grid *grid, const FfnRigPlan *plan) {
    double tolerance = sizeof(real) == 8 ? 1e-7 : 3e-3;
    bool kinked = !strcmp(plan->activation, "relu") || plan->gate_clamp > 0;
    if (kinked && sizeof(real) == 4) return; /* a step that float can see may cross a kink */
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

static void slopes_on(Grid *grid) {
    on_kinds(grid, check_slopes);
    on_kinds_with(&suite_bounded_plan, grid, check_slopes);
}

START_TEST(gradients_are_slopes) { on_layouts(slopes_on); }
END_TEST

/* ---- separate against packed ---- */

/* [rows, 2 f_s]: gate's columns of a shard, then up's. */
static Tensor pack_columns(Tensor gate, Tensor up) {
    int64_t width = gate.cols;
    Tensor packed =
        tensor_view(calloc((size_t)(gate.rows * 2 * width), sizeof(real)), gate.rows, 2 * width);
    for (int64_t t = 0; t < gate.rows; t++) {
        memcpy(tensor_row(packed, t), tensor_row(gate, t), (size_t)width * sizeof(real));
        memcpy(tensor_row(packed, t) + width, tensor_row(up, t), (size_t)width * sizeof(real));
    }
    return packed;
}

/* [2 f_s, D]: gate's rows of a shard, then up's. */
static Tensor pack_rows(Tensor gate, Tensor up) {
    size_t half = (size_t)(gate.rows * gate.cols);
    Tensor packed = tensor_view(calloc(2 * half, sizeof(real)), 2 * gate.rows, gate.cols);
    memcpy(packed.data, gate.data, half * sizeof(real));
    memcpy(packed.data + half, up.data, half * sizeof(real));
    return packed;
}

static Tensor one_product(GemmForm form, Tensor a, Tensor b, int64_t m, int64_t n, int64_t k) {
    Tensor c = tensor_view(calloc((size_t)(m * n), sizeof(real)), m, n);
    void *scratch = memory_allocate(gemm_scratch(), "scratch");
    ck_assert_ptr_nonnull(scratch);
    gemm_call(&(GemmCall){form, m, n, k, a.data, a.ld, b.data, b.ld, 1, false, c.data, c.ld},
              scratch);
    free(scratch);
    return c;
}

static void assert_packed(const FfnRig *rig, int shard, const char *what, Tensor separate,
                          Tensor packed) {
    double *got = ffn_rig_rows(separate), *expected = ffn_rig_rows(packed);
    double found = whole_difference(separate.rows * separate.cols, got, expected);
    ck_assert_msg(found <= TOLERANCE, "%s: %s of shard %d differs by %g", ffn_rig_name(rig), what,
                  shard, found);
    free(separate.data);
    free(packed.data);
    free(got);
    free(expected);
}

/* One product with [gate_s; up_s] gives what two give. Without biases, so that the products are
 * what is kept. */
static void check_packed(Grid *grid, const FfnRigPlan *kind) {
    FfnRigPlan plan = *kind;
    plan.bias = false;
    if (!ffn_find(plan.kind)->has_gate) return;
    FfnRig rig;
    ffn_rig_open(&rig, grid, &plan);
    ffn_rig_fill(&rig, 8);
    ffn_rig_forward(&rig, true);
    const Param *gate = ffn_rig_param(&rig, "gate_proj.weight");
    const Param *up = ffn_rig_param(&rig, "up_proj.weight");
    int64_t rows = plan.rows, d = plan.d_model;
    Range owned = gate->owned;
    for (int s = (int)owned.begin; s < owned.end; s++) {
        Tensor weight = pack_rows(param_shard(&rig.set, gate, PARAM_VALUE, s),
                                  param_shard(&rig.set, up, PARAM_VALUE, s));
        assert_packed(&rig, s, "preactivations",
                      pack_columns(rig.saved.gate.shard[s], rig.saved.up.shard[s]),
                      one_product(GEMM_NT, rig.x, weight, rows, weight.rows, d));
        free(weight.data);
    }
    ffn_rig_backward(&rig, true); /* leaves their gradients in the preactivations' places */
    for (int s = (int)owned.begin; s < owned.end; s++) {
        Tensor dz = pack_columns(rig.saved.gate.shard[s], rig.saved.up.shard[s]);
        assert_packed(&rig, s, "weight gradients",
                      pack_rows(param_shard(&rig.set, gate, PARAM_GRADIENT, s),
                                param_shard(&rig.set, up, PARAM_GRADIENT, s)),
                      one_product(GEMM_TN, dz, rig.x, dz.cols, d, rows));
        free(dz.data);
    }
    ffn_rig_close(&rig);
}

static void packed_on(Grid *grid) { on_kinds(grid, check_packed); }

START_TEST(separate_equals_packed) { on_layouts(packed_on); }
END_TEST

/* ---- probes ---- */

static bool row_agrees(int64_t n, const double *got, const double *expected, double tolerance) {
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(expected[i])) largest = fmax(largest, fabs(expected[i]));
    for (int64_t i = 0; i < n; i++) {
        bool same = isnan(expected[i]) ? isnan(got[i])
                    : isinf(expected[i])
                        ? got[i] == expected[i]
                        : fabs(got[i] - expected[i]) <= tolerance * largest + ROUNDOFF;
        if (!same) return false;
    }
    return true;
}

/* A finite probe scales a row, another one takes one element's place. */
static void put_probe(real *row, int64_t n, double probe) {
    if (!isfinite(probe)) row[0] = (real)probe;
    for (int64_t j = 0; isfinite(probe) && j < n; j++) row[j] = (real)((double)row[j] * probe);
}

/* A row of extremes: what is finite stays within the tolerance of the row's largest value;
 * infinities and NaN arise as IEEE arithmetic has them in the formula, reach the row's own y and dx
 * and no other row's (a clamp stops infinities, and the gradient of what it stopped). */
static void check_probe_rows(Grid *grid, const FfnRigPlan *kind) {
    static const double probe[] = {1e4, 1e-30, INFINITY, -INFINITY, NAN};
    enum { PROBES = sizeof probe / sizeof *probe };
    FfnRigPlan plan = *kind;
    plan.rows = 2 * PROBES + 1;
    FfnRig rig;
    FfnOracle oracle;
    ffn_rig_open(&rig, grid, &plan);
    ffn_rig_fill(&rig, 9);
    for (int i = 0; i < PROBES; i++)
        put_probe(tensor_row(rig.x, 2 * i + 1), plan.d_model, probe[i]);
    ffn_oracle_run(&oracle, &rig, true);
    ffn_rig_forward(&rig, true);
    ffn_rig_backward(&rig, true);
    double *y = ffn_rig_rows(rig.y), *dx = ffn_rig_rows(rig.dx);
    for (int64_t t = 0; t < plan.rows; t++) {
        int64_t at = t * plan.d_model;
        ck_assert_msg(row_agrees(plan.d_model, y + at, oracle.y + at, TOLERANCE) &&
                          row_agrees(plan.d_model, dx + at, oracle.dx + at, TOLERANCE),
                      "%s: row %d, y %g, expected %g, dx %g, expected %g", ffn_rig_name(&rig),
                      (int)t, y[at], oracle.y[at], dx[at], oracle.dx[at]);
        ck_assert(t % 2 || (isfinite(y[at]) && isfinite(dx[at])));
    }
    free(y);
    free(dx);
    ffn_oracle_release(&oracle);
    ffn_rig_close(&rig);
}

static void probes_on(Grid *grid) {
    on_kinds(grid, check_probe_rows);
    on_kinds_with(&suite_bounded_plan, grid, check_probe_rows);
}

START_TEST(extremes_stay_in_their_row) { on_layouts(probes_on); }
END_TEST

int main(int argc, char **argv) {
    if (gemm_setup()) return EXIT_FAILURE;
    return run_mpi_suite(&argc, &argv, "ffn oracle",
                         TESTS(every_kind_equals_the_oracle,
                               every_pair_of_choices_equals_the_oracle, all_pairs_are_in_the_table,
                               gradients_are_slopes, separate_equals_packed,
                               extremes_stay_in_their_row));
}
