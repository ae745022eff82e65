#include "nn/layer.h"

#include "base/fault.h"
#include "nn/mistaken_ffn.h"
#include "nn/observer.h"
#include "nn/residual.h"

#include <math.h>
#include <stdio.h>

const char *layer_split_name(const char *name, int *layer) {
    int used = 0;
    if (sscanf(name, "model.layers.%d.%n", layer, &used) == 1 && used > 0) return name + used;
    *layer = -1;
    return name;
}

/* A part that a model may not have. Without it the stream between the sublayers is the layer's
 * input. */
static bool attends(const Model *model) { return model->config.kind == MODEL_DECODER; }

static int declare_norm(Model *model, int l, const char *name, int *index) {
    char full[PARAM_NAME];
    snprintf(full, sizeof full, "model.layers.%d.%s.weight", l, name);
    return params_declare(&model->set,
                          &(ParamSpec){.name = full,
                                       .rank = 1,
                                       .rows = 1,
                                       .cols = model->config.ffn.d_model,
                                       .init = INIT_ONE},
                          index);
}

static int declare_attention(Model *model, int l) {
    Layer *layer = &model->layer[l];
    char prefix[PARAM_NAME];
    snprintf(prefix, sizeof prefix, "model.layers.%d.self_attn", l);
    int status = declare_norm(model, l, "input_layernorm", &layer->norm_attention);
    if (status) return status;
    return attention_declare(&layer->attention, &model->set, &model->space,
                             &model->config.attention, &model->groups, prefix, l);
}

int layer_declare(Model *model, int l) {
    Layer *layer = &model->layer[l];
    char prefix[PARAM_NAME];
    snprintf(prefix, sizeof prefix, "model.layers.%d.mlp", l);
    int status = attends(model) ? declare_attention(model, l) : 0;
    if (!status)
        status = declare_norm(model, l, attends(model) ? "post_attention_layernorm" : "norm",
                              &layer->norm_ffn);
    if (status) return status;
    return ffn_declare(&layer->ffn, &model->set, &model->space, &model->config.ffn,
                       &model->channels, prefix, l);
}

static Tensor take_stream(Model *model) {
    int64_t own = range_size(model->space.stream.own), d = model->config.ffn.d_model;
    return tensor_view(arena_take(&model->arena, own * d, sizeof(real)), own, d);
}

/* Kept unless the whole block is done again. */
static void take_kept(Model *model, const Layer *layer, LayerSaved *saved) {
    Arena *arena = &model->arena;
    int64_t rows = range_size(model->space.stream.own);
    if (attends(model)) {
        saved->middle = take_stream(model);
        saved->scale_attention = arena_take(arena, rows, sizeof(real));
        attention_take(&layer->attention, arena, model->set.tensor_rank, true, &saved->attention);
    }
    saved->scale_ffn = arena_take(arena, rows, sizeof(real));
    ffn_take(&layer->ffn, arena, model->set.tensor_rank, &saved->ffn, NULL);
}

/* Follows pointwise from what is kept. All rows of a cut stream are never kept: a buffer of its own
 * has them, as long as a block reads them. */
static void take_derived(Model *model, const Layer *layer, LayerSaved *saved) {
    bool cut = model->space.stream.cut;
    if (attends(model) && !cut) saved->normed_attention = take_stream(model);
    if (!cut) saved->normed_ffn = take_stream(model);
    ffn_take(&layer->ffn, &model->arena, model->set.tensor_rank, NULL, &saved->ffn);
}

void layer_take_all(Model *model) {
    Recompute mode = model->config.recompute;
    for (int l = 0; l < model->config.layers; l++) {
        Layer *layer = &model->layer[l];
        const LayerSaved *first = &model->layer[0].saved;
        if (l > 0) layer->saved = *first;
        if (l == 0 || mode != RECOMPUTE_BLOCK) take_kept(model, layer, &layer->saved);
        if (l == 0 || mode == RECOMPUTE_NONE) take_derived(model, layer, &layer->saved);
        if (l == 0)
            ffn_take_work(&layer->ffn, &model->arena, model->set.tensor_rank, &layer->saved.ffn);
        if (!attends(model)) layer->saved.middle = model->stream[l];
    }
}

static const real *gain_of(const Model *model, int index) {
    return param_shard(&model->set, &model->set.param[index], PARAM_VALUE, 0).data;
}

static real *gain_gradient(const Model *model, int index) {
    return param_shard(&model->set, &model->set.param[index], PARAM_GRADIENT, 0).data;
}

static Dropout output_dropout(const Model *model, int l, const Pass *pass) {
    PhiloxPurpose site = fault_on("shared-mask") ? PHILOX_HIDDEN_DROPOUT : PHILOX_OUTPUT_DROPOUT;
    return (Dropout){
        {model->config.seed, site, (uint32_t)l, (uint32_t)pass->step, (uint32_t)pass->microbatch},
        pass->training ? model->config.output_dropout : 0,
        (uint32_t)model->space.stream.own.begin};
}

/* normed [T, D] = norm(x [R, D]): this rank's rows, then all. */
static void enter(Model *model, Tensor x, int norm, Tensor normed, real *scale) {
    const Stream *stream = &model->space.stream;
    gather_begin(stream->inputs);
    residual_norm(&model->space, x, gain_of(model, norm), model->config.norm_eps,
                  stream_own(stream, normed), scale);
    gather_rows(stream->inputs);
}

/* The same from the saved scale. */
static void enter_again(Model *model, Tensor x, int norm, Tensor normed, const real *scale) {
    const Stream *stream = &model->space.stream;
    gather_begin(stream->inputs);
    residual_norm_again(&model->space, x, gain_of(model, norm), scale, stream_own(stream, normed));
    gather_rows(stream->inputs);
}

/* Nobody is shown what is added alone where it isn't made: an observer has it done apart. */
static ResidualEnd end_of_block(const Model *model, Tensor x, Tensor out) {
    bool fused = model->space.fusion == FUSION_BLOCK && !model->space.observer;
    return (ResidualEnd){
        .space = &model->space, .x = x, .y = model->sum, .out = out, .fused = fused};
}

/* stream[l] -> middle, by way of attention. */
static int attention_sublayer(Model *model, int l) {
    Layer *layer = &model->layer[l];
    LayerSaved *saved = &layer->saved;
    Tensor x = model->stream[l];
    enter(model, x, layer->norm_attention, saved->normed_attention, saved->scale_attention);
    int status = attention_heads(&layer->attention, saved->normed_attention, &saved->attention);
    if (status) return status;
    ResidualEnd end = end_of_block(model, x, saved->middle);
    Partials part = residual_begin(&end, model->exchange_attention);
    attention_output(&layer->attention, &saved->attention, &part);
    status = exchange_sum(model->exchange_attention);
    if (status) return status;
    residual_end(&end);
    return 0;
}

/* middle -> preactivations and hidden. */
static int ffn_sublayer(Model *model, int l, const Pass *pass) {
    Layer *layer = &model->layer[l];
    LayerSaved *saved = &layer->saved;
    enter(model, saved->middle, layer->norm_ffn, saved->normed_ffn, saved->scale_ffn);
    return ffn_hidden(&layer->ffn, pass, saved->normed_ffn, &saved->ffn);
}

/* For tests: NaN in the first row of what the middle layer makes. */
static void strike_nan(const Model *model, int l, const Pass *pass, Phase phase, Tensor result) {
    if (l != model->config.layers / 2 || !pass->training || !result.data || !result.rows) return;
    if (!fault_take("nan", phase)) return;
    for (int64_t j = 0; j < result.cols; j++) result.data[j] = (real)NAN;
}

static Tensor first_hidden(const FfnSaved *saved) {
    Range owned = saved->hidden.owned;
    return range_size(owned) ? saved->hidden.shard[owned.begin] : (Tensor){0};
}

static void observe_attention(const Model *model, int l) {
    const LayerSaved *saved = &model->layer[l].saved;
    Observer *observer = model->space.observer;
    int64_t head = model->layer[l].attention.head_dim;
    int64_t group = head * model->layer[l].attention.group_heads;
    observe_whole(observer, "norm.attention", l, saved->normed_attention);
    observe_cut(observer, "attention.q", l, &model->groups, group, &saved->attention.q);
    observe_cut(observer, "attention.k", l, &model->groups, head, &saved->attention.k);
    observe_cut(observer, "attention.v", l, &model->groups, head, &saved->attention.v);
    observe_cut(observer, "attention.context", l, &model->groups, group, &saved->attention.o);
    observe_stream(&model->space, "attention.o", l, model->sum);
    observe_stream(&model->space, "resid.attention", l, saved->middle);
}

static int attention_forward(Model *model, int l) {
    stopwatch_begin(model->space.stopwatch, STEP_ATTENTION);
    int status = attention_sublayer(model, l);
    stopwatch_end(model->space.stopwatch);
    if (!status) observe_attention(model, l);
    return status;
}

static void observe_hidden(const Model *model, int l) {
    const Layer *layer = &model->layer[l];
    const LayerSaved *saved = &layer->saved;
    Observer *observer = model->space.observer;
    observe_whole(observer, "norm.ffn", l, saved->normed_ffn);
    if (layer->ffn.gate >= 0)
        observe_cut(observer, "ffn.gate", l, &model->channels, 1, &saved->ffn.gate);
    observe_cut(observer, "ffn.up", l, &model->channels, 1, &saved->ffn.up);
    observe_cut(observer, "ffn.act", l, &model->channels, 1, &saved->ffn.hidden);
}

static ResidualEnd end_of_ffn(const Model *model, int l, const Pass *pass) {
    const Layer *layer = &model->layer[l];
    ResidualEnd end = end_of_block(model, layer->saved.middle, model->stream[l + 1]);
    if (layer->ffn.down_bias >= 0) end.bias = gain_of(model, layer->ffn.down_bias);
    end.dropout = output_dropout(model, l, pass);
    end.fused = end.fused && !mistaken_ffn_output_on();
    return end;
}

static int ffn_forward(Model *model, int l, const Pass *pass) {
    const Layer *layer = &model->layer[l];
    int status = ffn_sublayer(model, l, pass);
    if (status) return status;
    strike_nan(model, l, pass, PHASE_FORWARD, first_hidden(&layer->saved.ffn));
    observe_hidden(model, l);
    ResidualEnd end = end_of_ffn(model, l, pass);
    Partials part = residual_begin(&end, model->exchange_ffn);
    ffn_down(&layer->ffn, &layer->saved.ffn, &part);
    status = exchange_sum(model->exchange_ffn);
    if (status) return status;
    mistaken_ffn_sum(&layer->ffn, &model->config.ffn, pass,
                     stream_own(&model->space.stream, layer->saved.normed_ffn), model->sum);
    residual_end(&end);
    observe_stream(&model->space, "ffn.down", l, model->sum);
    observe_stream(&model->space, "resid.ffn", l, model->stream[l + 1]);
    return 0;
}

int layer_forward(Model *model, int l, const Pass *pass) {
    int status = attends(model) ? attention_forward(model, l) : 0;
    stopwatch_begin(model->space.stopwatch, STEP_FFN);
    if (!status) status = ffn_forward(model, l, pass);
    stopwatch_end(model->space.stopwatch);
    return status;
}

/* What the FFN's backward reads and the mode did not keep, again: the same operations on the same
 * operands give the same bits. */
static int recompute_ffn(Model *model, int l, const Pass *pass) {
    const Layer *layer = &model->layer[l];
    const LayerSaved *saved = &layer->saved;
    Recompute mode = model->config.recompute;
    if (mode == RECOMPUTE_BLOCK) {
        stopwatch_begin(model->space.stopwatch, STEP_ATTENTION);
        int status = attends(model) ? attention_sublayer(model, l) : 0;
        stopwatch_end(model->space.stopwatch);
        return status ? status : ffn_sublayer(model, l, pass);
    }
    if (mode == RECOMPUTE_ACT || model->space.stream.cut)
        enter_again(model, saved->middle, layer->norm_ffn, saved->normed_ffn, saved->scale_ffn);
    if (mode == RECOMPUTE_ACT) ffn_activate(&layer->ffn, pass, &saved->ffn);
    return 0;
}

/* The same for attention, after the FFN's backward. */
static void recompute_attention(Model *model, int l) {
    const Layer *layer = &model->layer[l];
    const LayerSaved *saved = &layer->saved;
    if (model->config.recompute == RECOMPUTE_ACT || model->space.stream.cut)
        enter_again(model, model->stream[l], layer->norm_attention, saved->normed_attention,
                    saved->scale_attention);
}

/* model->branch [T, D] = the gradient of what the FFN adds to the stream: this rank's rows, then
 * all. */
static void enter_backward(Model *model, int l, const Pass *pass) {
    const Stream *stream = &model->space.stream;
    int bias = model->layer[l].ffn.down_bias;
    Dropout dropout = output_dropout(model, l, pass);
    Tensor branch = stream_own(stream, model->branch);
    gather_begin(stream->gradients);
    residual_add_backward(&model->space, model->gradient, &dropout, branch);
    gather_rows(stream->gradients);
    if (bias >= 0) residual_bias_backward(&model->space, branch, gain_gradient(model, bias));
}

static int ffn_sublayer_backward(Model *model, int l, const Pass *pass) {
    Layer *layer = &model->layer[l];
    LayerSaved *saved = &layer->saved;
    enter_backward(model, l, pass);
    Partials part = exchange_begin(model->exchange_ffn, model->sum);
    int status =
        ffn_backward(&layer->ffn, pass, saved->normed_ffn, model->branch, &saved->ffn, &part);
    if (!status) status = exchange_sum(model->exchange_ffn);
    if (status) return status;
    residual_norm_backward(&model->space, model->sum, saved->middle,
                           gain_of(model, layer->norm_ffn), saved->scale_ffn, model->gradient,
                           gain_gradient(model, layer->norm_ffn));
    return 0;
}

static int attention_sublayer_backward(Model *model, int l) {
    Layer *layer = &model->layer[l];
    LayerSaved *saved = &layer->saved;
    recompute_attention(model, l);
    Tensor dy = stream_whole(&model->space.stream, model->gradient, model->space.threads);
    Partials part = exchange_begin(model->exchange_attention, model->sum);
    int status = attention_backward_heads(&layer->attention, saved->normed_attention, dy,
                                          &saved->attention, &model->attention_gradient, &part);
    if (!status) status = exchange_sum(model->exchange_attention);
    if (status) return status;
    residual_norm_backward(&model->space, model->sum, model->stream[l],
                           gain_of(model, layer->norm_attention), saved->scale_attention,
                           model->gradient, gain_gradient(model, layer->norm_attention));
    return 0;
}

/* Who looks at a gain's gradient finds it as it would be if the stream weren't cut. */
static int finish_sums(Model *model) {
    return model->space.observer ? stream_finish_sums(&model->space.stream) : 0;
}

static void observe_ffn_backward(const Model *model, int l) {
    const Ffn *ffn = &model->layer[l].ffn;
    const int made[] = {ffn->down_bias,          ffn->down, ffn->gate,
                        ffn->gate_bias,          ffn->up,   ffn->up_bias,
                        model->layer[l].norm_ffn};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        observe_parameter(model->space.observer, l, &model->set, made[i]);
}

static void observe_attention_backward(const Model *model, int l) {
    const SelfAttention *attention = &model->layer[l].attention;
    const int made[] = {attention->o, attention->q, attention->k, attention->v,
                        model->layer[l].norm_attention};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        observe_parameter(model->space.observer, l, &model->set, made[i]);
}

static int attention_backward(Model *model, int l) {
    observe_stream_gradient(&model->space, "resid.attention", l, model->gradient);
    int status = attention_sublayer_backward(model, l);
    if (!status) status = finish_sums(model);
    if (!status) observe_attention_backward(model, l);
    return status;
}

int layer_backward(Model *model, int l, const Pass *pass) {
    stopwatch_begin(model->space.stopwatch, STEP_FFN);
    int status = recompute_ffn(model, l, pass);
    if (!status) status = ffn_sublayer_backward(model, l, pass);
    stopwatch_end(model->space.stopwatch);
    if (!status) status = finish_sums(model);
    if (status) return status;
    observe_ffn_backward(model, l);
    stopwatch_begin(model->space.stopwatch, STEP_ATTENTION);
    status = attends(model) ? attention_backward(model, l) : 0;
    stopwatch_end(model->space.stopwatch);
    if (status) return status;
    strike_nan(model, l, pass, PHASE_BACKWARD, model->gradient);
    observe_stream_gradient(&model->space, "layer.input", l, model->gradient);
    return 0;
}
