/* AdamW, clipping, the gradient norm and the learning rate: by hand and against plain loops. */
#include "base/error.h"
#include "optim/adamw.h"
#include "optim/schedule.h"
#include "support/arrays.h"
#include "support/support.h"

#include <math.h>
#include <stdlib.h>

/* ---- the learning rate ---- */

START_TEST(rates_by_hand) {
    Schedule cosine = {.lr = 1, .min_lr = 0.1, .warmup = 4, .steps = 12, .cosine = true};
    static const struct {
        int64_t step;
        double rate;
    } row[] = {{0, 0.25},          {1, 0.5},           {2, 0.75}, {3, 1}, {4, 1}, /* cos 0 */
               {6, 0.8681980515},                      /* 0.1 + 0.45 (1 + cos(pi/4)) */
               {8, 0.55},                              /* cos(pi/2) */
               {10, 0.2318019485}, {11, 0.1342542104}, /* 0.1 + 0.45 (1 + cos(7 pi/8)) */
               {12, 0.1},          {1000, 0.1}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        ck_assert_double_eq_tol(schedule_rate(&cosine, row[i].step), row[i].rate, 5e-11);
    Schedule constant = {.lr = 3e-4, .min_lr = 0.1, .warmup = 3, .steps = 12};
    ck_assert_double_eq_tol(schedule_rate(&constant, 0), 1e-4, 1e-19);
    ck_assert_double_eq_tol(schedule_rate(&constant, 1), 2e-4, 1e-19);
    for (int64_t step = 2; step < 20; step++)
        ck_assert_double_eq(schedule_rate(&constant, step), 3e-4);
}
END_TEST

START_TEST(rates_without_warmup_and_without_decay) {
    Schedule none = {.lr = 2, .min_lr = 0, .warmup = 0, .steps = 4, .cosine = true};
    ck_assert_double_eq(schedule_rate(&none, 0), 2);
    ck_assert_double_eq_tol(schedule_rate(&none, 2), 1, 1e-15);
    Schedule all = {.lr = 2, .min_lr = 0.5, .warmup = 5, .steps = 5, .cosine = true};
    ck_assert_double_eq_tol(schedule_rate(&all, 4), 2, 1e-15);
    ck_assert_double_eq(schedule_rate(&all, 5), 0.5);
}
END_TEST

/* ---- a small set: a matrix in 3 shards of rows, one in shards of columns, a vector ---- */

static ParamSet open_set(int64_t rows, int64_t cols) {
    ParamSet set;
    AxisLayout by_rows = axis_layout(rows, 3, 1), by_cols = axis_layout(cols, 3, 1);
    ParamSpec spec[] = {
        {.name = "rows",
         .rank = 2,
         .rows = rows,
         .cols = cols,
         .split = SPLIT_ROWS,
         .axis = &by_rows,
         .unit_size = 1,
         .decay = true},
        {.name = "cols",
         .rank = 2,
         .rows = rows,
         .cols = cols,
         .split = SPLIT_COLS,
         .axis = &by_cols,
         .unit_size = 1,
         .decay = true},
        {.name = "vector", .rank = 1, .rows = 1, .cols = cols},
    };
    params_init(&set, 0, 1);
    for (int i = 0; i < 3; i++) {
        int index;
        ck_assert_msg(params_declare(&set, &spec[i], &index) == 0, "%s", error_message());
        ck_assert_int_eq(index, i);
    }
    ck_assert_int_eq(params_allocate(&set, true), 0);
    return set;
}

static void fill_gradient(ParamSet *set, double size, uint64_t key) {
    array_fill(set->arena[PARAM_GRADIENT], set->elements, size, key);
}

/* Whether arena position i belongs to a tensor that decays, or is padding (-1). */
static int decays_at(const ParamSet *set, int64_t i) {
    for (int p = 0; p < set->count; p++) {
        const Param *param = &set->param[p];
        for (int s = (int)param->owned.begin; s < param->owned.end; s++) {
            int64_t size = param_shard_rows(param, s) * param_shard_cols(param, s);
            if (i >= param->offset[s] && i < param->offset[s] + size) return param->decay;
        }
    }
    return -1;
}

/* ---- AdamW ---- */

/* Value 1, gradients 1, 2, -1; lr 0.1, decay 0.1, betas 0.9 and 0.95, eps 1e-8. Step by step:
 * m 0.1, 0.29, 0.161; v 0.05, 0.2475, 0.285125; corrected m 1, 1.526316, 0.594096; corrected v 1,
 * 2.538462, 1.999124; so the value changes by 0.1 times 1, 0.957986, 0.420181. */
START_TEST(three_steps_by_hand) {
    static const double gradient[] = {1, 2, -1};
    static const double decayed[] = {0.890000001000, 0.785301414647, 0.735430266509};
    static const double plain[] = {0.900000001000, 0.804201414657, 0.762183280666};
    static const double m[] = {0.1, 0.29, 0.161}, v[] = {0.05, 0.2475, 0.285125};
    double tolerance = sizeof(real) == 8 ? 1e-12 : 2e-7;
    AdamW adamw = {0.9, 0.95, 1e-8, 0.1};
    ParamSet set = open_set(3, 3);
    for (int64_t i = 0; i < set.elements; i++) set.arena[PARAM_VALUE][i] = 1;
    for (int step = 0; step < 3; step++) {
        for (int64_t i = 0; i < set.elements; i++)
            set.arena[PARAM_GRADIENT][i] = (real)gradient[step];
        adamw_update(&adamw, &set, step + 1, 0.1, 1, 1);
        for (int64_t i = 0; i < set.elements; i++) {
            int decays = decays_at(&set, i);
            if (decays < 0) continue;
            ck_assert_double_eq_tol((double)set.arena[PARAM_VALUE][i],
                                    decays ? decayed[step] : plain[step], tolerance);
            ck_assert_double_eq_tol((double)set.arena[PARAM_MOMENT1][i], m[step], tolerance);
            ck_assert_double_eq_tol((double)set.arena[PARAM_MOMENT2][i], v[step], tolerance);
        }
    }
    params_release(&set);
}
END_TEST

/* Algorithm 2 of Loshchilov and Hutter 2019, element by element in double. */
typedef struct {
    double value, m, v;
} Element;

static void naive_update(const AdamW *adamw, Element *e, double g, int t, double lr, double decay) {
    e->m = adamw->beta1 * e->m + (1 - adamw->beta1) * g;
    e->v = adamw->beta2 * e->v + (1 - adamw->beta2) * g * g;
    double m = e->m / (1 - pow(adamw->beta1, t)), v = e->v / (1 - pow(adamw->beta2, t));
    e->value = e->value - lr * m / (sqrt(v) + adamw->eps) - lr * decay * e->value;
}

START_TEST(updates_equal_the_double_loop) {
    enum { STEPS = 20 };
    AdamW adamw = {0.9, 0.999, 1e-6, 0.3};
    double tolerance = sizeof(real) == 8 ? 1e-14 : 4e-6, scale = 0.37;
    ParamSet set = open_set(29, 31);
    array_fill(set.arena[PARAM_VALUE], set.elements, 1, 1);
    ck_assert_int_gt(set.elements, 0);
    Element *element = calloc((size_t)set.elements, sizeof *element);
    ck_assert_ptr_nonnull(element);
    for (int64_t i = 0; i < set.elements; i++) element[i].value = (double)set.arena[PARAM_VALUE][i];
    for (int t = 1; t <= STEPS; t++) {
        double lr = 0.01 * t;
        fill_gradient(&set, t % 3 ? 2 : 1e-4, (uint64_t)t);
        adamw_update(&adamw, &set, t, lr, scale, t % 4 + 1);
        for (int64_t i = 0; i < set.elements; i++) {
            int decays = decays_at(&set, i);
            if (decays < 0) continue;
            naive_update(&adamw, &element[i], (double)set.arena[PARAM_GRADIENT][i] * scale, t, lr,
                         decays * adamw.weight_decay);
            ck_assert_double_eq_tol((double)set.arena[PARAM_VALUE][i], element[i].value, tolerance);
            ck_assert_double_eq_tol((double)set.arena[PARAM_MOMENT1][i], element[i].m, tolerance);
            ck_assert_double_eq_tol((double)set.arena[PARAM_MOMENT2][i], element[i].v, tolerance);
        }
    }
    free(element);
    params_release(&set);
}
END_TEST

START_TEST(updates_have_the_same_bits_on_any_threads) {
    AdamW adamw = {0.9, 0.95, 1e-8, 0.1};
    ParamSet one = open_set(29, 31), many = open_set(29, 31);
    array_fill(one.arena[PARAM_VALUE], one.elements, 1, 1);
    array_fill(many.arena[PARAM_VALUE], many.elements, 1, 1);
    for (int t = 1; t <= 4; t++) {
        fill_gradient(&one, 1, (uint64_t)t);
        fill_gradient(&many, 1, (uint64_t)t);
        adamw_update(&adamw, &one, t, 0.1, 0.5, 1);
        adamw_update(&adamw, &many, t, 0.1, 0.5, t + 1);
    }
    for (int64_t i = 0; i < one.elements; i++) {
        if (decays_at(&one, i) < 0) continue;
        for (int role = PARAM_VALUE; role < PARAM_ROLES; role++)
            ck_assert(array_same(one.arena[role] + i, many.arena[role] + i, 1));
    }
    params_release(&one);
    params_release(&many);
}
END_TEST

/* ---- norm and clipping ---- */

START_TEST(norm_equals_the_plain_sum) {
    Grid grid;
    GradientNorm norm;
    ParamSet set = open_set(300, 170); /* more than one block in a shard */
    grid_serial(&grid);
    fill_gradient(&set, 3, 5);
    ck_assert_int_eq(gradient_norm_init(&norm, &set), 0);
    long double sum = 0;
    for (int p = 0; p < set.count; p++)
        for (int s = 0; s < set.param[p].shards; s++) {
            Tensor shard = param_shard(&set, &set.param[p], PARAM_GRADIENT, s);
            for (int64_t i = 0; i < shard.rows * shard.cols; i++)
                sum += (long double)shard.data[i] * (long double)shard.data[i];
        }
    double found = gradient_norm(&norm, &set, &grid, 1);
    ck_assert_double_eq_tol(found, (double)sqrtl(sum), 1e-14 * found);
    for (int threads = 2; threads < 6; threads++)
        ck_assert_double_eq(gradient_norm(&norm, &set, &grid, threads), found);
    /* 3-4-5: one element in a matrix, one in the vector; padding is not looked at */
    for (int64_t i = 0; i < set.elements; i++)
        set.arena[PARAM_GRADIENT][i] = decays_at(&set, i) < 0 ? 9 : 0;
    tensor_row(param_shard(&set, &set.param[0], PARAM_GRADIENT, 2), 7)[9] = 3;
    param_shard(&set, &set.param[2], PARAM_GRADIENT, 0).data[169] = -4;
    ck_assert_double_eq(gradient_norm(&norm, &set, &grid, 2), 5);
    gradient_norm_release(&norm);
    params_release(&set);
}
END_TEST

START_TEST(norm_of_large_gradients_does_not_overflow) {
    Grid grid;
    GradientNorm norm;
    ParamSet set = open_set(4, 4);
    grid_serial(&grid);
    ck_assert_int_eq(gradient_norm_init(&norm, &set), 0);
    for (int64_t i = 0; i < set.elements; i++) set.arena[PARAM_GRADIENT][i] = (real)1e30;
    ck_assert_double_eq_tol(gradient_norm(&norm, &set, &grid, 1), 6e30, 1e24); /* 36 elements */
    set.arena[PARAM_GRADIENT][0] = (real)NAN;
    ck_assert(isnan(gradient_norm(&norm, &set, &grid, 1)));
    gradient_norm_release(&norm);
    params_release(&set);
}
END_TEST

START_TEST(clip_scales_by_hand) {
    ck_assert_double_eq(gradient_clip_scale(4, 1), 0.25);
    ck_assert_double_eq(gradient_clip_scale(1, 1), 1);
    ck_assert_double_eq(gradient_clip_scale(0.5, 1), 1);
    ck_assert_double_eq(gradient_clip_scale(0, 1), 1);
    ck_assert_double_eq(gradient_clip_scale(4, 0), 1); /* no clipping */
    ck_assert_double_eq(gradient_clip_scale(10, 2.5) * 10, 2.5);
}
END_TEST

int main(void) {
    return run_suite("optim",
                     TESTS(rates_by_hand, rates_without_warmup_and_without_decay,
                           three_steps_by_hand, updates_equal_the_double_loop,
                           updates_have_the_same_bits_on_any_threads, norm_equals_the_plain_sum,
                           norm_of_large_gradients_does_not_overflow, clip_scales_by_hand));
}
