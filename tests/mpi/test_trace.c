/* weft trace: what the file holds is, tensor by tensor and in order, what a naive decoder computes
 * from the same weights; at 3 ranks as at 1. On 3 ranks. */
#include "base/error.h"
#include "base/log.h"
#include "checkpoint/trace_file.h"
#include "run/setup.h"
#include "run/trace.h"
#include "support/naive.h"
#include "support/support.h"
#include "support/whole.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INPUT "tests/data/tiny.txt"

static const double close_enough = sizeof(real) == 8 ? 1e-12 : 1e-5;

typedef struct {
    Config config;
    Model model; /* for its weights */
    Grid grid;
    Hdf5File file;
    char (*order)[TRACE_NAME];
    int names, next; /* tensors of `order` that have been compared */
    int64_t rows, d, f;
    int32_t *targets; /* [rows] */
} Setting;

/* layer -1: outside of the layers. */
static void name_of(const char *prefix, int layer, const char *name, char *full, size_t capacity) {
    int used = layer < 0 ? 0 : snprintf(full, capacity, prefix, layer);
    snprintf(full + used, capacity - (size_t)used, "%s", name);
}

static double *weight(Setting *s, int layer, const char *name) {
    char full[PARAM_NAME];
    name_of("model.layers.%d.", layer, name, full, sizeof full);
    int index = params_find(&s->model.set, full);
    ck_assert_msg(index >= 0, "there is no %s", full);
    return whole_gather(&s->grid, &s->model.set, &s->model.set.param[index], PARAM_VALUE);
}

/* The next tensor of the file is this one. */
static void expect(Setting *s, int layer, const char *name, int64_t rows, int64_t cols,
                   const double *expected) {
    char full[TRACE_NAME];
    name_of("layers/%d/", layer, name, full, sizeof full);
    ck_assert_int_lt(s->next, s->names);
    ck_assert_str_eq(s->order[s->next++], full);
    double *found = NULL;
    int64_t dims[2];
    ck_assert_msg(trace_read(&s->file, full, -1, &found, dims) == 0, "%s", error_message());
    ck_assert_msg(found && dims[0] == rows && dims[1] == cols, "%s is [%d, %d]", full, (int)dims[0],
                  (int)dims[1]);
    double apart = whole_difference(rows * cols, found, expected);
    ck_assert_msg(apart < close_enough, "%s is %.1e from the naive one", full, apart);
    free(found);
}

static void norm(Setting *s, int layer, const char *name, const double *x, double *y) {
    double *gain = weight(s, layer, name);
    naive_rms_norm(s->rows, s->d, x, gain, s->config.model.norm_eps, y);
    free(gain);
}

static void linear(Setting *s, int layer, const char *name, int64_t out, int64_t in,
                   const double *x, double *y) {
    char text[64];
    snprintf(text, sizeof text, "%s.weight", name);
    double *w = weight(s, layer, text), *b = NULL;
    snprintf(text, sizeof text, "%s.bias", name);
    if (strstr(name, "mlp")) b = weight(s, layer, text);
    naive_linear(s->rows, out, in, x, w, b, y);
    free(w);
    free(b);
}

static void add(int64_t n, double *x, const double *y) {
    for (int64_t i = 0; i < n; i++) x[i] += y[i];
}

static void attention(Setting *s, int l, double *x) {
    int64_t rows = s->rows, d = s->d, heads = s->config.model.heads, hd = d / heads;
    int64_t kv = s->config.model.kv_heads * hd, context = s->config.model.context;
    NaiveHeads shape = {1, context, heads, s->config.model.kv_heads, hd};
    double *normed = naive_array(rows * d), *q = naive_array(rows * d), *k = naive_array(rows * kv),
           *v = naive_array(rows * kv), *o = naive_array(rows * d), *out = naive_array(rows * d);
    norm(s, l, "input_layernorm.weight", x, normed);
    expect(s, l, "norm.attention", rows, d, normed);
    linear(s, l, "self_attn.q_proj", d, d, normed, q);
    linear(s, l, "self_attn.k_proj", kv, d, normed, k);
    linear(s, l, "self_attn.v_proj", kv, d, normed, v);
    naive_rotate(rows, context, heads, hd, s->config.model.rope_theta, 1, q);
    naive_rotate(rows, context, s->config.model.kv_heads, hd, s->config.model.rope_theta, 1, k);
    naive_causal_attention(&shape, q, k, v, o);
    linear(s, l, "self_attn.o_proj", d, d, o, out);
    add(rows * d, x, out);
    expect(s, l, "attention.q", rows, d, q);
    expect(s, l, "attention.k", rows, kv, k);
    expect(s, l, "attention.v", rows, kv, v);
    expect(s, l, "attention.context", rows, d, o);
    expect(s, l, "attention.o", rows, d, out);
    expect(s, l, "resid.attention", rows, d, x);
    double *made[] = {normed, q, k, v, o, out};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) free(made[i]);
}

static void ffn(Setting *s, int l, double *x) {
    int64_t rows = s->rows, d = s->d, f = s->f;
    double *normed = naive_array(rows * d), *gate = naive_array(rows * f),
           *up = naive_array(rows * f), *act = naive_array(rows * f), *down = naive_array(rows * d);
    bool gated = !strcmp(s->config.ffn.kind, "gated");
    norm(s, l, "post_attention_layernorm.weight", x, normed);
    expect(s, l, "norm.ffn", rows, d, normed);
    if (gated) linear(s, l, "mlp.gate_proj", f, d, normed, gate);
    linear(s, l, "mlp.up_proj", f, d, normed, up);
    for (int64_t i = 0; i < rows * f; i++)
        act[i] = gated ? gate[i] / (1 + exp(-gate[i])) * up[i] : up[i] / (1 + exp(-up[i]));
    linear(s, l, "mlp.down_proj", d, f, act, down);
    add(rows * d, x, down);
    if (gated) expect(s, l, "ffn.gate", rows, f, gate);
    expect(s, l, "ffn.up", rows, f, up);
    expect(s, l, "ffn.act", rows, f, act);
    expect(s, l, "ffn.down", rows, d, down);
    expect(s, l, "resid.ffn", rows, d, x);
    double *made[] = {normed, gate, up, act, down};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) free(made[i]);
}

/* The file's own tokens, which must be the input's. */
static void embed(Setting *s, double *x) {
    double *tokens, *table = weight(s, -1, "model.embed_tokens.weight");
    int64_t dims[2];
    char text[64] = "";
    FILE *input = fopen(INPUT, "rb");
    ck_assert(input && fread(text, 1, sizeof text, input) == sizeof text);
    fclose(input);
    ck_assert_int_eq(trace_read(&s->file, "tokens", s->rows, &tokens, dims), 0);
    for (int64_t t = 0; t < s->rows; t++) {
        ck_assert_int_eq((int)tokens[t], (unsigned char)text[t]);
        s->targets[t] = (unsigned char)text[t + 1];
        memcpy(x + t * s->d, table + (int64_t)tokens[t] * s->d, (size_t)s->d * sizeof *x);
    }
    free(tokens);
    free(table);
    ck_assert_str_eq(s->order[s->next++], "tokens");
    ck_assert_str_eq(s->order[s->next++], "targets");
    expect(s, -1, "embed", s->rows, s->d, x);
}

static void compare_all(Setting *s) {
    int64_t vocab = s->config.model.vocab;
    double *x = naive_array(s->rows * s->d), *normed = naive_array(s->rows * s->d);
    double *logits = naive_array(s->rows * vocab);
    embed(s, x);
    for (int l = 0; l < s->config.model.layers; l++) {
        attention(s, l, x);
        ffn(s, l, x);
    }
    norm(s, -1, "model.norm.weight", x, normed);
    expect(s, -1, "norm.final", s->rows, s->d, normed);
    linear(s, -1, "model.embed_tokens", vocab, s->d, normed, logits); /* tied */
    expect(s, -1, "logits", s->rows, vocab, logits);
    double loss = naive_cross_entropy(s->rows, vocab, logits, s->targets, 1, NULL);
    int64_t counted = 0;
    for (int64_t t = 0; t < s->rows; t++) counted += s->targets[t] >= 0;
    loss /= (double)counted;
    expect(s, -1, "loss", 1, 1, &loss);
    ck_assert_int_eq(s->next, s->names);
    free(x);
    free(normed);
    free(logits);
}

static void open_weights(Setting *s) {
    ModelConfig shape = setup_model(&s->config, 1, 1);
    ck_assert_int_eq(model_declare(&s->model, &shape, s->grid.tensor_rank, s->grid.tp), 0);
    ck_assert_int_eq(model_allocate(&s->model, &s->grid, false), 0);
    params_initialize(&s->model.set, shape.seed, 1);
}

static void on_grid(Setting *s, const char *path) {
    Session session = {&s->grid, 1};
    TraceOptions options = {.input = INPUT, .out = path};
    ck_assert_msg(trace_run(&s->config, &options, &session) == 0, "%s", error_message());
    open_weights(s);
    s->rows = s->config.model.context;
    s->d = s->config.model.d_model;
    s->f = s->config.ffn.d_ff;
    s->targets = calloc((size_t)s->rows, sizeof *s->targets);
    ck_assert_msg(hdf5_open(&s->file, "", path) == 0, "%s", error_message());
    ck_assert_int_eq(trace_order(&s->file, &s->order, &s->names), 0);
    compare_all(s);
    hdf5_close(&s->file);
    comm_barrier(&s->grid, GROUP_GRID);
    if (s->grid.tensor_rank == 0) unlink(path);
    free(s->order);
    free(s->targets);
    model_release(&s->model);
}

static void check(int tp, const char *kind, bool sequence) {
    Setting s = {.file = {.id = -1}};
    char text[64], path[64];
    snprintf(text, sizeof text, "ffn.kind=%s", kind);
    config_defaults(&s.config);
    ck_assert_int_eq(config_read(&s.config, "tests/configs/tiny.ini"), 0);
    ck_assert_int_eq(config_set(&s.config, text), 0);
    ck_assert_int_eq(config_set(&s.config, "init.std=0.2"), 0);
    s.config.parallel.sequence = sequence;
    ck_assert_int_eq(config_resolve(&s.config), 0);
    ck_assert_msg(config_check(&s.config) == 0, "%s", error_message());
    ck_assert_int_eq(comm_start(&s.grid), 0);
    ck_assert_int_eq(grid_open(&s.grid, tp, 1), 0);
    long process = (long)getpid();
    comm_broadcast(&s.grid, GROUP_GRID, &process, sizeof process, 0);
    snprintf(path, sizeof path, "/tmp/weft-trace-%ld.h5", process);
    log_enable(false);
    if (s.grid.world_rank == 0) unlink(path); /* of another process of that number */
    if (!s.grid.surplus) on_grid(&s, path);
    comm_stop(&s.grid);
}

START_TEST(each_tensor_is_the_naive_one) {
    for (int tp = 1; tp <= 3; tp += 2) {
        check(tp, "gated", false);
        check(tp, "dense", false);
        check(tp, "gated", true);
    }
}
END_TEST

int main(int argc, char **argv) {
    if (gemm_setup()) return EXIT_FAILURE;
    return run_mpi_suite(&argc, &argv, "trace", TESTS(each_tensor_is_the_naive_one));
}
