#include "math/dropout.h"

#include "support/arrays.h"
#include "support/support.h"

#include <stdlib.h>

enum { ROWS = 7, COLS = 700 };

static Dropout dropout_make(double probability) {
    return (Dropout){{.seed = 0x123456789abcdefu,
                      .purpose = PHILOX_HIDDEN_DROPOUT,
                      .layer = 3,
                      .step = 17,
                      .microbatch = 2},
                     probability,
                     0};
}

static Tensor fill(real x[ROWS][COLS]) {
    array_fill(x[0], ROWS * COLS, 1, 5);
    return tensor_view(x[0], ROWS, COLS);
}

START_TEST(every_element_gets_its_factor) {
    static real x[ROWS][COLS], y[ROWS][COLS];
    Dropout dropout = dropout_make(0.3);
    const int64_t first = 1002; /* not a multiple of 4 */
    Tensor in = fill(x);
    dropout_apply(&dropout, (Range){0, ROWS}, first, in, tensor_view(y[0], ROWS, COLS));
    for (int t = 0; t < ROWS; t++) {
        for (int c = 0; c < COLS; c++) {
            uint32_t word[4];
            int64_t channel = first + c;
            philox_block(&dropout.stream, (uint32_t)t, (uint32_t)(channel / 4), word);
            bool dropped = (double)word[channel % 4] < 0.3 * 0x1p32;
            real want = dropped ? 0 : x[t][c] * (real)(1 / 0.7);
            ck_assert(array_same(&want, &y[t][c], 1));
            double factor = dropout_factor(&dropout, t, channel);
            ck_assert(dropped ? factor == 0 : fabs(factor - 1 / 0.7) < 1e-6);
        }
    }
}
END_TEST

/* Any cut into rows and columns, in place or not, gives the bits of the whole. */
START_TEST(masks_do_not_depend_on_the_cut) {
    static real x[ROWS][COLS], whole[ROWS][COLS], cut[ROWS][COLS];
    Dropout dropout = dropout_make(0.5);
    dropout_apply(&dropout, (Range){0, ROWS}, 0, fill(x), tensor_view(whole[0], ROWS, COLS));
    for (int pieces = 1; pieces < 40; pieces++) {
        fill(cut);
        for (int s = 0; s < pieces; s++) {
            Range columns = shard_range(COLS, pieces, s);
            Tensor part = {cut[0] + columns.begin, ROWS, range_size(columns), COLS};
            dropout_apply(&dropout, (Range){3, ROWS}, columns.begin, part, part);
            dropout_apply(&dropout, (Range){0, 3}, columns.begin, part, part);
        }
        ck_assert_msg(array_same(whole[0], cut[0], ROWS * COLS), "%d pieces", pieces);
    }
}
END_TEST

static int kept(const Dropout *dropout, int rows, int cols) {
    int count = 0;
    for (int t = 0; t < rows; t++) {
        for (int c = 0; c < cols; c++) count += dropout_factor(dropout, t, c) != 0;
    }
    return count;
}

START_TEST(the_share_of_kept_elements_is_right) {
    static const double probability[] = {0.01, 0.1, 0.5, 0.9};
    const int rows = 100, cols = 1000;
    for (int i = 0; i < 4; i++) {
        Dropout dropout = dropout_make(probability[i]);
        double want = rows * cols * (1 - probability[i]);
        double deviation = sqrt(want * probability[i]);
        ck_assert_double_le(fabs(kept(&dropout, rows, cols) - want), 5 * deviation);
    }
}
END_TEST

/* Each part of the stream's name makes another mask: about half of the elements agree at p = 1/2.
 */
START_TEST(masks_of_different_streams_differ) {
    Dropout other[6], first = dropout_make(0.5);
    for (int i = 0; i < 6; i++) other[i] = first;
    other[0].stream.seed ^= (uint64_t)1 << 40;
    other[1].stream.purpose = PHILOX_OUTPUT_DROPOUT;
    other[2].stream.layer++;
    other[3].stream.step++;
    other[4].stream.microbatch++;
    other[5].row_offset = 1000;
    for (int i = 0; i < 6; i++) {
        int agree = 0;
        for (int t = 0; t < 10; t++) {
            for (int c = 0; c < 400; c++) {
                agree += dropout_factor(&first, t, c) == dropout_factor(&other[i], t, c);
            }
        }
        ck_assert_msg(abs(agree - 2000) < 5 * 32, "stream %d: %d of 4000", i, agree);
    }
}
END_TEST

START_TEST(probability_zero_copies) {
    static real x[ROWS][COLS], y[ROWS][COLS];
    Dropout dropout = dropout_make(0);
    Tensor in = fill(x);
    dropout_apply(&dropout, (Range){0, ROWS}, 0, in, tensor_view(y[0], ROWS, COLS));
    ck_assert(array_same(x[0], y[0], ROWS * COLS));
    ck_assert(dropout_factor(&dropout, 1, 1) == 1);
}
END_TEST

START_TEST(what_is_dropped_is_zero_even_if_it_is_nan) {
    static real x[ROWS][COLS];
    Dropout dropout = dropout_make(0.5);
    Tensor in = fill(x);
    for (int c = 0; c < COLS; c++) x[1][c] = (real)(c % 2 ? NAN : INFINITY);
    dropout_apply(&dropout, (Range){0, ROWS}, 0, in, in);
    for (int c = 0; c < COLS; c++) {
        if (dropout_factor(&dropout, 1, c) == 0)
            ck_assert(x[1][c] == 0);
        else
            ck_assert(!isfinite(x[1][c]));
    }
}
END_TEST

typedef struct {
    real x[ROWS][COLS], y[ROWS][COLS], out[ROWS][COLS], bias[COLS];
} Addition;

/* Operation by operation, from the factors of single elements. */
static void add_plainly(const Dropout *dropout, int cols, bool biased, Addition *a) {
    for (int t = 0; t < ROWS; t++) {
        for (int c = 0; c < cols; c++) {
            volatile real y = a->y[t][c];
            if (biased) y += a->bias[c];
            if (dropout->probability > 0) {
                double factor = dropout_factor(dropout, t, c);
                y = factor == 0 ? 0 : y * (real)factor;
            }
            a->y[t][c] = y;
            a->out[t][c] = a->x[t][c] + y;
        }
    }
}

static void addition_fill(Addition *a) {
    fill(a->x);
    array_fill(a->y[0], ROWS * COLS, 1, 6);
    array_fill(a->out[0], ROWS * COLS, 1, 7);
    array_fill(a->bias, COLS, 1, 8);
    a->y[2][0] = (real)NAN;
    a->x[3][1] = (real)INFINITY;
    a->y[4][0] = a->x[4][0] = (real)-0.0;
}

static Tensor columns(real x[ROWS][COLS], Range cols) {
    return (Tensor){x[0] + cols.begin, ROWS, range_size(cols), COLS};
}

/* Three rows at a time, columns in two pieces. */
static void add_by_pieces(const Dropout *dropout, int cols, bool biased, Addition *a) {
    Range piece[] = {{0, cols / 3}, {cols / 3, cols}};
    for (int i = 0; i < 2; i++)
        for (int t = 0; t < ROWS; t += 3)
            dropout_add(dropout, (Range){t, t + 3 < ROWS ? t + 3 : ROWS}, piece[i].begin,
                        biased ? a->bias + piece[i].begin : NULL, columns(a->x, piece[i]),
                        columns(a->y, piece[i]), columns(a->out, piece[i]));
}

START_TEST(addition_is_bias_mask_and_sum) {
    static Addition got, want;
    for (int i = 0; i < 4 * 80; i++) {
        Dropout dropout = dropout_make(i % 2 ? 0.3 : 0);
        int cols = i / 4 < 71 ? i / 4 : COLS - i / 4;
        bool biased = i / 2 % 2;
        addition_fill(&got);
        want = got;
        add_plainly(&dropout, cols, biased, &want);
        add_by_pieces(&dropout, cols, biased, &got);
        ck_assert_msg(array_same(got.y[0], want.y[0], ROWS * COLS) &&
                          array_same(got.out[0], want.out[0], ROWS * COLS),
                      "%d columns, probability %g, bias %d", cols, dropout.probability, biased);
    }
}
END_TEST

int main(void) {
    return run_suite("dropout",
                     TESTS(every_element_gets_its_factor, masks_do_not_depend_on_the_cut,
                           the_share_of_kept_elements_is_right, masks_of_different_streams_differ,
                           probability_zero_copies, what_is_dropped_is_zero_even_if_it_is_nan,
                           addition_is_bias_mask_and_sum));
}
