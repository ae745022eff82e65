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
    bool mlp = config->kind == MODEL_MLP;
    int shards = config->grid_tensor;
    model->vocab = axis_layout(mlp ? config->outputs : config->vocab, shards, tp);
    model->groups = axis_layout(mlp ? 0 : config->attention.kv_heads, shards, tp);
    model->channels = axis_layout(config->ffn.d_ff, shards, tp);
    model->width = axis_layout(config->ffn.d_model, shards, tp);
    return 0;
}

/* ---- the two ends of a model; the layers between them differ by attention alone ---- */

static int declare_embedding(Model *model) {
    const ModelConfig *config = &model->config;
    return params_declare(&model->set,
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
}

static int embed(Model *model, const Microbatch *batch) {
    residual_embed(&model->space, model->grid, &model->set, &model->set.param[model->embedding],
                   batch->tokens, model->stream[0]);
    return 0;
}

static int embed_backward(Model *model, const Microbatch *batch) {
    Tensor dx = stream_whole(&model->space.stream, model->gradient, model->space.threads);
    residual_embed_backward(&model->space, &model->set, &model->set.param[model->embedding],
                            batch->tokens, dx);
    observe_parameter(model->space.observer, -1, &model->set, model->embedding);
    return 0;
}

static int declare_input(Model *model) {
    return input_declare(&model->input, &model->set, &model->space, model->config.inputs,
                         model->config.embed_init, &model->width);
}

static int map_inputs(Model *model, const Microbatch *batch) {
    return input_forward(&model->input, model->grid, batch->inputs, model->stream[0]);
}

static int map_inputs_backward(Model *model, const Microbatch *batch) {
    Tensor dx = stream_whole(&model->space.stream, model->gradient, model->space.threads);
    int status = input_backward(&model->input, batch->inputs, dx);
    if (status) return status;
    observe_parameter(model->space.observer, -1, &model->set, model->input.weight);
    observe_parameter(model->space.observer, -1, &model->set, model->input.bias);
    return 0;
}

static const struct {
    const char *input; /* what observers are told of stream[0] */
    int (*declare)(Model *model);
    int (*forward)(Model *model, const Microbatch *batch);  /* to stream[0] */
    int (*backward)(Model *model, const Microbatch *batch); /* from its gradient */
    const char *weight, *bias;                              /* of the head */
    uint32_t init_key;
} ends[] = {
    [MODEL_DECODER] = {"embed", declare_embedding, embed, embed_backward, "lm_head.weight", NULL,
                       INIT_KEY_HEAD},
    [MODEL_MLP] = {"input", declare_input, map_inputs, map_inputs_backward, "output.weight",
                   "output.bias", INIT_KEY_OUTPUT},
};

static int declare_head(Model *model) {
    const ModelConfig *config = &model->config;
    bool tied = config->kind == MODEL_DECODER && config->tied;
    return head_declare(&model->head, &model->set, &model->space,
                        &(HeadSpec){.d_model = config->ffn.d_model,
                                    .norm_eps = config->norm_eps,
                                    .init_std = config->embed_init,
                                    .loss = config->loss,
                                    .axis = &model->vocab,
                                    .weight = tied ? NULL : ends[config->kind].weight,
                                    .bias = ends[config->kind].bias,
                                    .tied = model->embedding,
                                    .init_key = ends[config->kind].init_key});
}

int model_declare(Model *model, const ModelConfig *config, int tensor_rank, int tp) {
    *model = (Model){.config = *config};
    int status = declare_axes(model, tp);
    if (status) return status;
    int64_t rows = config->sequences * config->context;
    model->space = (Workspace){.threads = config->threads,
                               .fusion = config->fusion,
                               .rows = rows,
                               .row_shards = shard_count(rows, config->grid_tensor)};
    stream_init(&model->space.stream, rows, config->ffn.d_model, config->grid_tensor,
                config->sequence, tensor_rank, tp);
    params_init(&model->set, tensor_rank, tp);
    model->layer = calloc((size_t)config->layers, sizeof *model->layer);
    model->stream = calloc((size_t)config->layers + 1, sizeof *model->stream);
    if (!model->layer || !model->stream)
        return error_set(WEFT_RUNTIME, "out of memory: layer tables");
    status = ends[config->kind].declare(model);
    for (int l = 0; l < config->layers && !status; l++) status = layer_declare(model, l);
    return status ? status : declare_head(model);
}

static Tensor take(Arena *arena, int64_t rows, int64_t cols) {
    return tensor_view(arena_take(arena, rows * cols, sizeof(real)), rows, cols);
}

/* What attention needs once for all layers. */
static void take_attention(Model *model) {
    const AttentionConfig *config = &model->config.attention;
    model->rotary = take(&model->arena, config->context, config->d_model / config->heads);
    if (model->config.layers > 0)
        attention_take(&model->layer[0].attention, &model->arena, model->set.tensor_rank, false,
                       &model->attention_gradient);
}

/* Gradients that are sums over the rows of the stream: of the parameters that all ranks hold. */
static int stream_sums(const Model *model) {
    int sums = 0;
    for (int i = 0; i < model->set.count; i++) sums += model->set.param[i].split == SPLIT_NONE;
    return sums;
}

/* Lays out all activations: once to count, once for good. */
static void take_all(Model *model) {
    const ModelConfig *config = &model->config;
    Arena *arena = &model->arena;
    const Stream *stream = &model->space.stream;
    int64_t own = range_size(stream->own), d = config->ffn.d_model;
    for (int l = 0; l <= config->layers; l++) model->stream[l] = take(arena, own, d);
    model->sum = take(arena, own, d);
    model->gradient = take(arena, own, d);
    if (!stream->cut) model->branch = take(arena, own, d);
    stream_take(&model->space.stream, arena, stream_sums(model));
    layer_take_all(model);
    if (config->kind == MODEL_DECODER) take_attention(model);
    head_take(&model->head, arena, model->set.tensor_rank);
    workspace_take(&model->space, arena);
}

size_t model_activation_bytes(Model *model) {
    arena_init(&model->arena);
    take_all(model);
    return model->arena.used;
}

ExchangeSpec model_exchange_spec(const Model *model, const AxisLayout *axis) {
    const ModelConfig *config = &model->config;
    const Stream *stream = &model->space.stream;
    return (ExchangeSpec){.group = GROUP_TENSOR,
                          .axis = axis,
                          .rows = model->space.rows,
                          .cols = config->ffn.d_model,
                          .own_rows = stream->cut ? &stream->rows : NULL,
                          .reduction = config->reduction,
                          .transport = config->transport,
                          .threads = config->threads};
}

static int open_exchanges(Model *model) {
    struct {
        Exchange **exchange;
        const AxisLayout *axis;
    } row[] = {{&model->exchange_ffn, &model->channels},
               {&model->exchange_attention, &model->groups},
               {&model->exchange_head, &model->vocab}};
    for (int i = 0; i < 3; i++) {
        if (row[i].axis->units == 0) continue;
        ExchangeSpec spec = model_exchange_spec(model, row[i].axis);
        spec.share = model->exchange_ffn;
        int status = exchange_open(row[i].exchange, model->grid, &spec);
        if (status) return status;
    }
    return 0;
}

/* All rows of a cut stream lie in its buffers. */
static int open_stream(Model *model) {
    const ModelConfig *config = &model->config;
    Stream *stream = &model->space.stream;
    int status =
        stream_open(stream, model->grid, config->reduction, config->transport, config->threads);
    if (status || !stream->cut) return status;
    Tensor inputs = gather_whole(stream->inputs);
    for (int l = 0; l < config->layers; l++)
        model->layer[l].saved.normed_attention = model->layer[l].saved.normed_ffn = inputs;
    model->head.normed = inputs;
    model->branch = gather_whole(stream->gradients);
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
    if (model->rotary.data) rotary_table(model->config.attention.rope_theta, model->rotary);
    for (int l = 0; l < model->config.layers; l++) model->layer[l].attention.rotary = model->rotary;
    status = open_exchanges(model);
    if (!status) status = open_stream(model);
    model->head.grid = grid;
    model->head.exchange = model->exchange_head;
    return status;
}

void model_release(Model *model) {
    stream_close(&model->space.stream);
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

static int forward(Model *model, const Pass *pass, const Microbatch *batch) {
    observe_begin(model->space.observer, pass->microbatch);
    Phase phase = pass->training ? PHASE_FORWARD : PHASE_EVALUATE;
    watch_phase(model->grid->watch, phase);
    stopwatch_begin(model->space.stopwatch, STEP_EMBEDDING);
    int status = ends[model->config.kind].forward(model, batch);
    stopwatch_end(model->space.stopwatch);
    if (status) return status;
    observe_stream(&model->space, ends[model->config.kind].input, -1, model->stream[0]);
    for (int l = 0; l < model->config.layers && !status; l++) {
        watch_phase(model->grid->watch, phase);
        status = fault_point(PHASE_FORWARD);
        if (!status) status = layer_forward(model, l, pass);
    }
    return status;
}

static Tensor last(const Model *model) { return model->stream[model->config.layers]; }

int model_train(Model *model, const Pass *pass, const Microbatch *batch, double scale,
                double *loss) {
    int64_t hits;
    int status = forward(model, pass, batch);
    stopwatch_begin(model->space.stopwatch, STEP_HEAD);
    if (!status)
        status = head_loss(&model->head, last(model), batch, scale, model->gradient, loss, &hits);
    stopwatch_end(model->space.stopwatch);
    for (int l = (int)model->config.layers - 1; l >= 0 && !status; l--) {
        watch_phase(model->grid->watch, PHASE_BACKWARD);
        status = fault_point(PHASE_BACKWARD);
        if (!status) status = layer_backward(model, l, pass);
    }
    if (!status) status = stream_finish_sums(&model->space.stream);
    if (status) return status;
    stopwatch_begin(model->space.stopwatch, STEP_EMBEDDING);
    status = ends[model->config.kind].backward(model, batch);
    stopwatch_end(model->space.stopwatch);
    return status;
}

int model_loss(Model *model, const Pass *pass, const Microbatch *batch, double *loss,
               int64_t *hits) {
    int status = forward(model, pass, batch);
    if (status) return status;
    return head_loss(&model->head, last(model), batch, 0, (Tensor){0}, loss, hits);
}

int model_evaluate(Model *model, const Microbatch *batch, double *loss, int64_t *hits) {
    return model_loss(model, &(Pass){.training = fault_on("dropout-in-eval")}, batch, loss, hits);
}

int model_logits(Model *model, const Microbatch *batch, int64_t row, double *logits) {
    int status = forward(model, &(Pass){.training = false}, batch);
    if (status) return status;
    return head_logits(&model->head, last(model), row, logits);
}

ModelProducts model_products(const ModelConfig *config) {
    double d = (double)config->ffn.d_model, layers = (double)config->layers;
    ModelProducts products = {.ffn = layers * ffn_find(config->ffn.kind)->projections * d *
                                     (double)config->ffn.d_ff};
    if (config->kind == MODEL_MLP) {
        products.input = d * (double)config->inputs;
        products.head = d * (double)config->outputs;
    } else {
        double kv = d / (double)config->attention.heads * (double)config->attention.kv_heads;
        products.attention = layers * (2 * d * d + 2 * d * kv + d * (double)config->context);
        products.head = d * (double)config->vocab;
    }
    return products;
}

double model_forward_products(const ModelConfig *config) {
    ModelProducts products = model_products(config);
    return products.input + products.attention + products.ffn + products.head;
}
