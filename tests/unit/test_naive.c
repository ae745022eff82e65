/* The oracle itself: against Hugging Face's numbers, central differences and values by hand. */
#include "support/golden.h"
#include "support/naive.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the largest value. Logits and the like are stored to 53 bits, weight gradients to 34. */
#define EXACT    1e-12
#define GRADIENT 1e-10

static GoldenArray read_golden(const char *file, const char *group, const char *name) {
    GoldenArray array;
    char path[128];
    snprintf(path, sizeof path, "%s%s%s", group, *group ? "/" : "", name);
    ck_assert_msg(golden_read(file, path, &array) == 0, "%s: %s", file, path);
    return array;
}

static double attribute(const char *file, const char *name) {
    double value = 0;
    ck_assert_msg(golden_attribute(file, name, &value) == 0, "%s: %s", file, name);
    return value;
}

/* Largest difference, relative to the largest expected value. */
static double difference(int64_t n, const double *got, const double *expected) {
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        ck_assert_msg(isfinite(got[i]), "element %lld is %g", (long long)i, got[i]);
        worst = fmax(worst, fabs(got[i] - expected[i]));
        largest = fmax(largest, fabs(expected[i]));
    }
    ck_assert_msg(largest > 0, "all expected values are 0");
    return worst / largest;
}

static void assert_close(const char *what, int64_t n, const double *got, const double *expected,
                         double tolerance) {
    double worst = difference(n, got, expected);
    ck_assert_msg(worst <= tolerance, "%s differs by %g", what, worst);
}

static void assert_golden(const char *file, const char *group, const char *name, int64_t n,
                          const double *got, double tolerance) {
    GoldenArray expected = read_golden(file, group, name);
    ck_assert_msg(expected.count == n, "%s has %lld elements, expected %lld", name,
                  (long long)expected.count, (long long)n);
    assert_close(name, n, got, expected.data, tolerance);
    golden_release(&expected);
}

/* ---- Hugging Face: decoders ---- */

static NaiveModel *open_golden_decoder(const char *file, const GoldenArray *ids) {
    NaiveConfig config = {.vocab = (int64_t)attribute(file, "vocab_size"),
                          .d_model = (int64_t)attribute(file, "hidden_size"),
                          .layers = (int64_t)attribute(file, "num_hidden_layers"),
                          .heads = (int64_t)attribute(file, "num_attention_heads"),
                          .kv_heads = (int64_t)attribute(file, "num_key_value_heads"),
                          .d_ff = (int64_t)attribute(file, "intermediate_size"),
                          .sequences = ids->dim[0],
                          .context = ids->dim[1],
                          .gated = true,
                          .tied = attribute(file, "tie_word_embeddings") != 0,
                          .activation = "silu",
                          .rms_eps = attribute(file, "rms_norm_eps"),
                          .rope_theta = attribute(file, "rope_theta")};
    NaiveModel *model = naive_open(&config);
    const char *name;
    int64_t rows, columns, count = 0;
    for (; naive_tensor(model, (int)count, &name, &rows, &columns); count++) {
        GoldenArray weight = read_golden(file, "weights", name);
        ck_assert_msg(weight.count == rows * columns, "%s", name);
        memcpy(naive_weight(model, name), weight.data, (size_t)weight.count * sizeof(double));
        golden_release(&weight);
    }
    ck_assert_int_eq(count, golden_count(file, "weights"));
    ck_assert_int_eq(count, golden_count(file, "gradients"));
    return model;
}

static void check_golden_decoder(const char *file) {
    enum { MOST_ROWS = 64 };
    GoldenArray ids = read_golden(file, "", "input_ids"), labels = read_golden(file, "", "labels");
    NaiveModel *model = open_golden_decoder(file, &ids);
    int32_t tokens[MOST_ROWS], targets[MOST_ROWS];
    int unmasked = 0;
    ck_assert_int_le(ids.count, MOST_ROWS);
    for (int64_t t = 0; t < ids.count; t++) {
        tokens[t] = (int32_t)ids.data[t];
        targets[t] = (int32_t)labels.data[t];
        unmasked += targets[t] >= 0;
    }
    ck_assert_int_lt(unmasked, ids.count);
    double loss = naive_forward(model, tokens, targets, unmasked);
    assert_golden(file, "", "loss", 1, &loss, EXACT);
    assert_golden(file, "", "logits", ids.count * (int64_t)attribute(file, "vocab_size"),
                  naive_logits(model), EXACT);
    naive_backward(model);
    const char *name;
    int64_t rows, columns;
    for (int i = 0; naive_tensor(model, i, &name, &rows, &columns); i++)
        assert_golden(file, "gradients", name, rows * columns, naive_gradient(model, name),
                      GRADIENT);
    naive_close(model);
    golden_release(&ids);
    golden_release(&labels);
}

START_TEST(agrees_with_hugging_face_untied) { check_golden_decoder("llama_untied.h5"); }
END_TEST

START_TEST(agrees_with_hugging_face_tied) { check_golden_decoder("llama_tied.h5"); }
END_TEST

/* ---- Hugging Face: the FFN alone ---- */

enum { GATE, UP, DOWN, GATE_BIAS, UP_BIAS, DOWN_BIAS, MLP_TENSORS };

/* x and dy [T, D]; the tensors of the module, and a place for the gradient of each. */
typedef struct {
    const char *file, *name[MLP_TENSORS];
    GoldenArray x, dy, weight[MLP_TENSORS];
    double *gradient[MLP_TENSORS];
    int count;
} GoldenMlp;

static GoldenMlp read_mlp(const char *file, bool bias) {
    GoldenMlp mlp = {.file = file,
                     .name = {"gate_proj.weight", "up_proj.weight", "down_proj.weight",
                              "gate_proj.bias", "up_proj.bias", "down_proj.bias"},
                     .count = bias ? MLP_TENSORS : GATE_BIAS};
    mlp.x = read_golden(file, "", "x");
    mlp.dy = read_golden(file, "", "grad_y");
    for (int i = 0; i < mlp.count; i++) {
        mlp.weight[i] = read_golden(file, "weights", mlp.name[i]);
        mlp.gradient[i] = naive_array(mlp.weight[i].count);
    }
    ck_assert_int_eq(golden_count(file, "weights"), mlp.count);
    return mlp;
}

static void release_mlp(GoldenMlp *mlp) {
    golden_release(&mlp->x);
    golden_release(&mlp->dy);
    for (int i = 0; i < mlp->count; i++) {
        golden_release(&mlp->weight[i]);
        free(mlp->gradient[i]);
    }
}

static NaiveFfn ffn_of(const GoldenMlp *mlp, const char *activation) {
    return (NaiveFfn){.rows = mlp->x.dim[0],
                      .d_model = mlp->weight[UP].dim[1],
                      .d_ff = mlp->weight[UP].dim[0],
                      .gated = true,
                      .activation = activation,
                      .gate = mlp->weight[GATE].data,
                      .up = mlp->weight[UP].data,
                      .down = mlp->weight[DOWN].data,
                      .gate_bias = mlp->weight[GATE_BIAS].data,
                      .up_bias = mlp->weight[UP_BIAS].data,
                      .down_bias = mlp->weight[DOWN_BIAS].data};
}

static void check_golden_mlp(const char *file, const char *activation, bool bias) {
    GoldenMlp mlp = read_mlp(file, bias);
    NaiveFfn ffn = ffn_of(&mlp, activation);
    double **slots = mlp.gradient;
    NaiveFfnGradients gradients = {.gate = slots[GATE],
                                   .up = slots[UP],
                                   .down = slots[DOWN],
                                   .gate_bias = slots[GATE_BIAS],
                                   .up_bias = slots[UP_BIAS],
                                   .down_bias = slots[DOWN_BIAS]};
    double *y = naive_array(mlp.x.count), *dx = naive_array(mlp.x.count);
    naive_ffn(&ffn, mlp.x.data, y);
    naive_ffn_backward(&ffn, mlp.x.data, mlp.dy.data, dx, &gradients);
    assert_golden(file, "", "y", mlp.x.count, y, EXACT);
    assert_golden(file, "", "grad_x", mlp.x.count, dx, EXACT);
    for (int i = 0; i < mlp.count; i++)
        assert_golden(file, "gradients", mlp.name[i], mlp.weight[i].count, slots[i], GRADIENT);
    free(y);
    free(dx);
    release_mlp(&mlp);
}

START_TEST(agrees_with_llama_mlp_with_bias) { check_golden_mlp("llama_mlp_bias.h5", "silu", true); }
END_TEST

START_TEST(agrees_with_gemma_mlp) { check_golden_mlp("gemma_mlp.h5", "gelu_tanh", false); }
END_TEST

START_TEST(gemma_golden_refuses_the_erf_form) {
    GoldenMlp mlp = read_mlp("gemma_mlp.h5", false);
    GoldenArray y = read_golden("gemma_mlp.h5", "", "y");
    NaiveFfn ffn = ffn_of(&mlp, "gelu");
    double *erf_y = naive_array(y.count);
    naive_ffn(&ffn, mlp.x.data, erf_y);
    ck_assert_double_gt(difference(y.count, erf_y, y.data), 1e-4);
    free(erf_y);
    golden_release(&y);
    release_mlp(&mlp);
}
END_TEST

/* ---- Central differences ---- */

/* Uniform in [-1, 1), a function of seed and place (splitmix64's finaliser, Steele et al. 2014). */
static double random_value(uint64_t seed, uint64_t place) {
    uint64_t z = (seed << 40) + (place + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (double)(int64_t)(z ^ (z >> 31)) / 9223372036854775808.0;
}

/* Drops a quarter of the hidden channels and half of the output's. */
static double random_mask(void *context, int site, int layer, int64_t row, int64_t channel) {
    (void)context;
    uint64_t place = (uint64_t)(((site * 8 + layer) * 64 + row) * 64 + channel);
    double drop = site == NAIVE_HIDDEN ? 0.25 : 0.5;
    return (random_value(77, place) + 1) / 2 < drop ? 0 : 1 / (1 - drop);
}

enum { VOCAB = 11, D_MODEL = 8, ROWS = 10 };
static const int32_t some_tokens[ROWS] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
static const int32_t some_targets[ROWS] = {1, 4, -100, 5, 9, 2, 6, 5, -1, 10};
static const double some_divisor = 7; /* not the number of unmasked rows, which it need not be */

static const struct {
    bool gated, tied, bias, dropout;
    const char *activation;
    NaiveBranches branches;
    int single; /* 1, 2, 3: a bias on gate, up, down alone */
} cases[] = {
    {true, false, false, false, "silu", {0}, 0},
    {true, true, true, true, "silu", {0}, 0},
    {true, false, true, true, "gelu_tanh", {0}, 0},
    {true, true, false, true, "gelu", {0}, 0},
    {true, false, true, false, "relu", {0}, 0},
    {false, false, false, false, "relu", {0}, 0},
    {false, true, true, true, "relu", {0}, 0},
    {false, false, true, true, "gelu", {0}, 0},
    {false, true, false, true, "gelu_tanh", {0}, 0},
    {false, false, true, false, "silu", {0}, 0},
    {true, false, false, true, "sigmoid", {0}, 1},
    {true, false, false, false, "identity", {0}, 2},
    {false, false, false, true, "quick_gelu", {0}, 3},
    {true, false, true, false, "relu", {.dual = true}, 0},
    {true, false, true, true, "silu", {.dual = true, .beta = 0.7}, 0},
    {true, false, true, true, "silu", {false, 1.702, 0.9, 0.8, 1}, 0},
};

static NaiveModel *open_case(int index) {
    NaiveConfig config = {.vocab = VOCAB,
                          .d_model = D_MODEL,
                          .layers = 2,
                          .heads = 4,
                          .kv_heads = 2,
                          .d_ff = 7,
                          .sequences = 2,
                          .context = ROWS / 2,
                          .gated = cases[index].gated,
                          .tied = cases[index].tied,
                          .bias = cases[index].bias,
                          .gate_bias = cases[index].single == 1,
                          .up_bias = cases[index].single == 2,
                          .down_bias = cases[index].single == 3,
                          .activation = cases[index].activation,
                          .branches = cases[index].branches,
                          .rms_eps = 1e-2,
                          .rope_theta = 100,
                          .mask = cases[index].dropout ? random_mask : NULL};
    NaiveModel *model = naive_open(&config);
    const char *name;
    int64_t rows, columns;
    for (int i = 0; naive_tensor(model, i, &name, &rows, &columns); i++)
        for (int64_t j = 0; j < rows * columns; j++)
            naive_weight(model, name)[j] =
                0.8 * random_value((uint64_t)i, (uint64_t)j) + (strstr(name, "norm") ? 1 : 0);
    return model;
}

static double loss_of(NaiveModel *model) {
    return naive_forward(model, some_tokens, some_targets, some_divisor);
}

/* The five-point rule: its error is O(step^4). */
static double numeric_slope(NaiveModel *model, double *weight) {
    static const int steps[4] = {-2, -1, 1, 2};
    const double step = 2e-4, value = *weight;
    double loss[4];
    for (int i = 0; i < 4; i++) {
        *weight = value + steps[i] * step;
        loss[i] = loss_of(model);
    }
    *weight = value;
    return (loss[0] - 8 * loss[1] + 8 * loss[2] - loss[3]) / (12 * step);
}

static void check_slopes(int index) {
    NaiveModel *model = open_case(index);
    const char *name;
    int64_t rows, columns;
    char what[128];
    loss_of(model);
    naive_backward(model);
    for (int i = 0; naive_tensor(model, i, &name, &rows, &columns); i++) {
        double *numeric = naive_array(rows * columns);
        for (int64_t j = 0; j < rows * columns; j++)
            numeric[j] = numeric_slope(model, naive_weight(model, name) + j);
        snprintf(what, sizeof what, "case %d: %s", index, name);
        assert_close(what, rows * columns, naive_gradient(model, name), numeric, 1e-8);
        free(numeric);
    }
    naive_close(model);
}

START_TEST(gradients_are_central_differences) {
    for (int i = 0; i < (int)(sizeof cases / sizeof cases[0]); i++) check_slopes(i);
}
END_TEST

START_TEST(backward_adds_and_zero_starts_again) {
    NaiveModel *model = open_case(0);
    double *gradient = naive_gradient(model, "model.layers.1.mlp.gate_proj.weight");
    loss_of(model);
    naive_backward(model);
    double once = gradient[5];
    naive_backward(model);
    ck_assert(once != 0);
    ck_assert_double_eq_tol(gradient[5], 2 * once, 1e-15);
    naive_zero_gradients(model);
    naive_backward(model);
    ck_assert_double_eq(gradient[5], once);
    naive_close(model);
}
END_TEST

/* An untied table's gradient is that of the embedding's output, added up by token. */
START_TEST(embedding_gradient_is_the_tables) {
    NaiveModel *model = open_case(0);
    double sums[VOCAB * D_MODEL] = {0};
    loss_of(model);
    naive_backward(model);
    for (int t = 0; t < ROWS; t++)
        for (int i = 0; i < D_MODEL; i++)
            sums[some_tokens[t] * D_MODEL + i] += naive_embedding_gradient(model)[t * D_MODEL + i];
    assert_close("embedding", VOCAB * D_MODEL, sums,
                 naive_gradient(model, "model.embed_tokens.weight"), 1e-15);
    naive_close(model);
}
END_TEST

START_TEST(lookup_knows_what_is_there) {
    NaiveModel *dense = open_case(5), *tied = open_case(1);
    ck_assert_ptr_null(naive_weight(dense, "model.layers.0.mlp.gate_proj.weight"));
    ck_assert_ptr_null(naive_weight(dense, "model.layers.0.mlp.up_proj.bias"));
    ck_assert_ptr_nonnull(naive_weight(dense, "lm_head.weight"));
    ck_assert_ptr_null(naive_gradient(tied, "lm_head.weight"));
    ck_assert_ptr_nonnull(naive_gradient(tied, "model.layers.1.mlp.down_proj.bias"));
    naive_close(dense);
    naive_close(tied);
}
END_TEST

START_TEST(matmul_by_hand_and_transposed) {
    static const double a[] = {1, 2, 3, 4, 5, 6}, a_transposed[] = {1, 4, 2, 5, 3, 6};
    static const double b[] = {7, 8, 9, 10, 11, 12}, b_transposed[] = {7, 9, 11, 8, 10, 12};
    static const double expected[] = {58, 64, 139, 154};
    for (int form = 0; form < 4; form++) {
        bool ta = form & 1, tb = form & 2;
        double c[4];
        naive_matmul(ta, tb, 2, 2, 3, ta ? a_transposed : a, tb ? b_transposed : b, c);
        ck_assert_mem_eq(c, expected, sizeof c);
    }
}
END_TEST

int main(void) {
    return run_suite("naive",
                     TESTS(agrees_with_hugging_face_untied, agrees_with_hugging_face_tied,
                           agrees_with_llama_mlp_with_bias, agrees_with_gemma_mlp,
                           gemma_golden_refuses_the_erf_form, gradients_are_central_differences,
                           backward_adds_and_zero_starts_again, embedding_gradient_is_the_tables,
                           lookup_knows_what_is_there, matmul_by_hand_and_transposed));
}
