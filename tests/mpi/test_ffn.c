/* The conformance suite of feed-forward kinds, run over every row of ffn_kinds with every
 * activation: gradients add up, bits are the same everywhere, rows are apart, masks. On 3 ranks; tp
 * 1, 2, 3. Values against the oracle are in test_ffn_oracle.c, properties in test_ffn_properties.c.
 */
#include "support/arrays.h"
#include "support/ffn_suite.h"
#include "support/naive.h"
#include "support/oracle.h"
#include "support/support.h"
#include "support/whole.h"

#include <stdlib.h>
#include <string.h>

static size_t bytes_of(Tensor x) { return (size_t)(x.rows * x.cols) * sizeof(real); }

static real *copy_of(Tensor x) {
    real *copy = malloc(bytes_of(x));
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, x.data, bytes_of(x));
    return copy;
}

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

static Hash128 hash_of_run(Grid *grid, const FfnRigPlan *plan, Recompute mode) {
    FfnRig rig;
    ffn_rig_open(&rig, grid, plan);
    ffn_rig_fill(&rig, 4);
    ffn_rig_forward(&rig, true);
    ffn_rig_recompute(&rig, true, mode);
    ffn_rig_backward(&rig, true);
    Hash128 part[] = {hash_bytes(rig.y.data, bytes_of(rig.y)),
                      hash_bytes(rig.dx.data, bytes_of(rig.dx)),
                      whole_hash(grid, &rig.set, PARAM_GRADIENT)};
    ffn_rig_close(&rig);
    return hash_bytes(part, sizeof part);
}

/* The reference: one rank, each operation apart. */
static void check_bits(Grid *grid, const FfnRigPlan *plan, Recompute last) {
    Grid alone;
    grid_serial(&alone);
    Fusion level = ffn_rig_fuse(FUSION_EAGER);
    Hash128 expected = hash_of_run(&alone, plan, RECOMPUTE_NONE);
    ffn_rig_fuse(level);
    for (Recompute mode = RECOMPUTE_NONE; mode <= last; mode++)
        ck_assert_msg(hash_equal(hash_of_run(grid, plan, mode), expected),
                      "%s %s: tp %d, recompute mode %d, fusion level %d has other bits than tp 1, "
                      "eager",
                      plan->kind, plan->activation, grid->tp, (int)mode, (int)level);
}

static void check_layout_bits(Grid *grid, const FfnRigPlan *plan) {
    check_bits(grid, plan, RECOMPUTE_BLOCK);
}

static void layout_bits_on(Grid *grid) {
    on_kinds(grid, check_layout_bits);
    on_kinds_with(&suite_bounded_plan, grid, check_layout_bits);
}

START_TEST(every_layout_and_mode_has_the_same_bits) { on_layouts(layout_bits_on); }
END_TEST

/* Shards of several tiles, which several threads make. */
static void tiles_on(Grid *grid) {
    FfnRigPlan plan = suite_bounded_plan;
    plan.rows = 70;
    plan.d_ff = 300;
    plan.shards = 3;
    plan.threads = 3;
    plan.activation = "silu";
    if (grid->tp > 2) return; /* two kinds of sums are enough */
    for (int k = 0; ffn_kinds[k]; k++) {
        plan.kind = ffn_kinds[k]->name;
        FfnRigPlan fitting = suite_fit(plan);
        check_bits(grid, &fitting, RECOMPUTE_NONE);
    }
}

START_TEST(every_tile_has_the_same_bits) { on_layouts(tiles_on); }
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

int main(int argc, char **argv) {
    if (gemm_setup()) return EXIT_FAILURE;
    return run_mpi_suite(&argc, &argv, "ffn",
                         TESTS(gradients_accumulate, every_layout_and_mode_has_the_same_bits,
                               every_tile_has_the_same_bits, a_row_does_not_see_another,
                               permuted_rows_give_permuted_rows,
                               hidden_masks_differ_where_channels_do));
}
