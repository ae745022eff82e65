#include "nn/model.h"

#include "base/error.h"
#include "base/fault.h"
#include "math/attention.h"
#include "nn/init_keys.h"
#include "nn/layer.h"
#include "nn/observer.h"
#include "nn/residual.h"

#include <stdlib.h>
#include <string.h>

static int declare_axes(Model *model, int tp) {
    const ModelConfig *config = &model->config;
    if (tp < 1 || tp > config->grid_tensor)
        return error_set(WEFT_USAGE, "tp = %d: between 1 and grid.tensor = %d is possible", tp,
                         config->grid_tensor);
    model->vocab = axis_layout(config->vocab, config->grid_tensor, tp);
    model->groups = axis_layout(config->attention.kv_heads, config->grid_tensor, tp);
    model->channels = axis_layout(config->ffn.d_ff, config->grid_tensor, tp);
    return 0;
}

int model_declare(Model *model, const ModelConfig *config, int tensor_rank, int tp) {
    *model = (Model){.config = *config};
    int status = declare_axes(model, tp);
    if (status) return status;
    int64_t rows = config->sequences * config->context;
    model->space = (Workspace){.threads = config->threads,
                               .rows = rows,
                               .row_shards = shard_count(rows, config->grid_tensor)};
    params_init(&model->set, tensor_rank, tp);
    model->layer = calloc((size_t)config->layers, sizeof *model->layer);
    model->stream = calloc((size_t)config->layers + 1, sizeof *model->stream);
    if (!model->layer || !model->stream)
        return error_set(WEFT_RUNTIME, "out of memory: layer tables");
    status = params_declare(&model->set,
                            &(ParamSpec){.name = "model.embed_tokens.weight",
                                         .rank = 2,
                                         .rows = config->vocab,
                                         .cols = config->attention.d_model,
                                         .split = SPLIT_ROWS,
                                         .axis = &model->vocab,
                                         .unit_size = 1,
                                         .init = INIT_NORMAL,
                                         .init_std = config->embed_init,
                                         .init_key = INIT_KEY_EMBEDDING,
                                         .decay = true},
                            &model->embedding);
    for (int l = 0; l < config->layers && !status; l++) status = layer_declare(model, l);
    if (status) return status;
    return head_declare(&model->head, &model->set, &model->space, config->attention.d_model,
                        config->norm_eps, config->embed_init, &model->vocab,
                        config->tied ? model->embedding : -1);
}

static Tensor take(Arena *arena, int64_t rows, int64_t cols) {
    return tensor_view(arena_take(arena, rows * cols, sizeof(real)), rows, cols);
}

/* Lays out all activations: once to count, once for good. */
static void take_all(Model *model) {
    const ModelConfig *config = &model->config;
    Arena *arena = &model->arena;
    int64_t rows = model->space.rows, d = config->attention.d_model;
    for (int l = 0; l <= config->layers; l++) model->stream[l] = take(arena, rows, d);
    model->rotary = take(arena, config->context, d / config->attention.heads);
    model->sum = take(arena, rows, d);
    model->gradient = take(arena, rows, d);
    model->branch = take(arena, rows, d);
    layer_take_all(model);
    if (config->layers > 0)
        attention_take(&model->layer[0].attention, arena, model->set.tensor_rank, false,
                       &model->attention_gradient);
    head_take(&model->head, arena, model->set.tensor_rank);
    workspace_take(&model->space, arena);
}

size_t model_activation_bytes(Model *model) {
    arena_init(&model->arena);
    take_all(model);
    return model->arena.used;
}

static int open_exchanges(Model *model) {
    const ModelConfig *config = &model->config;
    struct {
        Exchange **exchange;
        const AxisLayout *axis;
    } row[] = {{&model->exchange_ffn, &model->channels},
               {&model->exchange_attention, &model->groups},
               {&model->exchange_head, &model->vocab}};
    for (int i = 0; i < 3; i++) {
        ExchangeSpec spec = {.group = GROUP_TENSOR,
                             .axis = row[i].axis,
                             .rows = model->space.rows,
                             .cols = config->attention.d_model,
                             .reduction = config->reduction,
                             .transport = config->transport,
                             .threads = config->threads,
                             .share = model->exchange_ffn};
        int status = exchange_open(row[i].exchange, model->grid, &spec);
        if (status) return status;
    }
    return 0;
}

int model_allocate(Model *model, Grid *grid, bool training) {
    model->grid = grid;
    model_activation_bytes(model);
    int status = arena_allocate(&model->arena, "activations");
    if (!status) status = params_allocate(&model->set, training);
    status = comm_agree(grid, GROUP_GRID, status);
    if (status) return status;
    take_all(model);
    rotary_table(model->config.attention.rope_theta, model->rotary);
    for (int l = 0; l < model->config.layers; l++) model->layer[l].attention.rotary = model->rotary;
    status = open_exchanges(model);
    model->head.grid = grid;
    model->head.exchange = model->exchange_head;
    return status;
}

void model_release(Model *model) {
    exchange_close(model->exchange_head);
    exchange_close(model->exchange_attention);
    exchange_close(model->exchange_ffn);
    model_forget(model);
}

void model_forget(Model *model) {
    workspace_release(&model->space);
    arena_release(&model->arena);
    params_release(&model->set);
    free(model->layer);
    free(model->stream);
    *model = (Model){0};
}

static int forward(Model *model, const Pass *pass, const int32_t *tokens) {
    observe_begin(model->space.observer, pass->microbatch);
    Phase phase = pass->training ? PHASE_FORWARD : PHASE_EVALUATE;
    watch_phase(model->grid->watch, phase);
    residual_embed(&model->space, model->grid, &model->set, &model->set.param[model->embedding],
                   tokens, model->stream[0]);
    observe_whole(model->space.observer, "embed", -1, model->stream[0]);
    for (int l = 0; l < model->config.layers; l++) {
        watch_phase(model->grid->watch, phase);
        int status = fault_point(PHASE_FORWARD);
        if (!status) status = layer_forward(model, l, pass);
        if (status) return status;
    }
    return 0;
}

static Tensor last(const Model *model) { return model->stream[model->config.layers]; }

int model_train(Model *model, const Pass *pass, const Microbatch *batch, double scale,
                double *loss) {
    int64_t hits;
    int status = forward(model, pass, batch->tokens);
    if (!status)
        status = head_loss(&model->head, last(model), batch, scale, model->gradient, loss, &hits);
    for (int l = (int)model->config.layers - 1; l >= 0 && !status; l--) {
        watch_phase(model->grid->watch, PHASE_BACKWARD);
        status = fault_point(PHASE_BACKWARD);
        if (!status) status = layer_backward(model, l, pass);
    }
    if (status) return status;
    residual_embed_backward(&model->space, &model->set, &model->set.param[model->embedding],
                            batch->tokens, model->gradient);
    observe_parameter(model->space.observer, -1, &model->set, model->embedding);
    return 0;
}

int model_evaluate(Model *model, const Microbatch *batch, double *loss, int64_t *hits) {
    int status = forward(model, &(Pass){.training = false}, batch->tokens);
    if (status) return status;
    return head_loss(&model->head, last(model), batch, 0, (Tensor){0}, loss, hits);
}

int model_logits(Model *model, const int32_t *tokens, int64_t row, double *logits) {
    int status = forward(model, &(Pass){.training = false}, tokens);
    if (status) return status;
    return head_logits(&model->head, last(model), row, logits);
}

double model_forward_products(const ModelConfig *config) {
    double d = (double)config->attention.d_model;
    double kv = d / (double)config->attention.heads * (double)config->attention.kv_heads;
    double attention = 2 * d * d + 2 * d * kv + d * (double)config->context;
    double ffn = ffn_find(config->ffn.kind)->projections * d * (double)config->ffn.d_ff;
    return (double)config->layers * (attention + ffn) + d * (double)config->vocab;
}
