#include "math/activation.h"

#include "math/elementary.h"
#include "support/arrays.h"
#include "support/support.h"

#include <float.h>
#include <stdlib.h>

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

/* The literature's constant, as a double has it. */
static long double quick_gelu_value(long double z) { return z * logistic(1.702 * z); }
static long double quick_gelu_slope(long double z) { return silu_slope(1.702 * z); }

static long double sigmoid_slope(long double z) { return logistic(z) * logistic(-z); }

static long double identity_value(long double z) { return z; }
static long double identity_slope(long double z) {
    (void)z;
    return 1;
}

/* Largest errors in float's units in the last place, as activation.h states them. The slopes pass
 * through 0 near `zero`; within 1/2 of it their unit is that of 1/4. Both in beta z. */
typedef struct {
    const char *name;
    long double (*value)(long double), (*slope)(long double);
    double value_ulp, slope_ulp, zero, beta;
} Reference;

#define NOWHERE 1e9
static const Reference references[] = {
    {"silu", silu_value, silu_slope, ACTIVATION_VALUE_ULP, ACTIVATION_SLOPE_ULP, -1.278, 1},
    {"gelu", gelu_value, gelu_slope, ACTIVATION_VALUE_ULP, ACTIVATION_SLOPE_ULP, -0.752, 1},
    {"gelu_tanh", gelu_tanh_value, gelu_tanh_slope, ACTIVATION_VALUE_ULP, ACTIVATION_SLOPE_ULP,
     -0.752, 1},
    {"relu", relu_value, relu_slope, 0, 0, NOWHERE, 1},
    {"quick_gelu", quick_gelu_value, quick_gelu_slope, ACTIVATION_VALUE_ULP, ACTIVATION_SLOPE_ULP,
     -0.751, 1},
    {"sigmoid", logistic, sigmoid_slope, ACTIVATION_VALUE_ULP, ACTIVATION_SLOPE_ULP, NOWHERE, 1},
    {"identity", identity_value, identity_slope, 0, 0, NOWHERE, 1},
    /* Other betas: z logistic(beta z) = silu(beta z) / beta. */
    {"silu", silu_value, silu_slope, ACTIVATION_VALUE_ULP, ACTIVATION_SLOPE_ULP, -1.278,
     ACTIVATION_LEAST_BETA},
    {"silu", silu_value, silu_slope, ACTIVATION_VALUE_ULP, ACTIVATION_SLOPE_ULP, -1.278, 0.37},
    {"silu", silu_value, silu_slope, ACTIVATION_VALUE_ULP, ACTIVATION_SLOPE_ULP, -1.278, 1.702},
    {"silu", silu_value, silu_slope, ACTIVATION_VALUE_ULP, ACTIVATION_SLOPE_ULP, -1.278,
     ACTIVATION_MOST_BETA},
};
enum { REFERENCES = sizeof references / sizeof *references, ACTIVATIONS = 7 };

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

/* Both tails to where results are denormal or 0, and arguments that
 * are denormal; in units of 1 / beta. */
static const double grid[][2] = {{-160, -20}, {-20, -4},     {-4, 0},         {0, 4},
                                 {4, 160},    {-1e-3, 1e-3}, {-1e-30, 1e-30}, {-3e-38, 3e-38}};
enum { POINTS = 20000, GRIDS = sizeof grid / sizeof *grid };

static void check_grid(const Reference *reference, const double *range, real *z) {
    const Activation *activation = activation_find(reference->name);
    double beta = reference->beta;
    real *a = z + POINTS, *da = a + POINTS;
    for (int j = 0; j < POINTS; j++)
        z[j] = (real)((range[0] + (range[1] - range[0]) * (j + 0.4) / POINTS) / beta);
    activation->slope(POINTS, z, beta, a, da);
    for (int j = 0; j < POINTS; j++) {
        double least = fabs(beta * (double)z[j] - reference->zero) < 0.5 ? 0.25 : 0;
        long double v = (long double)beta * z[j];
        bool good = is_close(a[j], reference->value(v) / beta, reference->value_ulp, 0) &&
                    is_close(da[j], reference->slope(v), reference->slope_ulp, least);
        if (!good)
            ck_abort_msg("%s, beta %g: of %a is %a, slope %a", reference->name, beta, (double)z[j],
                         (double)a[j], (double)da[j]);
    }
    real *again = da;
    activation->value(POINTS, z, beta, again);
    ck_assert(array_same(a, again, POINTS));
}

START_TEST(values_and_slopes_are_within_the_stated_error) {
    real *z = malloc(3 * POINTS * sizeof *z);
    for (int i = 0; i < REFERENCES * GRIDS; i++)
        check_grid(&references[i / GRIDS], grid[i % GRIDS], z);
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

/* The short form for arguments below 0 has the bits of the general one, with factors as well. */
START_TEST(decay_has_the_bits_of_exp) {
    for (uint64_t bits = 0x80000000; bits < UINT32_MAX; bits += 1009) {
        float single;
        memcpy(&single, &(uint32_t){(uint32_t)bits}, sizeof single);
        real x = (real)single, factor = (real)(bits % 977) - 300;
        real want = elementary_exp_times(1, x, (real)-0.0), got = elementary_decay(x);
        ck_assert_msg(isnan(x) ? isnan(got) : array_same(&got, &want, 1), "%a", (double)x);
        if (!(x >= -ELEMENTARY_END)) continue;
        want = elementary_exp_times(factor, x, (real)1e-6);
        got = elementary_lower(factor * elementary_exp_lifted(x, (real)1e-6));
        ck_assert_msg(array_same(&got, &want, 1), "%a, factor %g", (double)x, (double)factor);
    }
}
END_TEST

/* Beyond every tail the functions have their limits exactly, infinities too, for all betas; NaN
 * comes out as NaN. */
START_TEST(extremes) {
    static const struct {
        const char *name;
        bool bounded; /* goes to 1 on the right, not to z */
        bool linear;  /* goes to z on the left, not to 0 */
        real zero, slope_zero;
    } row[ACTIVATIONS] = {{"silu", false, false, 0, 0.5},       {"gelu", false, false, 0, 0.5},
                          {"gelu_tanh", false, false, 0, 0.5},  {"relu", false, false, 0, 0},
                          {"quick_gelu", false, false, 0, 0.5}, {"sigmoid", true, false, 0.5, 0.25},
                          {"identity", false, true, 0, 1}};
    const real large = sizeof(real) == 4 ? (real)FLT_MAX : (real)DBL_MAX, inf = (real)INFINITY;
    const real z[] = {large, inf, 1e6, -large, -inf, -1e6, 0, (real)-0.0, (real)NAN};
    enum { COUNT = sizeof z / sizeof *z };
    static const double betas[] = {1, ACTIVATION_LEAST_BETA, ACTIVATION_MOST_BETA};
    real a[COUNT], da[COUNT];
    for (int i = 0; i < ACTIVATIONS * 3; i++) {
        const Activation *activation = activation_find(row[i / 3].name);
        activation->slope(COUNT, z, betas[i % 3], a, da);
        for (int j = 0; j < COUNT; j++) {
            real value = row[i / 3].zero, slope = row[i / 3].slope_zero;
            if (z[j] > 0) {
                value = row[i / 3].bounded ? 1 : z[j];
                slope = !row[i / 3].bounded;
            } else if (z[j] < 0) {
                value = row[i / 3].linear ? z[j] : 0;
                slope = row[i / 3].linear;
            }
            ck_assert_msg(isnan(z[j]) ? isnan(a[j]) && isnan(da[j]) : a[j] == value, "%s(%g) = %g",
                          activation->name, (double)z[j], (double)a[j]);
            ck_assert_msg(isnan(z[j]) || da[j] == slope, "%s'(%g) = %g", activation->name,
                          (double)z[j], (double)da[j]);
        }
    }
}
END_TEST

/* Any piece of an array gives the bits that it has in the whole, wherever it lies; a value may
 * take its argument's place. */
START_TEST(bits_depend_on_neither_offset_nor_length) {
    enum { LENGTH = 700 };
    static real z[LENGTH], a[LENGTH], da[LENGTH], piece[2][LENGTH + 16];
    array_fill(z, LENGTH, 6, 1);
    for (int r = 0; r < REFERENCES; r++) {
        const Activation *act = activation_find(references[r].name);
        act->slope(LENGTH, z, references[r].beta, a, da);
        for (int i = 0; i < 400; i++) {
            int begin = i * 7 % 300, size = i < 70 ? i : i + begin > LENGTH - 1 ? 33 : i;
            real *value = piece[0] + i * 5 % 16, *slope = piece[1] + i * 3 % 16;
            act->slope(size, z + begin, references[r].beta, value, slope);
            ck_assert_msg(array_same(value, a + begin, size) && array_same(slope, da + begin, size),
                          "%s [%d, +%d)", act->name, begin, size);
            memcpy(value, z + begin, (size_t)size * sizeof *value);
            act->value(size, value, references[r].beta, value);
            ck_assert_msg(array_same(value, a + begin, size), "%s [%d, +%d)", act->name, begin,
                          size);
        }
    }
}
END_TEST

START_TEST(slopes_are_central_differences) {
    for (int r = 0; sizeof(real) == 8 && r < REFERENCES; r++) {
        const Activation *act = activation_find(references[r].name);
        double beta = references[r].beta, step = 1e-5 / beta;
        for (double z = -9.97; z < 9; z += 0.0731) {
            real at[] = {(real)(z / beta - step), (real)(z / beta + step), (real)(z / beta)};
            real a[3], da[3];
            act->slope(3, at, beta, a, da);
            ck_assert_double_eq_tol((double)(a[1] - a[0]) / (double)(at[1] - at[0]), (double)da[2],
                                    1e-9);
        }
    }
}
END_TEST

START_TEST(names) {
    ck_assert_ptr_null(activation_find("swish"));
    ck_assert_ptr_null(activation_find("gelu_tan"));
    for (int i = 0; i < ACTIVATIONS; i++) {
        ck_assert_str_eq(activations[i].name, references[i].name);
        ck_assert_ptr_eq(activation_find(references[i].name), &activations[i]);
        ck_assert_int_eq(activations[i].has_beta, !strcmp(activations[i].name, "silu"));
        ck_assert_int_eq(activations[i].has_beta, activations[i].beta_equation != NULL);
    }
    ck_assert_ptr_null(activations[ACTIVATIONS].name);
}
END_TEST

int main(void) {
    return run_suite("activation", TESTS(values_and_slopes_are_within_the_stated_error,
                                         exp_is_within_the_stated_error, decay_has_the_bits_of_exp,
                                         extremes, bits_depend_on_neither_offset_nor_length,
                                         slopes_are_central_differences, names));
}
