/* What an observer is shown: everything that observer.h lists, in that order, each element once,
 * with the same bits at every layout and in every recompute mode; and each tensor is what its name
 * says. On 3 ranks. */
#include "base/error.h"
#include "nn/observer.h"
#include "run/trainer.h"
#include "support/naive.h"
#include "support/support.h"
#include "support/whole.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, MICROBATCHES = 4, PLACES = 128 };

static const char *const modes[] = {"none", "act", "block"};
/* The first first. */
static const struct {
    int tp, dp;
    bool sequence;
} layouts[] = {{1, 1, false}, {2, 1, false}, {3, 1, false},
               {1, 2, false}, {2, 1, true},  {3, 1, true}};

typedef void (*OnTrainer)(Trainer *trainer, Grid *grid);

/* A trainer with its initial weights on the ranks of one layout; the others pass it by. */
static void on_layout(const char *mode, int tp, int dp, bool sequence, OnTrainer body) {
    Config config;
    Grid grid;
    Trainer trainer;
    char recompute[64];
    snprintf(recompute, sizeof recompute, "train.recompute=%s", mode);
    config_defaults(&config);
    ck_assert_msg(config_read(&config, "tests/configs/tiny.ini") == 0, "%s", error_message());
    ck_assert_int_eq(config_set(&config, recompute), 0);
    ck_assert_int_eq(config_set(&config, "train.global_batch=4"), 0);
    config.parallel.sequence = sequence;
    ck_assert_msg(config_check(&config) == 0, "%s", error_message());
    ck_assert_int_eq(comm_start(&grid), 0);
    ck_assert_msg(grid_open(&grid, tp, dp) == 0, "%s", error_message());
    if (!grid.surplus) {
        int status = trainer_open(&trainer, &config, &grid, 1, true);
        ck_assert_msg(status == 0, "tp %d x dp %d: %s", tp, dp, error_message());
        body(&trainer, &grid);
        trainer_close(&trainer);
    }
    grid_wait_surplus(&grid, 0);
    comm_stop(&grid);
}

static void on_layouts(OnTrainer body) {
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
        for (int m = 0; m < 3; m++)
            on_layout(modes[m], layouts[l].tp, layouts[l].dp, layouts[l].sequence, body);
}

/* ---- order ---- */

static const char *const forward_names[] = {
    "norm.attention", "attention.q",     "attention.k", "attention.v", "attention.context",
    "attention.o",    "resid.attention", "norm.ffn",    "ffn.gate",    "ffn.up",
    "ffn.act",        "ffn.down",        "resid.ffn"};
static const char *const backward_names[] = {"mlp.down_proj.bias",
                                             "mlp.down_proj.weight",
                                             "mlp.gate_proj.weight",
                                             "mlp.gate_proj.bias",
                                             "mlp.up_proj.weight",
                                             "mlp.up_proj.bias",
                                             "post_attention_layernorm.weight",
                                             "resid.attention",
                                             "self_attn.o_proj.weight",
                                             "self_attn.q_proj.weight",
                                             "self_attn.k_proj.weight",
                                             "self_attn.v_proj.weight",
                                             "input_layernorm.weight",
                                             "layer.input"};
enum {
    FORWARD = sizeof forward_names / sizeof *forward_names,
    BACKWARD = sizeof backward_names / sizeof *backward_names
};

typedef struct {
    char name[PARAM_NAME];
    int layer;
    bool gradient;
} Expected;

static void expect(Expected *list, int *count, const char *name, int layer, bool gradient) {
    bool parameter = layer >= 0 && gradient && strchr(name, '_');
    Expected *one = &list[(*count)++];
    *one = (Expected){.layer = layer, .gradient = gradient};
    if (parameter)
        snprintf(one->name, sizeof one->name, "model.layers.%d.%s", layer, name);
    else
        snprintf(one->name, sizeof one->name, "%s", name);
}

/* The header's list, for two layers, tied embeddings and one chunk of logits. */
static int expected_places(Expected list[PLACES]) {
    int count = 0;
    expect(list, &count, "embed", -1, false);
    for (int l = 0; l < LAYERS; l++)
        for (int i = 0; i < FORWARD; i++) expect(list, &count, forward_names[i], l, false);
    expect(list, &count, "norm.final", -1, false);
    expect(list, &count, "logits", -1, false);
    expect(list, &count, "loss", -1, false);
    expect(list, &count, "model.embed_tokens.weight", -1, true);
    expect(list, &count, "model.norm.weight", -1, true);
    expect(list, &count, "head.input", -1, true);
    for (int l = LAYERS - 1; l >= 0; l--)
        for (int i = 0; i < BACKWARD; i++) expect(list, &count, backward_names[i], l, true);
    expect(list, &count, "model.embed_tokens.weight", -1, true);
    return count;
}

/* ---- bits ---- */

/* Sums over microbatches and pieces: of the elements' hashes, and of their number. */
typedef struct {
    Hash128 bits[PLACES], elements[PLACES];
    int64_t size[PLACES]; /* of the whole tensor */
    bool first_rank;      /* counts what is not cut */
} Record;

static Record reference; /* of tp 1 x dp 1 without recomputation, on all ranks */

static void record(void *context, const Seen *seen) {
    Record *here = context;
    Expected list[PLACES];
    ck_assert_int_lt(seen->place, expected_places(list));
    const Expected *expected = &list[seen->place];
    ck_assert_msg(!strcmp(seen->name, expected->name) && seen->layer == expected->layer &&
                      seen->gradient == expected->gradient,
                  "place %d is %s of layer %d, expected %s of layer %d", (int)seen->place,
                  seen->name, seen->layer, expected->name, expected->layer);
    ck_assert(seen->cut || (seen->data.rows == seen->rows && seen->data.cols == seen->cols));
    here->size[seen->place] = seen->rows * seen->cols;
    if (!seen->cut && !here->first_rank) return;
    char text[PARAM_NAME + 64];
    snprintf(text, sizeof text, "%s %d %d", seen->name, seen->layer, (int)seen->microbatch);
    Hash128 name = hash_text(text), *bits = &here->bits[seen->place];
    for (int64_t i = 0; i < seen->data.rows; i++) {
        int64_t first = (seen->row + i) * seen->cols + seen->col;
        *bits = hash_add(*bits, hash_elements(name, first, tensor_row(seen->data, i),
                                              seen->data.cols, sizeof(real)));
    }
    here->elements[seen->place].low += (uint64_t)(seen->data.rows * seen->data.cols);
}

static void compare_bits(Trainer *trainer, Grid *grid) {
    Record here = {.first_rank = grid->tensor_rank == 0};
    Observer observer = {.see = record, .context = &here};
    double loss, norm;
    Expected list[PLACES];
    int places = expected_places(list);
    trainer->model.space.observer = &observer;
    ck_assert_msg(trainer_gradient(trainer, &loss, &norm) == 0, "%s", error_message());
    ck_assert_int_eq(observer.place, places);
    comm_max_int64(grid, GROUP_GRID, here.size, places);
    for (int p = 0; p < places; p++) {
        comm_sum_hash(grid, GROUP_GRID, &here.bits[p]);
        comm_sum_hash(grid, GROUP_GRID, &here.elements[p]);
        ck_assert_msg((int64_t)here.elements[p].low == MICROBATCHES * here.size[p],
                      "tp %d x dp %d: %s: %d elements of %d", grid->tp, grid->dp, list[p].name,
                      (int)here.elements[p].low, (int)(MICROBATCHES * here.size[p]));
    }
    bool is_reference =
        grid->tp * grid->dp == 1 && !strcmp(trainer->config.train.recompute, "none");
    if (is_reference) reference = here;
    comm_broadcast(grid, GROUP_GRID, &reference, sizeof reference, 0);
    for (int p = 0; p < places; p++)
        ck_assert_msg(hash_equal(here.bits[p], reference.bits[p]),
                      "tp %d x dp %d, recompute %s, sequence %d: other bits in %s of layer %d",
                      grid->tp, grid->dp, trainer->config.train.recompute,
                      trainer->config.parallel.sequence, list[p].name, list[p].layer);
}

START_TEST(same_list_and_bits_at_every_layout) { on_layouts(compare_bits); }
END_TEST

/* ---- meaning ---- */

/* The first microbatch's tensors, whole, on every rank. */
typedef struct {
    double *whole[PLACES];
    bool first_rank;
} Kept;

static void keep(void *context, const Seen *seen) {
    Kept *kept = context;
    if (seen->microbatch || seen->gradient) return;
    double **whole = &kept->whole[seen->place];
    if (!*whole) *whole = naive_array(seen->rows * seen->cols);
    if (!seen->cut && !kept->first_rank) return;
    for (int64_t i = 0; i < seen->data.rows; i++)
        for (int64_t j = 0; j < seen->data.cols; j++)
            (*whole)[(seen->row + i) * seen->cols + seen->col + j] =
                (double)tensor_row(seen->data, i)[j];
}

/* What the rank has no piece of is zero there. */
static void assemble(Kept *kept, Trainer *trainer, Grid *grid) {
    const ModelConfig *model = &trainer->model.config;
    int64_t rows = model->sequences * model->context, d = model->attention.d_model;
    int64_t kv = d / model->attention.heads * model->attention.kv_heads, f = model->ffn.d_ff;
    const int64_t width[FORWARD] = {d, d, kv, kv, d, d, d, d, f, f, f, d, d};
    for (int l = 0; l < LAYERS; l++)
        for (int i = 0; i < FORWARD; i++) {
            double **whole = &kept->whole[1 + l * FORWARD + i];
            if (!*whole) *whole = naive_array(rows * width[i]);
            comm_assemble(grid, GROUP_TENSOR, *whole, rows * width[i]);
        }
    double **logits = &kept->whole[2 + LAYERS * FORWARD];
    if (!*logits) *logits = naive_array(rows * model->vocab);
    comm_assemble(grid, GROUP_TENSOR, *logits, rows * model->vocab);
    comm_assemble(grid, GROUP_TENSOR, kept->whole[0], rows * d);
    comm_assemble(grid, GROUP_TENSOR, kept->whole[3 + LAYERS * FORWARD], 1);
}

static double *of_layer(const Kept *kept, int layer, const char *name) {
    for (int i = 0; i < FORWARD; i++)
        if (!strcmp(forward_names[i], name)) return kept->whole[1 + layer * FORWARD + i];
    ck_abort_msg("there is no %s", name);
    return NULL;
}

/* sum = a + b in `real`, bit for bit. */
static void assert_sum(int64_t n, const double *a, const double *b, const double *sum) {
    for (int64_t i = 0; i < n; i++) ck_assert_double_eq((double)((real)a[i] + (real)b[i]), sum[i]);
}

/* y = x W^T + bias within rounding; every seventh row. */
static void assert_product(Trainer *trainer, Grid *grid, const double *x, int layer,
                           const char *name, int64_t rows, const double *y) {
    static const double close = sizeof(real) == 8 ? 1e-13 : 1e-5;
    char full[PARAM_NAME];
    const ParamSet *set = &trainer->model.set;
    snprintf(full, sizeof full, "model.layers.%d.mlp.%s_proj.weight", layer, name);
    const Param *param = &set->param[params_find(set, full)];
    double *w = whole_gather(grid, set, param, PARAM_VALUE);
    for (int64_t t = 0; t < rows; t += 7)
        for (int64_t o = 0; o < param->rows; o++) {
            double sum = 0;
            for (int64_t i = 0; i < param->cols; i++)
                sum += x[t * param->cols + i] * w[o * param->cols + i];
            ck_assert_msg(fabs(sum - y[t * param->rows + o]) < close, "%s[%d, %d]: %g, not %g",
                          full, (int)t, (int)o, y[t * param->rows + o], sum);
        }
    free(w);
}

static void assert_hidden(int64_t n, const double *gate, const double *up, const double *hidden,
                          double keep_scale) {
    static const double close = sizeof(real) == 8 ? 1e-14 : 1e-6;
    int64_t dropped = 0;
    for (int64_t i = 0; i < n; i++) {
        double product = gate[i] / (1 + exp(-gate[i])) * up[i] * keep_scale;
        dropped += hidden[i] == 0;
        ck_assert(hidden[i] == 0 || fabs(hidden[i] - product) < close);
    }
    ck_assert_int_lt(dropped, n / 5);
}

static double loss_of(const double *logits, int64_t rows, int64_t vocab, const int32_t *targets) {
    double loss = 0;
    for (int64_t t = 0; t < rows; t++) {
        double sum = 0;
        for (int64_t v = 0; v < vocab; v++) sum += exp(logits[t * vocab + v]);
        loss += log(sum) - logits[t * vocab + targets[t]];
    }
    return loss;
}

static void check_meaning(Trainer *trainer, Grid *grid) {
    const ModelConfig *model = &trainer->model.config;
    int64_t rows = model->sequences * model->context, d = model->attention.d_model;
    Kept kept = {.first_rank = grid->tensor_rank == 0};
    Observer observer = {.see = keep, .context = &kept};
    Pass pass = {0, 0, true};
    double loss;
    ck_assert_int_eq(dataset_train_batch(&trainer->data, 0, 4, 0, &trainer->micro, NULL), 0);
    trainer->model.space.observer = &observer;
    ck_assert_int_eq(model_train(&trainer->model, &pass, &trainer->micro, 1, &loss), 0);
    assemble(&kept, trainer, grid);
    const double *input = kept.whole[0];
    for (int l = 0; l < LAYERS; l++) {
        const double *middle = of_layer(&kept, l, "resid.attention");
        const double *x = of_layer(&kept, l, "norm.ffn"), *gate = of_layer(&kept, l, "ffn.gate");
        const double *up = of_layer(&kept, l, "ffn.up"), *out = of_layer(&kept, l, "resid.ffn");
        assert_sum(rows * d, input, of_layer(&kept, l, "attention.o"), middle);
        assert_sum(rows * d, middle, of_layer(&kept, l, "ffn.down"), out);
        assert_product(trainer, grid, x, l, "gate", rows, gate);
        assert_product(trainer, grid, x, l, "up", rows, up);
        assert_hidden(rows * model->ffn.d_ff, gate, up, of_layer(&kept, l, "ffn.act"), 1 / 0.9);
        input = out;
    }
    const double *logits = kept.whole[2 + LAYERS * FORWARD];
    double expected = loss_of(logits, rows, model->vocab, trainer->micro.targets);
    ck_assert_double_eq_tol(*kept.whole[3 + LAYERS * FORWARD], expected, 1e-3);
    ck_assert_double_eq_tol(loss, expected, 1e-3);
    for (int p = 0; p < PLACES; p++) free(kept.whole[p]);
}

START_TEST(each_tensor_is_what_its_name_says) {
    on_layout("none", 1, 1, false, check_meaning);
    on_layout("block", 3, 1, false, check_meaning);
}
END_TEST

int main(int argc, char **argv) {
    if (gemm_setup()) return EXIT_FAILURE;
    return run_mpi_suite(
        &argc, &argv, "observer",
        TESTS(same_list_and_bits_at_every_layout, each_tensor_is_what_its_name_says));
}
