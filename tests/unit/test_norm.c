#include "math/norm.h"

#include "support/arrays.h"
#include "support/support.h"

enum { ROWS = 9, MOST = 300, SLACK = 5 };
static const double EPS = 1e-5;

/* x, dy [ROWS, cols] in rows that are longer than that, and what is computed from them. */
typedef struct {
    real x[ROWS * (MOST + SLACK)], dy[ROWS * (MOST + SLACK)], dx[ROWS * (MOST + SLACK)];
    real y[ROWS * (MOST + SLACK)], gain[MOST], scale[ROWS];
    double gain_sum[MOST];
    int64_t cols;
} Case;

static Tensor view(real *data, int64_t cols) { return (Tensor){data, ROWS, cols, cols + SLACK}; }

static void case_make(Case *c, int64_t cols) {
    memset(c, 0, sizeof *c);
    c->cols = cols;
    for (int64_t t = 0; t < ROWS; t++) {
        array_fill(tensor_row(view(c->x, cols), t), cols, (double)(t + 1), (uint64_t)t);
        array_fill(tensor_row(view(c->dy, cols), t), cols, 1, (uint64_t)(100 + t));
        array_fill(tensor_row(view(c->dx, cols), t), cols, 1, (uint64_t)(200 + t));
    }
    array_fill(c->gain, cols, 1, 300);
}

static void case_run(Case *c, Range rows) {
    norm_forward(rows, view(c->x, c->cols), c->gain, EPS, view(c->y, c->cols), c->scale);
    norm_backward(rows, view(c->dy, c->cols), view(c->x, c->cols), c->gain, c->scale,
                  view(c->dx, c->cols), c->gain_sum);
}

/* sum over i of weight_i y_i for one row, in double. */
static double weighted_output(int64_t n, const double *x, const double *gain, const real *weight) {
    double mean = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) mean += x[i] * x[i] / (double)n;
    for (int64_t i = 0; i < n; i++) sum += (double)weight[i] * x[i] / sqrt(mean + EPS) * gain[i];
    return sum;
}

/* Central difference of it by *variable. */
static double derivative(int64_t n, const double *x, const double *gain, const real *weight,
                         double *variable) {
    const double step = 1e-5, kept = *variable;
    *variable = kept + step;
    double above = weighted_output(n, x, gain, weight);
    *variable = kept - step;
    double below = weighted_output(n, x, gain, weight);
    *variable = kept;
    return (above - below) / (2 * step);
}

START_TEST(forward_agrees_with_the_definition) {
    static Case c;
    for (int64_t cols = 1; cols < MOST; cols += 1 + cols / 3) {
        case_make(&c, cols);
        case_run(&c, (Range){0, ROWS});
        for (int64_t t = 0; t < ROWS; t++) {
            const real *x = tensor_row(view(c.x, cols), t), *y = tensor_row(view(c.y, cols), t);
            double mean = 0;
            for (int64_t i = 0; i < cols; i++) mean += (double)x[i] * (double)x[i] / (double)cols;
            double scale = 1 / sqrt(mean + EPS);
            ck_assert_double_le(fabs((double)c.scale[t] - scale), 8 * ROUNDOFF * scale);
            for (int64_t i = 0; i < cols; i++) {
                double want = (double)x[i] * scale * (double)c.gain[i];
                ck_assert_double_le(fabs((double)y[i] - want), 8 * ROUNDOFF * fabs(want));
            }
            ck_assert(y[cols] == 0);
        }
    }
}
END_TEST

/* In double by central differences; the kernel has to meet them in either build. */
START_TEST(backward_agrees_with_central_differences) {
    static Case c, before;
    double x[MOST], gain[MOST], gain_want[MOST];
    const double tolerance = sizeof(real) == 4 ? 2e-5 : 1e-8;
    for (int64_t cols = 1; cols < 80; cols += 1 + cols / 2) {
        case_make(&before, cols);
        case_make(&c, cols);
        case_run(&c, (Range){0, ROWS});
        memset(gain_want, 0, sizeof gain_want);
        for (int64_t t = 0; t < ROWS; t++) {
            const real *dy = tensor_row(view(c.dy, cols), t);
            for (int64_t i = 0; i < cols; i++) {
                x[i] = (double)tensor_row(view(c.x, cols), t)[i];
                gain[i] = (double)c.gain[i];
            }
            for (int64_t i = 0; i < cols; i++) {
                double got = (double)tensor_row(view(c.dx, cols), t)[i] -
                             (double)tensor_row(view(before.dx, cols), t)[i];
                double want = derivative(cols, x, gain, dy, &x[i]);
                ck_assert_double_le(fabs(got - want), tolerance * (1 + fabs(want)));
                gain_want[i] += derivative(cols, x, gain, dy, &gain[i]);
            }
        }
        for (int64_t i = 0; i < cols; i++) {
            ck_assert_double_le(fabs(c.gain_sum[i] - gain_want[i]), tolerance);
        }
    }
}
END_TEST

START_TEST(bits_do_not_depend_on_the_split_of_rows) {
    static Case whole, pieces;
    for (int64_t cols = 1; cols < MOST; cols += 1 + cols / 5) {
        case_make(&whole, cols);
        case_run(&whole, (Range){0, ROWS});
        case_make(&pieces, cols);
        case_run(&pieces, (Range){3, ROWS});
        case_run(&pieces, (Range){0, 1});
        case_run(&pieces, (Range){1, 3});
        ck_assert(array_same(whole.y, pieces.y, ROWS * (cols + SLACK)));
        ck_assert(array_same(whole.dx, pieces.dx, ROWS * (cols + SLACK)));
        ck_assert(array_same(whole.scale, pieces.scale, ROWS));
    }
}
END_TEST

START_TEST(bits_do_not_depend_on_alignment) {
    enum { COLS = 77 };
    static real x[COLS + 16], y[COLS + 16], first[COLS], scale[2];
    static Case c;
    case_make(&c, COLS);
    for (int at = 0; at < 16; at++) {
        array_fill(x + at, COLS, 1, 7);
        norm_forward((Range){0, 1}, tensor_view(x + at, 1, COLS), c.gain, EPS,
                     tensor_view(y + at, 1, COLS), scale);
        if (at == 0) memcpy(first, y, sizeof first);
        ck_assert(array_same(first, y + at, COLS));
        norm_forward((Range){0, 1}, tensor_view(x + at, 1, COLS), c.gain, EPS,
                     (Tensor){NULL, 1, COLS, COLS}, scale + 1);
        ck_assert(array_same(scale, scale + 1, 1));
    }
}
END_TEST

START_TEST(again_gives_the_bits_of_forward) {
    static Case c;
    static real again[ROWS * (MOST + SLACK)];
    case_make(&c, MOST);
    case_run(&c, (Range){0, ROWS});
    norm_again((Range){4, ROWS}, view(c.x, MOST), c.gain, c.scale, view(again, MOST));
    norm_again((Range){0, 4}, view(c.x, MOST), c.gain, c.scale, view(again, MOST));
    ck_assert(array_same(c.y, again, ROWS * (MOST + SLACK)));
}
END_TEST

START_TEST(nan_stays_in_its_row) {
    static Case c, clean;
    case_make(&clean, 40);
    case_run(&clean, (Range){0, ROWS});
    case_make(&c, 40);
    tensor_row(view(c.x, 40), 2)[39] = (real)NAN;
    case_run(&c, (Range){0, ROWS});
    for (int64_t t = 0; t < ROWS; t++) {
        const real *y = tensor_row(view(c.y, 40), t), *dx = tensor_row(view(c.dx, 40), t);
        if (t != 2) ck_assert(array_same(y, tensor_row(view(clean.y, 40), t), 40));
        for (int i = 0; t == 2 && i < 40; i++) ck_assert(isnan(y[i]) && isnan(dx[i]));
    }
}
END_TEST

START_TEST(zero_rows_are_finite) {
    static Case c;
    case_make(&c, 33);
    memset(tensor_row(view(c.x, 33), 1), 0, 33 * sizeof(real));
    case_run(&c, (Range){1, 2});
    for (int i = 0; i < 33; i++) {
        ck_assert(tensor_row(view(c.y, 33), 1)[i] == 0);
        ck_assert(isfinite(tensor_row(view(c.dx, 33), 1)[i]));
    }
}
END_TEST

START_TEST(rows_are_summed_in_order) {
    static Case c;
    double sum[MOST], want[MOST] = {0};
    case_make(&c, MOST);
    rows_sum((Range){2, 7}, view(c.x, MOST), sum);
    for (int64_t t = 2; t < 7; t++) {
        for (int64_t i = 0; i < MOST; i++) want[i] += (double)tensor_row(view(c.x, MOST), t)[i];
    }
    ck_assert(memcmp(sum, want, sizeof sum) == 0);
}
END_TEST

int main(void) {
    return run_suite(
        "norm", TESTS(forward_agrees_with_the_definition, backward_agrees_with_central_differences,
                      bits_do_not_depend_on_the_split_of_rows, bits_do_not_depend_on_alignment,
                      again_gives_the_bits_of_forward, nan_stays_in_its_row, zero_rows_are_finite,
                      rows_are_summed_in_order));
}
