#include "math/attention.h"

#include "math/gemm.h"
#include "support/arrays.h"
#include "support/support.h"

#include <stdlib.h>

/* One group's arrays; rows lie `slack` elements further apart than they are long. Values do not
 * depend on slack. */
typedef struct {
    AttentionShape shape;
    Tensor q, k, v, o, lse, d_o, dq, dk, dv;
    void *scratch;
} Group;

static Tensor matrix(int64_t rows, int64_t cols, int64_t slack, uint64_t key) {
    Tensor t = {calloc((size_t)(rows * (cols + slack) + slack), sizeof(real)), rows, cols,
                cols + slack};
    ck_assert_ptr_nonnull(t.data);
    for (int64_t i = 0; i < rows; i++) {
        array_fill(tensor_row(t, i), cols, 1.5, key * 10000 + (uint64_t)i);
    }
    return t;
}

static Group group_make(int64_t length, int64_t head_dim, int heads, int64_t slack) {
    Group g = {.shape = {length, head_dim, heads, (real)(1 / sqrt((double)head_dim))}};
    g.q = matrix(length, heads * head_dim, slack, 1);
    g.k = matrix(length, head_dim, 2 * slack, 2);
    g.v = matrix(length, head_dim, slack, 3);
    g.o = matrix(length, heads * head_dim, slack, 4);
    g.lse = matrix(heads, length, slack, 5);
    g.d_o = matrix(length, heads * head_dim, slack, 6);
    g.dq = matrix(length, heads * head_dim, slack, 7);
    g.dk = matrix(length, head_dim, slack, 8);
    g.dv = matrix(length, head_dim, slack, 9);
    g.scratch = malloc(attention_scratch(&g.shape));
    memset(g.scratch, 0xff,
           attention_scratch(&g.shape)); /* NaN: nothing may be read before it is written */
    return g;
}

static void group_free(Group *g) {
    Tensor *all[] = {&g->q, &g->k, &g->v, &g->o, &g->lse, &g->d_o, &g->dq, &g->dk, &g->dv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]->data);
    free(g->scratch);
}

static void group_run(Group *g) {
    attention_forward(&g->shape, g->q, g->k, g->v, g->o, g->lse, g->scratch);
    attention_backward(&g->shape, g->q, g->k, g->v, g->o, g->lse, g->d_o, g->dq, g->dk, g->dv,
                       g->scratch);
}

static double at(Tensor t, int64_t row, int64_t col) { return (double)tensor_row(t, row)[col]; }

/* Probabilities of row t of a head, in double; returns the log-sum-exp. */
static double naive_row(const Group *g, int head, int64_t t, double *p) {
    double sum = 0, largest = -INFINITY;
    for (int64_t j = 0; j <= t; j++) {
        p[j] = 0;
        for (int64_t c = 0; c < g->k.cols; c++) {
            p[j] += at(g->q, t, head * g->k.cols + c) * at(g->k, j, c) * (double)g->shape.scale;
        }
        largest = fmax(largest, p[j]);
    }
    for (int64_t j = 0; j <= t; j++) sum += exp(p[j] - largest);
    for (int64_t j = 0; j <= t; j++) p[j] = exp(p[j] - largest) / sum;
    return largest + log(sum);
}

static void naive_forward(const Group *g, double *o, double *lse) {
    int64_t length = g->shape.length, hd = g->shape.head_dim;
    double *p = malloc((size_t)length * sizeof *p);
    for (int head = 0; head < g->shape.heads; head++) {
        for (int64_t t = 0; t < length; t++) {
            lse[head * length + t] = naive_row(g, head, t, p);
            for (int64_t c = 0; c < hd; c++) {
                double sum = 0;
                for (int64_t j = 0; j <= t; j++) sum += p[j] * at(g->v, j, c);
                o[t * g->q.cols + head * hd + c] = sum;
            }
        }
    }
    free(p);
}

/* One row's part in the gradients; p its probabilities. */
static void naive_backward_row(const Group *g, int head, int64_t t, const double *p, double *dq,
                               double *dk, double *dv) {
    int64_t hd = g->shape.head_dim;
    double delta = 0, scale = (double)g->shape.scale;
    for (int64_t j = 0; j <= t; j++) {
        for (int64_t c = 0; c < hd; c++)
            delta += p[j] * at(g->d_o, t, head * hd + c) * at(g->v, j, c);
    }
    for (int64_t j = 0; j <= t; j++) {
        double dp = 0;
        for (int64_t c = 0; c < hd; c++) dp += at(g->d_o, t, head * hd + c) * at(g->v, j, c);
        double ds = p[j] * (dp - delta) * scale;
        for (int64_t c = 0; c < hd; c++) {
            dq[t * g->q.cols + head * hd + c] += ds * at(g->k, j, c);
            dk[j * hd + c] += ds * at(g->q, t, head * hd + c);
            dv[j * hd + c] += p[j] * at(g->d_o, t, head * hd + c);
        }
    }
}

static void naive_backward(const Group *g, double *dq, double *dk, double *dv) {
    double *p = malloc((size_t)g->shape.length * sizeof *p);
    for (int head = 0; head < g->shape.heads; head++) {
        for (int64_t t = 0; t < g->shape.length; t++) {
            naive_row(g, head, t, p);
            naive_backward_row(g, head, t, p, dq, dk, dv);
        }
    }
    free(p);
}

/* Compares relative to the largest value wanted. */
static void check_tensor(const char *name, const Group *g, Tensor got, const double *want) {
    double largest = 0, difference = 0, tolerance = sizeof(real) == 4 ? 3e-6 : 1e-13;
    for (int64_t i = 0; i < got.rows * got.cols; i++) largest = fmax(largest, fabs(want[i]));
    for (int64_t t = 0; t < got.rows; t++) {
        double d = array_difference(tensor_row(got, t), want + t * got.cols, got.cols);
        if (!(d <= difference)) difference = d;
    }
    ck_assert_msg(difference <= tolerance * largest, "%s L %d hd %d heads %d: %g of %g", name,
                  (int)g->shape.length, (int)g->shape.head_dim, g->shape.heads, difference,
                  largest);
}

static const struct {
    int length, head_dim, heads;
} shapes[] = {{1, 4, 1},    {5, 8, 3},   {63, 16, 2}, {64, 16, 1}, {65, 2, 2},
              {200, 32, 3}, {511, 8, 1}, {512, 8, 1}, {530, 24, 2}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

START_TEST(forward_and_backward_agree_with_plain_loops) {
    ck_assert_int_eq(gemm_setup(), 0);
    for (int i = 0; i < SHAPES; i++) {
        Group g = group_make(shapes[i].length, shapes[i].head_dim, shapes[i].heads, 3);
        int64_t wide = g.q.rows * g.q.cols, narrow = g.k.rows * g.k.cols;
        double *want =
            calloc((size_t)(2 * wide + 2 * narrow + g.lse.rows * g.lse.cols), sizeof *want);
        double *o = want, *dq = o + wide, *dk = dq + wide, *dv = dk + narrow, *lse = dv + narrow;
        naive_forward(&g, o, lse);
        naive_backward(&g, dq, dk, dv);
        group_run(&g);
        check_tensor("o", &g, g.o, o);
        check_tensor("lse", &g, g.lse, lse);
        check_tensor("dq", &g, g.dq, dq);
        check_tensor("dk", &g, g.dk, dk);
        check_tensor("dv", &g, g.dv, dv);
        free(want);
        group_free(&g);
    }
}
END_TEST

static bool same_tensor(Tensor x, Tensor y) {
    for (int64_t t = 0; t < x.rows; t++) {
        if (!array_same(tensor_row(x, t), tensor_row(y, t), x.cols)) return false;
    }
    return true;
}

static bool same_results(const Group *x, const Group *y) {
    return same_tensor(x->o, y->o) && same_tensor(x->lse, y->lse) && same_tensor(x->dq, y->dq) &&
           same_tensor(x->dk, y->dk) && same_tensor(x->dv, y->dv);
}

START_TEST(bits_do_not_depend_on_strides) {
    ck_assert_int_eq(gemm_setup(), 0);
    for (int i = 0; i < SHAPES; i++) {
        Group first = group_make(shapes[i].length, shapes[i].head_dim, shapes[i].heads, 0);
        group_run(&first);
        for (int64_t slack = 1; slack < 40; slack += 12) {
            Group g = group_make(shapes[i].length, shapes[i].head_dim, shapes[i].heads, slack);
            group_run(&g);
            ck_assert(same_results(&first, &g));
            group_free(&g);
        }
        group_free(&first);
    }
}
END_TEST

/* A later key or value changes nothing in earlier rows, bit for bit. */
START_TEST(no_row_sees_the_future) {
    enum { LENGTH = 150 };
    ck_assert_int_eq(gemm_setup(), 0);
    Group first = group_make(LENGTH, 16, 2, 0);
    group_run(&first);
    for (int64_t changed = 1; changed < LENGTH; changed += 37) {
        Group g = group_make(LENGTH, 16, 2, 0);
        array_fill(tensor_row(g.k, changed), 16, 1, 77);
        array_fill(tensor_row(g.v, changed), 16, 1, 78);
        group_run(&g);
        for (int64_t t = 0; t < LENGTH; t++) {
            bool same = array_same(tensor_row(g.o, t), tensor_row(first.o, t), g.o.cols);
            ck_assert_msg(same == (t < changed), "key %d, row %d", (int)changed, (int)t);
        }
        group_free(&g);
    }
    group_free(&first);
}
END_TEST

START_TEST(large_scores_do_not_overflow) {
    ck_assert_int_eq(gemm_setup(), 0);
    Group g = group_make(70, 8, 1, 0);
    for (int64_t i = 0; i < 70 * 8; i++) g.q.data[i] *= (real)1e4;
    group_run(&g);
    for (int64_t i = 0; i < 70 * 8; i++) {
        ck_assert(isfinite(g.o.data[i]) && isfinite(g.dq.data[i]) && isfinite(g.dk.data[i]));
        ck_assert(fabs((double)g.o.data[i]) <= 1.5 * (1 + 4 * ROUNDOFF));
    }
    group_free(&g);
}
END_TEST

START_TEST(nan_is_not_lost) {
    ck_assert_int_eq(gemm_setup(), 0);
    for (int64_t bad = 0; bad < 100; bad += 33) {
        Group g = group_make(100, 8, 1, 0);
        tensor_row(g.q, bad)[3] = (real)NAN;
        group_run(&g);
        for (int64_t t = 0; t < 100; t++) ck_assert(isnan(at(g.o, t, 0)) == (t == bad));
        ck_assert(isnan(at(g.dq, bad, 0)) && isnan(at(g.dk, 0, 0)) && isnan(at(g.dv, 0, 0)));
        group_free(&g);
    }
}
END_TEST

/* d(sum of d_o * o) by one element of an input, in double. */
static double objective(Group *g) {
    double sum = 0;
    attention_forward(&g->shape, g->q, g->k, g->v, g->o, g->lse, g->scratch);
    for (int64_t i = 0; i < g->o.rows * g->o.cols; i++) {
        sum += (double)g->o.data[i] * (double)g->d_o.data[i];
    }
    return sum;
}

START_TEST(gradients_are_central_differences) {
    if (sizeof(real) == 4) return; /* float has no digits to spare */
    ck_assert_int_eq(gemm_setup(), 0);
    Group g = group_make(67, 6, 2, 0);
    group_run(&g);
    Tensor input[] = {g.q, g.k, g.v}, gradient[] = {g.dq, g.dk, g.dv};
    for (int i = 0; i < 3; i++) {
        for (int64_t e = 0; e < input[i].rows * input[i].cols; e += 7) {
            const real step = (real)1e-5, kept = input[i].data[e];
            input[i].data[e] = kept + step;
            double above = objective(&g);
            input[i].data[e] = kept - step;
            double below = objective(&g);
            input[i].data[e] = kept;
            double want = (above - below) / (2 * (double)step);
            ck_assert_double_eq_tol((double)gradient[i].data[e], want, 1e-8);
        }
    }
    group_free(&g);
}
END_TEST

/* ---- rotary positions ---- */

START_TEST(rotation_agrees_with_the_formula) {
    enum { LENGTH = 40, DIM = 22, HEADS = 3 };
    Tensor table = matrix(LENGTH, DIM, 0, 1), x = matrix(LENGTH, HEADS * DIM, 5, 2);
    Tensor before = matrix(LENGTH, HEADS * DIM, 5, 2);
    rotary_table(10000, table);
    rotary_apply(table, HEADS, 1, x);
    for (int64_t t = 0; t < LENGTH; t++) {
        for (int i = 0; i < HEADS * DIM / 2; i++) {
            int64_t head = i / (DIM / 2), low = head * DIM + i % (DIM / 2), high = low + DIM / 2;
            double angle = (double)t * pow(10000, -2.0 * (i % (DIM / 2)) / DIM);
            double a = at(before, t, low), b = at(before, t, high), tolerance = 8 * ROUNDOFF;
            ck_assert_double_le(fabs(at(x, t, low) - (a * cos(angle) - b * sin(angle))), tolerance);
            ck_assert_double_le(fabs(at(x, t, high) - (b * cos(angle) + a * sin(angle))),
                                tolerance);
        }
    }
    rotary_apply(table, HEADS, -1, x);
    for (int64_t t = 0; t < LENGTH; t++) {
        for (int64_t c = 0; c < HEADS * DIM; c++) {
            ck_assert_double_le(fabs(at(x, t, c) - at(before, t, c)), 8 * ROUNDOFF);
        }
    }
    free(table.data);
    free(x.data);
    free(before.data);
}
END_TEST

/* Scores of rotated rows depend on the distance only. */
START_TEST(rotated_scores_depend_on_the_distance) {
    enum { LENGTH = 60, DIM = 16 };
    Tensor table = matrix(LENGTH, DIM, 0, 1), q = matrix(LENGTH, DIM, 0, 2),
           k = matrix(LENGTH, DIM, 0, 3);
    for (int64_t t = 1; t < LENGTH; t++) {
        memcpy(tensor_row(q, t), q.data, DIM * sizeof(real));
        memcpy(tensor_row(k, t), k.data, DIM * sizeof(real));
    }
    rotary_table(500, table);
    rotary_apply(table, 1, 1, q);
    rotary_apply(table, 1, 1, k);
    for (int64_t distance = 0; distance < 8; distance++) {
        double first = 0;
        for (int64_t t = distance; t < LENGTH; t++) {
            double score = 0;
            for (int64_t c = 0; c < DIM; c++) score += at(q, t, c) * at(k, t - distance, c);
            if (t == distance) first = score;
            ck_assert_double_eq_tol(score, first, sizeof(real) == 4 ? 2e-5 : 1e-13);
        }
    }
    free(table.data);
    free(q.data);
    free(k.data);
}
END_TEST

int main(void) {
    return run_suite("attention",
                     TESTS(forward_and_backward_agree_with_plain_loops,
                           bits_do_not_depend_on_strides, no_row_sees_the_future,
                           large_scores_do_not_overflow, nan_is_not_lost,
                           gradients_are_central_differences, rotation_agrees_with_the_formula,
                           rotated_scores_depend_on_the_distance));
}
