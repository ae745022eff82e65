#include "math/activation.h"

#include "math/elementary.h"
#include "support/arrays.h"
#include "support/support.h"

#include <float.h>
#include <stdlib.h>

#define BRANCHES(act)                                                                              \
    &(Branches) { .activation = (act), .beta = 1 }

/* ---- references in long double, written as in the literature ---- */

static long double logistic(long double x) {
    return x > 0 ? 1 / (1 + expl(-x)) : expl(x) / (1 + expl(x));
}

static long double silu_value(long double z) { return z * logistic(z); }
static long double silu_slope(long double z) { return logistic(z) * (1 + z * logistic(-z)); }

static long double gelu_value(long double z) { return z * erfcl(-z / sqrtl(2)) / 2; }
static long double gelu_slope(long double z) {
    return erfcl(-z / sqrtl(2)) / 2 + z * expl(-z * z / 2) / sqrtl(8 * atanl(1));
}

/* 0.5 (1 + tanh(u)) = logistic(2u): tanh would cancel in the tail. */
static long double gelu_tanh_value(long double z) {
    return z * logistic(2 * sqrtl(0.5L / atanl(1)) * (z + 0.044715L * z * z * z));
}
static long double gelu_tanh_slope(long double z) {
    long double c = 2 * sqrtl(0.5L / atanl(1)), v = c * (z + 0.044715L * z * z * z);
    return logistic(v) + z * logistic(v) * logistic(-v) * c * (1 + 3 * 0.044715L * z * z);
}

static long double relu_value(long double z) { return z > 0 ? z : 0; }
static long double relu_slope(long double z) { return z > 0 ? 1 : 0; }

/* Largest errors in float's units in the last place, as activation.h states them. The slopes pass
 * through 0 near `zero`; within 1/2 of it their unit is that of 1/4. */
static const struct {
    const char *name;
    long double (*value)(long double), (*slope)(long double);
    double value_ulp, slope_ulp, zero;
} references[] = {
    {"silu", silu_value, silu_slope, ACTIVATION_VALUE_ULP, ACTIVATION_SLOPE_ULP, -1.278},
    {"gelu", gelu_value, gelu_slope, ACTIVATION_VALUE_ULP, ACTIVATION_SLOPE_ULP, -0.752},
    {"gelu_tanh", gelu_tanh_value, gelu_tanh_slope, ACTIVATION_VALUE_ULP, ACTIVATION_SLOPE_ULP,
     -0.752},
    {"relu", relu_value, relu_slope, 0, 0, 100},
};
enum { REFERENCES = sizeof references / sizeof *references };

/* Error in units of the last place of a `real` of at least the size given. */
static double error_ulp(real got, long double want, double least) {
    double size = fmax(fmax(fabs((double)want), least), sizeof(real) == 4 ? FLT_MIN : DBL_MIN);
    int exponent;
    frexp(size, &exponent);
    return (double)(fabsl((long double)got - want) /
                    ldexpl(2 * (long double)ROUNDOFF, exponent - 1));
}

/* In double the tails lose what their argument's rounding costs: relative error instead. */
static bool is_close(real got, long double want, double ulp, double least) {
    if (sizeof(real) == 4) return error_ulp(got, want, least) <= ulp;
    return fabsl(got - want) <= 1e-12L * fmaxl(fabsl(want), least) + DBL_MIN;
}

START_TEST(values_and_slopes_are_within_the_stated_error) {
    static const double grid[][2] = {{-160, -20}, {-20, -4},     {-4, 0},         {0, 4},
                                     {4, 160},    {-1e-3, 1e-3}, {-1e-30, 1e-30}, {-3e-38, 3e-38}};
    enum { POINTS = 20000, GRIDS = sizeof grid / sizeof *grid };
    real *z = malloc(3 * POINTS * sizeof *z), *a = z + POINTS, *da = z + 2 * POINTS;
    for (int i = 0; i < REFERENCES * GRIDS; i++) {
        const Activation *activation = activation_find(references[i / GRIDS].name);
        const double *range = grid[i % GRIDS];
        for (int j = 0; j < POINTS; j++) {
            z[j] = (real)(range[0] + (range[1] - range[0]) * (j + 0.4) / POINTS);
        }
        activation->slope(POINTS, z, 1, a, da);
        for (int j = 0; j < POINTS; j++) {
            double least = fabs((double)z[j] - references[i / GRIDS].zero) < 0.5 ? 0.25 : 0;
            ck_assert_msg(is_close(a[j], references[i / GRIDS].value(z[j]),
                                   references[i / GRIDS].value_ulp, 0),
                          "%s(%a) = %a", activation->name, (double)z[j], (double)a[j]);
            ck_assert_msg(is_close(da[j], references[i / GRIDS].slope(z[j]),
                                   references[i / GRIDS].slope_ulp, least),
                          "%s'(%a) = %a", activation->name, (double)z[j], (double)da[j]);
        }
        real *again = da;
        activation->value(POINTS, z, 1, again);
        ck_assert(array_same(a, again, POINTS));
    }
    free(z);
}
END_TEST

/* ELEMENTARY_EXP_ULP is the largest error over all floats; the test takes every 1009th. */
START_TEST(exp_is_within_the_stated_error) {
    double worst = 0;
    for (uint64_t bits = 0; sizeof(real) == 4 && bits < UINT32_MAX; bits += 1009) {
        float x;
        memcpy(&x, &(uint32_t){(uint32_t)bits}, sizeof x);
        double want = exp((double)x);
        double got = (double)elementary_exp_times(1, (real)x, 0);
        if (isnan(x)) {
            ck_assert(isnan(got));
        } else if (want >= 0x1.ffffffp127) {
            ck_assert(isinf(got));
        } else {
            double error = error_ulp((real)got, want, 0);
            worst = error > worst ? error : worst;
        }
    }
    ck_assert_msg(worst <= ELEMENTARY_EXP_ULP, "%g", worst);
}
END_TEST

START_TEST(hand_values) {
    static const struct {
        const char *name;
        double output, tolerance;
    } row[] = {{"silu", 4.38635147, 1e-6},
               {"gelu_tanh", 5.04715, 5e-6},
               {"gelu", 5.04807, 5e-6},
               {"relu", 6, 1e-12}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        real gate = 1, up = 2, h; /* Wg 1, Wu 2, Wd 3, x 1 */
        activation_gated(BRANCHES(activation_find(row[i].name)), 1, &gate, &up, &h);
        ck_assert_double_eq_tol(3 * (double)h, row[i].output, row[i].tolerance);
    }
}
END_TEST

START_TEST(hand_gradients_of_silu) {
    const Activation *silu = activation_find("silu");
    const real gate[] = {-1, 0, 1}, up[] = {2, 3, 4}, ones[] = {1, 1, 1};
    const double h_want[] = {-0.537883, 0, 2.924234}, dg_want[] = {0.144659, 1.5, 3.710682};
    const double du_want[] = {-0.268941, 0, 0.731059};
    real h[3], dg[3], du[3];
    activation_gated(BRANCHES(silu), 3, gate, up, h);
    activation_gated_backward(BRANCHES(silu), 3, gate, up, ones, dg, du);
    ck_assert_double_le(array_difference(h, h_want, 3), 1e-6);
    ck_assert_double_le(array_difference(dg, dg_want, 3), 1e-6);
    ck_assert_double_le(array_difference(du, du_want, 3), 1e-6);
}
END_TEST

/* Beyond every tail the functions are z or 0 exactly; NaN comes out as NaN. */
START_TEST(extremes) {
    const real large = sizeof(real) == 4 ? (real)FLT_MAX : (real)DBL_MAX, inf = (real)INFINITY;
    const real z[] = {large, inf, 1e4, -large, -inf, -1e4, 0, (real)-0.0, (real)NAN};
    const real a_want[] = {large, inf, 1e4, 0, 0, 0, 0, 0, (real)NAN};
    enum { COUNT = sizeof z / sizeof *z };
    real a[COUNT], da[COUNT];
    for (const Activation *activation = activations; activation->name; activation++) {
        activation->slope(COUNT, z, 1, a, da);
        for (int i = 0; i < COUNT; i++) {
            real slope = z[i] > 0                                ? 1
                         : z[i] < 0                              ? 0
                         : activation_find("relu") == activation ? 0
                                                                 : 0.5;
            if (isnan(z[i])) slope = z[i];
            ck_assert_msg(a[i] == a_want[i] || (isnan(a[i]) && isnan(a_want[i])), "%s(%g) = %g",
                          activation->name, (double)z[i], (double)a[i]);
            ck_assert_msg(da[i] == slope || (isnan(da[i]) && isnan(slope)), "%s'(%g) = %g",
                          activation->name, (double)z[i], (double)da[i]);
        }
    }
}
END_TEST

enum { LENGTH = 700 };

/* Any piece of an array gives the bits that it has in the whole, wherever it lies. */
START_TEST(bits_depend_on_neither_offset_nor_length) {
    static real g[LENGTH], u[LENGTH], dh[LENGTH], whole[5][LENGTH], piece[5][LENGTH + 16];
    array_fill(g, LENGTH, 6, 1);
    array_fill(u, LENGTH, 2, 2);
    array_fill(dh, LENGTH, 2, 3);
    for (const Activation *act = activations; act->name; act++) {
        activation_gated(BRANCHES(act), LENGTH, g, u, whole[0]);
        activation_gated_backward(BRANCHES(act), LENGTH, g, u, dh, whole[1], whole[2]);
        activation_plain(BRANCHES(act), LENGTH, g, whole[3]);
        activation_plain_backward(BRANCHES(act), LENGTH, g, dh, whole[4]);
        for (int i = 0; i < 400; i++) {
            int begin = i * 7 % 300, size = i < 70 ? i : i + begin > LENGTH - 1 ? 33 : i;
            int at = i * 5 % 16;
            activation_gated(BRANCHES(act), size, g + begin, u + begin, piece[0] + at);
            activation_gated_backward(BRANCHES(act), size, g + begin, u + begin, dh + begin,
                                      piece[1] + at, piece[2] + at);
            activation_plain(BRANCHES(act), size, g + begin, piece[3] + at);
            activation_plain_backward(BRANCHES(act), size, g + begin, dh + begin, piece[4] + at);
            for (int k = 0; k < 5; k++) {
                ck_assert_msg(array_same(piece[k] + at, whole[k] + begin, size), "%s [%d, +%d) %d",
                              act->name, begin, size, k);
            }
        }
        real one;
        for (int i = 0; i < LENGTH; i++) {
            act->value(1, g + i, 1, &one);
            ck_assert(array_same(&one, whole[3] + i, 1));
        }
    }
}
END_TEST

START_TEST(backward_may_overwrite_its_inputs) {
    static real g[LENGTH], u[LENGTH], dh[LENGTH], dg[LENGTH], du[LENGTH], place[3][LENGTH];
    array_fill(g, LENGTH, 6, 1);
    array_fill(u, LENGTH, 2, 2);
    array_fill(dh, LENGTH, 2, 3);
    for (const Activation *act = activations; act->name; act++) {
        activation_gated_backward(BRANCHES(act), LENGTH, g, u, dh, dg, du);
        for (int variant = 0; variant < 3; variant++) {
            memcpy(place[0], g, sizeof g);
            memcpy(place[1], u, sizeof u);
            memcpy(place[2], dh, sizeof dh);
            real *dg_place = place[variant == 1 ? 2 : 0], *du_place = place[variant == 2 ? 2 : 1];
            activation_gated_backward(BRANCHES(act), LENGTH, place[0], place[1], place[2], dg_place,
                                      du_place);
            ck_assert(array_same(dg_place, dg, LENGTH) && array_same(du_place, du, LENGTH));
        }
        activation_plain_backward(BRANCHES(act), LENGTH, g, dh, dg);
        memcpy(place[0], g, sizeof g);
        memcpy(place[2], dh, sizeof dh);
        activation_plain_backward(BRANCHES(act), LENGTH, place[0], dh, place[0]);
        activation_plain_backward(BRANCHES(act), LENGTH, g, place[2], place[2]);
        ck_assert(array_same(place[0], dg, LENGTH) && array_same(place[2], dg, LENGTH));
    }
}
END_TEST

START_TEST(slopes_are_central_differences) {
    const double step = 1e-5;
    for (const Activation *act = activations; sizeof(real) == 8 && act->name; act++) {
        for (double z = -9.97; z < 9; z += 0.0731) {
            real at[] = {(real)(z - step), (real)(z + step), (real)z}, a[3], da[3];
            act->slope(3, at, 1, a, da);
            ck_assert_double_eq_tol((double)(a[1] - a[0]) / (2 * step), (double)da[2], 1e-9);
        }
    }
}
END_TEST

START_TEST(names) {
    ck_assert_ptr_null(activation_find("swish"));
    ck_assert_ptr_null(activation_find("gelu_tan"));
    for (int i = 0; i < REFERENCES; i++) {
        ck_assert_str_eq(activation_find(references[i].name)->name, references[i].name);
        ck_assert_str_eq(activations[i].name, references[i].name);
    }
    ck_assert_ptr_null(activations[REFERENCES].name);
}
END_TEST

int main(void) {
    return run_suite("activation",
                     TESTS(values_and_slopes_are_within_the_stated_error,
                           exp_is_within_the_stated_error, hand_values, hand_gradients_of_silu,
                           extremes, bits_depend_on_neither_offset_nor_length,
                           backward_may_overwrite_its_inputs, slopes_are_central_differences,
                           names));
}
