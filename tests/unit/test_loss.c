#include "math/loss.h"

#include "support/arrays.h"
#include "support/support.h"

enum { ROWS = 6, VOCAB = 617 };

/* Logits [ROWS, VOCAB] cut into shards of the vocabulary, and the loss's way through them. */
typedef struct {
    real logits[ROWS][VOCAB], largest[ROWS];
    double sums[ROWS], loss[ROWS];
    int32_t targets[ROWS];
} Case;

static void case_make(Case *c, double size) {
    array_fill(c->logits[0], ROWS * VOCAB, size, 1);
    for (int t = 0; t < ROWS; t++) c->targets[t] = t == 3 ? -1 : (t * 211) % VOCAB;
}

static Tensor shard_of(Case *c, Range vocab) {
    return (Tensor){c->logits[0] + vocab.begin, ROWS, range_size(vocab), VOCAB};
}

/* Losses and, in place of the logits, gradients for the rows given. */
static void case_run(Case *c, Range rows, int shards, double scale) {
    for (int64_t t = rows.begin; t < rows.end; t++) {
        c->largest[t] = -(real)INFINITY;
        c->sums[t] = 0;
    }
    for (int s = 0; s < shards; s++) {
        loss_row_max(rows, shard_of(c, shard_range(VOCAB, shards, s)), c->largest);
    }
    for (int s = 0; s < shards; s++) {
        double sums[ROWS];
        loss_exp_sums(rows, shard_of(c, shard_range(VOCAB, shards, s)), c->largest, sums);
        for (int64_t t = rows.begin; t < rows.end; t++) c->sums[t] += sums[t];
    }
    for (int64_t t = rows.begin; t < rows.end; t++) {
        int32_t target = c->targets[t] < 0 ? 0 : c->targets[t];
        c->loss[t] = loss_row(c->largest[t], c->sums[t], c->logits[t][target]);
    }
    for (int s = 0; s < shards; s++) {
        Range vocab = shard_range(VOCAB, shards, s);
        loss_gradient(rows, shard_of(c, vocab), vocab.begin, c->targets, c->largest, c->sums,
                      scale);
    }
}

/* log(sum of exp) - target, in double. */
static double naive_loss(const double *logits, int target) {
    double largest = logits[0], sum = 0;
    for (int i = 0; i < VOCAB; i++) largest = fmax(largest, logits[i]);
    for (int i = 0; i < VOCAB; i++) sum += exp(logits[i] - largest);
    return log(sum) + largest - logits[target];
}

static double naive_gradient(double *logits, int target, int i) {
    const double step = 1e-5, kept = logits[i];
    logits[i] = kept + step;
    double above = naive_loss(logits, target);
    logits[i] = kept - step;
    double below = naive_loss(logits, target);
    logits[i] = kept;
    return (above - below) / (2 * step);
}

START_TEST(loss_and_gradient_agree_with_plain_loops) {
    static const int shards[] = {1, 2, 3, 8};
    static Case before, c;
    const double scale = 0.25, tolerance = sizeof(real) == 4 ? 4e-7 : 1e-10;
    for (int k = 0; k < 4; k++) {
        case_make(&before, 4);
        case_make(&c, 4);
        case_run(&c, (Range){0, ROWS}, shards[k], scale);
        for (int t = 0; t < ROWS; t++) {
            double logits[VOCAB];
            for (int i = 0; i < VOCAB; i++) logits[i] = (double)before.logits[t][i];
            for (int i = 0; c.targets[t] < 0 && i < VOCAB; i++) ck_assert(c.logits[t][i] == 0);
            if (c.targets[t] < 0) continue;
            ck_assert_double_eq_tol(c.loss[t], naive_loss(logits, c.targets[t]), tolerance);
            for (int i = 0; i < VOCAB; i++) {
                double want = scale * naive_gradient(logits, c.targets[t], i);
                ck_assert_double_eq_tol((double)c.logits[t][i], want, tolerance);
            }
        }
    }
}
END_TEST

START_TEST(bits_do_not_depend_on_the_split_of_rows) {
    static Case whole, pieces;
    case_make(&whole, 9);
    case_run(&whole, (Range){0, ROWS}, 3, 0.125);
    case_make(&pieces, 9);
    case_run(&pieces, (Range){4, ROWS}, 3, 0.125);
    case_run(&pieces, (Range){0, 4}, 3, 0.125);
    ck_assert(array_same(whole.logits[0], pieces.logits[0], ROWS * VOCAB));
    ck_assert(array_same(whole.largest, pieces.largest, ROWS));
    ck_assert(memcmp(whole.sums, pieces.sums, sizeof whole.sums) == 0);
    ck_assert(memcmp(whole.loss, pieces.loss, sizeof whole.loss) == 0);
}
END_TEST

START_TEST(bits_do_not_depend_on_alignment) {
    static real logits[VOCAB + 16], first[VOCAB];
    double sum_first = 0, sum;
    const int32_t target = 5;
    for (int at = 0; at < 16; at++) {
        Tensor row = tensor_view(logits + at, 1, VOCAB);
        real largest = -(real)INFINITY;
        array_fill(row.data, VOCAB, 5, 3);
        loss_row_max((Range){0, 1}, row, &largest);
        loss_exp_sums((Range){0, 1}, row, &largest, &sum);
        loss_gradient((Range){0, 1}, row, 0, &target, &largest, &sum, 1);
        if (at == 0) {
            memcpy(first, logits, sizeof first);
            sum_first = sum;
        }
        ck_assert(array_same(first, row.data, VOCAB) && sum == sum_first);
    }
}
END_TEST

START_TEST(the_largest_is_found_at_every_place) {
    static Case c;
    for (int i = 0; i < VOCAB; i++) {
        real largest = -(real)INFINITY;
        case_make(&c, 1);
        c.logits[0][i] = 2;
        loss_row_max((Range){0, 1}, shard_of(&c, (Range){0, VOCAB}), &largest);
        ck_assert(largest == 2);
        largest = 3;
        loss_row_max((Range){0, 1}, shard_of(&c, (Range){0, VOCAB}), &largest);
        ck_assert(largest == 3);
    }
}
END_TEST

START_TEST(large_logits_do_not_overflow) {
    static Case c;
    case_make(&c, 1e30);
    c.logits[0][c.targets[0]] = (real)1e31;
    case_run(&c, (Range){0, ROWS}, 2, 1);
    ck_assert_double_eq_tol(c.loss[0], 0, 1e-12);
    ck_assert(c.loss[1] > 1e28 && isfinite(c.loss[1]));
    for (int i = 0; i < VOCAB; i++) ck_assert(isfinite(c.logits[1][i]));
    ck_assert(c.logits[0][c.targets[0]] == 0);
}
END_TEST

START_TEST(nan_is_not_lost) {
    static Case c;
    for (int i = 0; i < VOCAB; i += 29) {
        case_make(&c, 1);
        c.logits[1][i] = (real)NAN;
        case_run(&c, (Range){0, ROWS}, 3, 1);
        ck_assert(isnan(c.sums[1]) && isnan(c.loss[1]) && isnan(c.logits[1][(i + 1) % VOCAB]));
        ck_assert(isfinite(c.loss[0]) && isfinite(c.loss[2]));
    }
}
END_TEST

/* All widths, so that every tail of the lanes occurs; rows apart, row 2 masked. */
START_TEST(squared_errors_agree_with_plain_loops) {
    enum { WIDTH = 70, LD = WIDTH + 3 };
    const double factor = 0.3, close = 4 * ROUNDOFF;
    static real outputs[ROWS * LD], values[ROWS * WIDTH], gradient[ROWS * LD];
    const int32_t targets[ROWS] = {0, 4, -1, 0, 0, 9};
    array_fill(outputs, ROWS * LD, 3, 5);
    array_fill(values, ROWS * WIDTH, 3, 6);
    for (int n = 1; n <= WIDTH; n++) {
        Tensor made = {gradient, ROWS, n, LD}, value = {values, ROWS, n, WIDTH};
        double sums[ROWS];
        memcpy(gradient, outputs, sizeof gradient);
        loss_squared_sums((Range){2, ROWS}, made, value, sums);
        loss_squared_sums((Range){0, 2}, made, value, sums);
        loss_squared_gradient((Range){0, ROWS}, made, value, targets, factor);
        for (int t = 0; t < ROWS; t++) {
            double sum = 0;
            for (int i = 0; i < n; i++) {
                double error = (double)outputs[t * LD + i] - (double)values[t * WIDTH + i];
                double want = targets[t] < 0 ? 0 : error * factor;
                sum += error * error;
                ck_assert_double_le(fabs((double)gradient[t * LD + i] - want), close * fabs(want));
            }
            ck_assert_double_eq_tol(sums[t], sum, 1e-14 * sum);
            ck_assert(gradient[t * LD + n] == outputs[t * LD + n]);
        }
    }
}
END_TEST

START_TEST(squared_errors_keep_nan_but_of_masked_rows) {
    real output[2] = {(real)NAN, 1}, value[2] = {0, (real)NAN};
    double sum;
    for (int32_t target = -1; target <= 0; target++) {
        real row[2] = {output[0], output[1]};
        Tensor made = tensor_view(row, 1, 2), wanted = tensor_view(value, 1, 2);
        loss_squared_sums((Range){0, 1}, made, wanted, &sum);
        loss_squared_gradient((Range){0, 1}, made, wanted, &target, 1);
        ck_assert(isnan(sum));
        for (int i = 0; i < 2; i++) ck_assert(target < 0 ? row[i] == 0 : isnan(row[i]));
    }
}
END_TEST

int main(void) {
    return run_suite("loss",
                     TESTS(loss_and_gradient_agree_with_plain_loops,
                           bits_do_not_depend_on_the_split_of_rows, bits_do_not_depend_on_alignment,
                           the_largest_is_found_at_every_place, large_logits_do_not_overflow,
                           nan_is_not_lost, squared_errors_agree_with_plain_loops,
                           squared_errors_keep_nan_but_of_masked_rows));
}
