/* The oracle's feed-forward network against values by hand. */
#include "support/naive.h"
#include "support/support.h"

#include <math.h>

START_TEST(ffn_by_hand) {
    static const struct {
        const char *activation;
        double y;
    } expected[] = {{"silu", 4.38635147}, {"gelu_tanh", 5.04715}, {"gelu", 5.04807}, {"relu", 6}};
    double x = 1, gate = 1, up = 2, down = 3, y;
    for (int i = 0; i < 4; i++) {
        NaiveFfn ffn = {.rows = 1,
                        .d_model = 1,
                        .d_ff = 1,
                        .gated = true,
                        .activation = expected[i].activation,
                        .gate = &gate,
                        .up = &up,
                        .down = &down};
        naive_ffn(&ffn, &x, &y);
        ck_assert_double_eq_tol(y, expected[i].y, 5e-6);
    }
}
END_TEST

/* GptOssExperts (transformers) with alpha 1.702, limit 7: (up + 1) * glu. */
START_TEST(clamps_and_offset_by_hand) {
    static const struct {
        double gate, up, y, dgate, dup;
    } row[] = {
        {1, 2, 2.5373873, 3.20333882, 0.845795766},  /* 3 z sigmoid(1.702 z) */
        {9, 2, 20.9998594, 0, 6.99995313},           /* the gate is cut to 7 */
        {7, 2, 20.9998594, 3.00021924, 6.99995313},  /* the very limit passes the gradient */
        {1, -9, -5.0747746, -6.40667764, 0},         /* up is cut to -7 */
        {1, 7, 6.76636613, 8.54223685, 0.845795766}, /* the very limit */
        {-9, 9, -1.60254239e-5, -2.54946627e-5, 0},  /* a gate is not cut below */
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        double x = 1, one = 1, y, dx = 0, dgate = 0, dup = 0;
        NaiveFfn ffn = {.rows = 1,
                        .d_model = 1,
                        .d_ff = 1,
                        .gated = true,
                        .activation = "silu",
                        .branches = {false, 1.702, 7, 7, 1},
                        .gate = &row[i].gate,
                        .up = &row[i].up,
                        .down = &one};
        naive_ffn(&ffn, &x, &y);
        naive_ffn_backward(&ffn, &x, &one, &dx, &(NaiveFfnGradients){.gate = &dgate, .up = &dup});
        ck_assert_double_le(fabs(y - row[i].y), 1e-8 * fabs(row[i].y));
        ck_assert_double_le(fabs(dgate - row[i].dgate), 1e-8 * fabs(row[i].dgate));
        ck_assert_double_le(fabs(dup - row[i].dup), 1e-8 * fabs(row[i].dup));
    }
}
END_TEST

START_TEST(dual_by_hand) {
    double x = 1, gate = 2, up = 3, down = 5, y;
    NaiveFfn ffn = {.rows = 1,
                    .d_model = 1,
                    .d_ff = 1,
                    .gated = true,
                    .activation = "relu",
                    .branches = {.dual = true},
                    .gate = &gate,
                    .up = &up,
                    .down = &down};
    naive_ffn(&ffn, &x, &y);
    ck_assert_double_eq(y, 30);
    up = -3;
    naive_ffn(&ffn, &x, &y);
    ck_assert_double_eq(y, 0);
}
END_TEST

START_TEST(gated_product_by_hand) {
    static const double gate[] = {-1, 0, 1}, up[] = {2, 3, 4};
    static const double product[] = {-0.537883, 0, 2.924234};
    static const double dgate[] = {0.144659, 1.5, 3.710682}, dup[] = {-0.268941, 0, 0.731059};
    for (int i = 0; i < 3; i++) {
        double value = naive_activation("silu", 1, gate[i]);
        ck_assert_double_eq_tol(value * up[i], product[i], 5e-7);
        ck_assert_double_eq_tol(naive_activation_slope("silu", 1, gate[i]) * up[i], dgate[i], 5e-7);
        ck_assert_double_eq_tol(value, dup[i], 5e-7);
    }
}
END_TEST

/* Drops the whole of the site that context points at, doubles the other. */
static double drop_site(void *context, int site, int layer, int64_t row, int64_t channel) {
    ck_assert_int_eq(layer, 3);
    ck_assert(row == 0 && channel == 0);
    return site == *(int *)context ? 0 : 2;
}

/* The hidden mask stands before down, so that down's bias survives it; the output's after. */
START_TEST(masks_stand_in_their_places) {
    enum { NOWHERE = -1 };
    static const struct {
        int site;
        double y;
    } expected[] = {{NAIVE_HIDDEN, 2 * 0.25}, {NAIVE_OUTPUT, 0}, {NOWHERE, 2 * (3 * 2 * 2 + 0.25)}};
    double x = 1, up = 1, down = 3, up_bias = 1, down_bias = 0.25, y;
    for (int i = 0; i < 3; i++) {
        int site = expected[i].site;
        NaiveFfn ffn = {.rows = 1,
                        .d_model = 1,
                        .d_ff = 1,
                        .activation = "relu",
                        .up = &up,
                        .down = &down,
                        .up_bias = &up_bias,
                        .down_bias = &down_bias,
                        .mask = drop_site,
                        .mask_context = &site,
                        .layer = 3};
        naive_ffn(&ffn, &x, &y);
        ck_assert_double_eq(y, expected[i].y);
    }
}
END_TEST

int main(void) {
    return run_suite("naive ffn", TESTS(ffn_by_hand, clamps_and_offset_by_hand, dual_by_hand,
                                        gated_product_by_hand, masks_stand_in_their_places));
}
