#include "support/naive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct NaiveModel {
    NaiveConfig config;
    NaiveTensors tensors;
    int32_t *tokens, *targets; /* [T] of the last forward */
    double divisor;
    double *states;  /* [L + 1][T, D]: what each layer is given, and the final norm */
    double *middles; /* [L][T, D]: after the attention's residual */
    double *logits;  /* [T, V] */
    double *dstate;  /* [T, D]: the gradient on its way down; at the end the embedding's */
};

static int64_t row_count(const NaiveModel *model) {
    return model->config.sequences * model->config.context;
}

static int64_t state_size(const NaiveModel *model) {
    return row_count(model) * model->config.d_model;
}

static void declare(NaiveModel *model, const char *name, int64_t rows, int64_t columns) {
    naive_tensors_add(&model->tensors, name, rows, columns);
}

static void declare_in_layer(NaiveModel *model, int layer, const char *name, int64_t rows,
                             int64_t columns) {
    naive_tensors_add_in_layer(&model->tensors, layer, name, rows, columns);
}

static void declare_layer(NaiveModel *model, int layer) {
    const NaiveConfig *c = &model->config;
    int64_t d = c->d_model, kv_width = d / c->heads * c->kv_heads;
    declare_in_layer(model, layer, "input_layernorm.weight", d, 1);
    declare_in_layer(model, layer, "self_attn.q_proj.weight", d, d);
    declare_in_layer(model, layer, "self_attn.k_proj.weight", kv_width, d);
    declare_in_layer(model, layer, "self_attn.v_proj.weight", kv_width, d);
    declare_in_layer(model, layer, "self_attn.o_proj.weight", d, d);
    declare_in_layer(model, layer, "post_attention_layernorm.weight", d, 1);
    if (c->gated) declare_in_layer(model, layer, "mlp.gate_proj.weight", c->d_ff, d);
    if (c->gated && (c->bias || c->gate_bias))
        declare_in_layer(model, layer, "mlp.gate_proj.bias", c->d_ff, 1);
    declare_in_layer(model, layer, "mlp.up_proj.weight", c->d_ff, d);
    if (c->bias || c->up_bias) declare_in_layer(model, layer, "mlp.up_proj.bias", c->d_ff, 1);
    declare_in_layer(model, layer, "mlp.down_proj.weight", d, c->d_ff);
    if (c->bias || c->down_bias) declare_in_layer(model, layer, "mlp.down_proj.bias", d, 1);
}

NaiveModel *naive_open(const NaiveConfig *config) {
    NaiveModel *model = calloc(1, sizeof *model);
    if (!model) abort();
    model->config = *config;
    declare(model, "model.embed_tokens.weight", config->vocab, config->d_model);
    for (int layer = 0; layer < config->layers; layer++) declare_layer(model, layer);
    declare(model, "model.norm.weight", config->d_model, 1);
    if (!config->tied) declare(model, "lm_head.weight", config->vocab, config->d_model);
    model->tokens = calloc((size_t)row_count(model) + 1, sizeof *model->tokens);
    model->targets = calloc((size_t)row_count(model) + 1, sizeof *model->targets);
    if (!model->tokens || !model->targets) abort();
    model->states = naive_array((config->layers + 1) * state_size(model));
    model->middles = naive_array(config->layers * state_size(model));
    model->logits = naive_array(row_count(model) * config->vocab);
    model->dstate = naive_array(state_size(model));
    return model;
}

void naive_close(NaiveModel *model) {
    naive_tensors_release(&model->tensors);
    free(model->tokens);
    free(model->targets);
    free(model->states);
    free(model->middles);
    free(model->logits);
    free(model->dstate);
    free(model);
}

const NaiveTensors *naive_tensors(const NaiveModel *model) { return &model->tensors; }

bool naive_tensor(const NaiveModel *model, int index, const char **name, int64_t *rows,
                  int64_t *columns) {
    if (index >= model->tensors.count) return false;
    const NaiveTensor *tensor = &model->tensors.tensor[index];
    *name = tensor->name;
    *rows = tensor->rows;
    *columns = tensor->columns;
    return true;
}

double *naive_weight(const NaiveModel *model, const char *name) {
    const NaiveTensor *tensor = naive_tensors_find(&model->tensors, name);
    return tensor ? tensor->weight : NULL;
}

double *naive_gradient(const NaiveModel *model, const char *name) {
    const NaiveTensor *tensor = naive_tensors_find(&model->tensors, name);
    return tensor ? tensor->gradient : NULL;
}

const double *naive_logits(const NaiveModel *model) { return model->logits; }

const double *naive_embedding_gradient(const NaiveModel *model) { return model->dstate; }

void naive_zero_gradients(NaiveModel *model) { naive_tensors_zero_gradients(&model->tensors); }

/* NULL where the layer has no such tensor. */
typedef double *(*Lookup)(const NaiveModel *model, const char *name);

static double *in_layer(const NaiveModel *model, Lookup lookup, int layer, const char *name) {
    char full[80];
    snprintf(full, sizeof full, "model.layers.%d.%s", layer, name);
    return lookup(model, full);
}

static double *head_of(const NaiveModel *model, Lookup lookup) {
    return lookup(model, model->config.tied ? "model.embed_tokens.weight" : "lm_head.weight");
}

static NaiveAttention attention_of(const NaiveModel *model, int layer) {
    const NaiveConfig *c = &model->config;
    return (NaiveAttention){
        .heads = {c->sequences, c->context, c->heads, c->kv_heads, c->d_model / c->heads},
        .d_model = c->d_model,
        .rope_theta = c->rope_theta,
        .q = in_layer(model, naive_weight, layer, "self_attn.q_proj.weight"),
        .k = in_layer(model, naive_weight, layer, "self_attn.k_proj.weight"),
        .v = in_layer(model, naive_weight, layer, "self_attn.v_proj.weight"),
        .o = in_layer(model, naive_weight, layer, "self_attn.o_proj.weight")};
}

static NaiveFfn ffn_of(const NaiveModel *model, int layer) {
    const NaiveConfig *c = &model->config;
    return (NaiveFfn){.rows = row_count(model),
                      .d_model = c->d_model,
                      .d_ff = c->d_ff,
                      .gated = c->gated,
                      .activation = c->activation,
                      .branches = c->branches,
                      .gate = in_layer(model, naive_weight, layer, "mlp.gate_proj.weight"),
                      .up = in_layer(model, naive_weight, layer, "mlp.up_proj.weight"),
                      .down = in_layer(model, naive_weight, layer, "mlp.down_proj.weight"),
                      .gate_bias = in_layer(model, naive_weight, layer, "mlp.gate_proj.bias"),
                      .up_bias = in_layer(model, naive_weight, layer, "mlp.up_proj.bias"),
                      .down_bias = in_layer(model, naive_weight, layer, "mlp.down_proj.bias"),
                      .mask = c->mask,
                      .mask_context = c->mask_context,
                      .layer = layer};
}

static void add(int64_t n, double *sum, const double *x) {
    for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

/* middle = x + attention(norm(x)); out = middle + ffn(norm(middle)); all [T, D]. */
static void layer_forward(const NaiveModel *model, int layer, const double *x, double *middle,
                          double *out) {
    const NaiveConfig *c = &model->config;
    NaiveAttention attention = attention_of(model, layer);
    NaiveFfn ffn = ffn_of(model, layer);
    double *normed = naive_array(state_size(model));
    naive_rms_norm(row_count(model), c->d_model, x,
                   in_layer(model, naive_weight, layer, "input_layernorm.weight"), c->rms_eps,
                   normed);
    naive_attention(&attention, normed, middle);
    add(state_size(model), middle, x);
    naive_rms_norm(row_count(model), c->d_model, middle,
                   in_layer(model, naive_weight, layer, "post_attention_layernorm.weight"),
                   c->rms_eps, normed);
    naive_ffn(&ffn, normed, out);
    add(state_size(model), out, middle);
    free(normed);
}

double naive_forward(NaiveModel *model, const int32_t *tokens, const int32_t *targets,
                     double divisor) {
    const NaiveConfig *c = &model->config;
    int64_t rows = row_count(model), d = c->d_model, size = state_size(model);
    const double *table = naive_weight(model, "model.embed_tokens.weight");
    double *normed = naive_array(size);
    memcpy(model->tokens, tokens, (size_t)rows * sizeof *tokens);
    memcpy(model->targets, targets, (size_t)rows * sizeof *targets);
    model->divisor = divisor;
    for (int64_t t = 0; t < rows; t++)
        for (int64_t i = 0; i < d; i++) model->states[t * d + i] = table[tokens[t] * d + i];
    for (int layer = 0; layer < c->layers; layer++)
        layer_forward(model, layer, model->states + layer * size, model->middles + layer * size,
                      model->states + (layer + 1) * size);
    naive_rms_norm(rows, d, model->states + c->layers * size,
                   naive_weight(model, "model.norm.weight"), c->rms_eps, normed);
    naive_linear(rows, c->vocab, d, normed, head_of(model, naive_weight), NULL, model->logits);
    free(normed);
    return naive_cross_entropy(rows, c->vocab, model->logits, targets, 0, NULL) / divisor;
}

/* dstate: in, the gradient of the sublayer's output (residual included); out, of x. */
static void ffn_sublayer_backward(const NaiveModel *model, int layer, const double *x,
                                  double *dstate) {
    const NaiveConfig *c = &model->config;
    int64_t rows = row_count(model), d = c->d_model;
    const char *norm = "post_attention_layernorm.weight";
    const double *gain = in_layer(model, naive_weight, layer, norm);
    double *normed = naive_array(rows * d), *dnormed = naive_array(rows * d);
    NaiveFfn ffn = ffn_of(model, layer);
    NaiveFfnGradients gradients = {
        .gate = in_layer(model, naive_gradient, layer, "mlp.gate_proj.weight"),
        .up = in_layer(model, naive_gradient, layer, "mlp.up_proj.weight"),
        .down = in_layer(model, naive_gradient, layer, "mlp.down_proj.weight"),
        .gate_bias = in_layer(model, naive_gradient, layer, "mlp.gate_proj.bias"),
        .up_bias = in_layer(model, naive_gradient, layer, "mlp.up_proj.bias"),
        .down_bias = in_layer(model, naive_gradient, layer, "mlp.down_proj.bias")};
    naive_rms_norm(rows, d, x, gain, c->rms_eps, normed);
    naive_ffn_backward(&ffn, normed, dstate, dnormed, &gradients);
    naive_rms_norm_backward(rows, d, x, gain, c->rms_eps, dnormed, dstate,
                            in_layer(model, naive_gradient, layer, norm));
    free(normed);
    free(dnormed);
}

static void attention_sublayer_backward(const NaiveModel *model, int layer, const double *x,
                                        double *dstate) {
    const NaiveConfig *c = &model->config;
    int64_t rows = row_count(model), d = c->d_model;
    const char *norm = "input_layernorm.weight";
    const double *gain = in_layer(model, naive_weight, layer, norm);
    double *normed = naive_array(rows * d), *dnormed = naive_array(rows * d);
    NaiveAttention attention = attention_of(model, layer);
    NaiveAttentionGradients gradients = {
        .q = in_layer(model, naive_gradient, layer, "self_attn.q_proj.weight"),
        .k = in_layer(model, naive_gradient, layer, "self_attn.k_proj.weight"),
        .v = in_layer(model, naive_gradient, layer, "self_attn.v_proj.weight"),
        .o = in_layer(model, naive_gradient, layer, "self_attn.o_proj.weight")};
    naive_rms_norm(rows, d, x, gain, c->rms_eps, normed);
    naive_attention_backward(&attention, normed, dstate, dnormed, &gradients);
    naive_rms_norm_backward(rows, d, x, gain, c->rms_eps, dnormed, dstate,
                            in_layer(model, naive_gradient, layer, norm));
    free(normed);
    free(dnormed);
}

/* Loss, head and final norm; leaves the gradient of the last layer's output in dstate. */
static void head_backward(NaiveModel *model) {
    const NaiveConfig *c = &model->config;
    int64_t rows = row_count(model), d = c->d_model, size = state_size(model);
    const double *gain = naive_weight(model, "model.norm.weight");
    const double *x = model->states + c->layers * size;
    double *normed = naive_array(size), *dnormed = naive_array(size);
    double *dlogits = naive_array(rows * c->vocab);
    naive_cross_entropy(rows, c->vocab, model->logits, model->targets, 1 / model->divisor, dlogits);
    naive_rms_norm(rows, d, x, gain, c->rms_eps, normed);
    naive_linear_backward(rows, c->vocab, d, normed, head_of(model, naive_weight), dlogits, dnormed,
                          head_of(model, naive_gradient), NULL);
    memset(model->dstate, 0, (size_t)size * sizeof *model->dstate);
    naive_rms_norm_backward(rows, d, x, gain, c->rms_eps, dnormed, model->dstate,
                            naive_gradient(model, "model.norm.weight"));
    free(normed);
    free(dnormed);
    free(dlogits);
}

void naive_backward(NaiveModel *model) {
    int64_t d = model->config.d_model, size = state_size(model);
    double *table = naive_gradient(model, "model.embed_tokens.weight");
    head_backward(model);
    for (int layer = (int)model->config.layers - 1; layer >= 0; layer--) {
        ffn_sublayer_backward(model, layer, model->middles + layer * size, model->dstate);
        attention_sublayer_backward(model, layer, model->states + layer * size, model->dstate);
    }
    for (int64_t t = 0; t < row_count(model); t++)
        for (int64_t i = 0; i < d; i++) table[model->tokens[t] * d + i] += model->dstate[t * d + i];
}
