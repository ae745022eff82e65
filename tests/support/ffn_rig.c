#include "support/ffn_rig.h"

#include "base/error.h"
#include "nn/mistaken_ffn.h"
#include "nn/residual.h"
#include "support/naive.h"
#include "support/oracle.h"
#include "support/support.h"
#include "support/whole.h"

#include <math.h>
#include <stdio.h>

static Fusion fusion;

Fusion ffn_rig_fuse(Fusion level) {
    Fusion before = fusion;
    fusion = level;
    return before;
}

static void take_all(FfnRig *rig, int64_t rows, int64_t d_model) {
    Tensor *buffer[] = {&rig->x, &rig->dy, &rig->y, &rig->dx, &rig->zero};
    for (int i = 0; i < 5; i++) {
        int64_t stride = d_model + (i < 2 ? rig->plan.gap : 0);
        real *data = arena_take(&rig->arena, rows * stride, sizeof(real));
        *buffer[i] = (Tensor){data, rows, d_model, stride};
    }
    ffn_take(&rig->ffn, &rig->arena, rig->set.tensor_rank, &rig->saved, &rig->saved);
    ffn_take_work(&rig->ffn, &rig->arena, rig->set.tensor_rank, &rig->saved);
    workspace_take(&rig->space, &rig->arena);
}

FfnConfig ffn_rig_config(const FfnRigPlan *plan) {
    const FfnKind *kind = ffn_find(plan->kind);
    return (FfnConfig){.kind = plan->kind,
                       .branches = {.activation = activation_find(plan->activation),
                                    .beta = plan->beta == 0 ? 1 : plan->beta,
                                    .gate_clamp = plan->gate_clamp,
                                    .linear_clamp = plan->linear_clamp,
                                    .linear_offset = plan->linear_offset},
                       .d_model = plan->d_model,
                       .d_ff = plan->d_ff,
                       .gate_bias = plan->gate_bias || (plan->bias && kind && kind->has_gate),
                       .up_bias = plan->up_bias || plan->bias,
                       .down_bias = plan->down_bias || plan->bias,
                       .hidden_dropout = plan->hidden_dropout,
                       .seed = plan->seed,
                       .init_in = 1,
                       .init_out = 1};
}

const char *ffn_rig_name(const FfnRig *rig) {
    static char name[200];
    const FfnRigPlan *p = &rig->plan;
    snprintf(name, sizeof name,
             "%s %s, tp %d, %d rows, d_ff %d in %d shards, biases %d%d%d, dropout %g, beta %g, "
             "clamps %g %g, offset %g, gap %d, level %d",
             p->kind, p->activation, rig->grid->tp, (int)p->rows, (int)p->d_ff, p->shards,
             rig->ffn.gate_bias >= 0, rig->ffn.up_bias >= 0, rig->ffn.down_bias >= 0,
             p->hidden_dropout, p->beta, p->gate_clamp, p->linear_clamp, p->linear_offset,
             (int)p->gap, (int)rig->space.fusion);
    return name;
}

void ffn_rig_open(FfnRig *rig, Grid *grid, const FfnRigPlan *plan) {
    *rig = (FfnRig){
        .plan = *plan, .grid = grid, .axis = axis_layout(plan->d_ff, plan->shards, grid->tp)};
    int threads = plan->threads ? plan->threads : 1;
    rig->space = (Workspace){.threads = threads,
                             .fusion = fusion,
                             .rows = plan->rows,
                             .row_shards = shard_count(plan->rows, plan->shards)};
    FfnConfig config = ffn_rig_config(plan);
    ExchangeSpec spec = {.group = GROUP_TENSOR,
                         .axis = &rig->axis,
                         .rows = plan->rows,
                         .cols = plan->d_model,
                         .threads = threads};
    params_init(&rig->set, grid->tensor_rank, grid->tp);
    int status = ffn_declare(&rig->ffn, &rig->set, &rig->space, &config, &rig->axis, "mlp", 0);
    if (!status) status = params_allocate(&rig->set, true);
    arena_init(&rig->arena);
    take_all(rig, plan->rows, plan->d_model);
    if (!status) status = arena_allocate(&rig->arena, "activations");
    ck_assert_msg(status == 0, "%s", error_message());
    take_all(rig, plan->rows, plan->d_model);
    const Tensor gaps[] = {rig->x, rig->dy};
    for (int64_t i = 0; i < 2 * plan->rows * plan->gap; i++)
        tensor_row(gaps[i % 2], i / 2 / plan->gap)[plan->d_model + i / 2 % plan->gap] = (real)NAN;
    ck_assert_msg(exchange_open(&rig->exchange, grid, &spec) == 0, "%s", error_message());
}

void ffn_rig_close(FfnRig *rig) {
    exchange_close(rig->exchange);
    workspace_release(&rig->space);
    arena_release(&rig->arena);
    params_release(&rig->set);
    *rig = (FfnRig){0};
}

static double value_at(uint64_t salt, uint64_t place, int64_t index) {
    uint64_t state = (salt << 48) + (place << 40) + (uint64_t)index + 1;
    for (int i = 0; i < 2; i++) state = (state ^ state >> 31) * 0xbf58476d1ce4e5b9u;
    return (double)(state >> 57) * 0x1p-6 - 1;
}

void ffn_rig_fill(FfnRig *rig, uint64_t salt) {
    for (int p = 0; p < rig->set.count; p++) {
        const Param *param = &rig->set.param[p];
        for (int64_t i = 0; i < param->rows * param->cols; i++) {
            real *element =
                whole_element(&rig->set, param, PARAM_VALUE, i / param->cols, i % param->cols);
            if (element) *element = (real)value_at(salt, (uint64_t)p, i);
        }
    }
    for (int64_t i = 0; i < rig->x.rows * rig->x.cols; i++) {
        int64_t row = i / rig->x.cols, col = i % rig->x.cols;
        tensor_row(rig->x, row)[col] = (real)value_at(salt, 100, i);
        tensor_row(rig->dy, row)[col] = (real)value_at(salt, 101, i);
    }
}

static Pass pass_of(bool training) { return (Pass){ORACLE_STEP, FFN_RIG_MICROBATCH, training}; }

void ffn_rig_forward(FfnRig *rig, bool training) {
    Pass pass = pass_of(training);
    ck_assert_int_eq(ffn_hidden(&rig->ffn, &pass, rig->x, &rig->saved), 0);
    const Param *bias = ffn_rig_param(rig, "down_proj.bias");
    bool fused = rig->space.fusion == FUSION_BLOCK && !mistaken_ffn_output_on();
    ResidualEnd end = {.space = &rig->space,
                       .x = rig->zero,
                       .y = rig->y,
                       .out = rig->y,
                       .bias = bias ? param_shard(&rig->set, bias, PARAM_VALUE, 0).data : NULL,
                       .fused = fused};
    Partials part = residual_begin(&end, rig->exchange);
    ffn_down(&rig->ffn, &rig->saved, &part);
    ck_assert_int_eq(exchange_sum(rig->exchange), 0);
    residual_end(&end);
}

static void spoil(const Sharded *sharded) {
    for (int s = (int)sharded->owned.begin; s < sharded->owned.end; s++) {
        Tensor shard = sharded->shard[s];
        for (int64_t i = 0; i < shard.rows * shard.cols; i++) shard.data[i] = (real)NAN;
    }
}

void ffn_rig_recompute(FfnRig *rig, bool training, Recompute mode) {
    Pass pass = pass_of(training);
    if (mode == RECOMPUTE_NONE) return;
    spoil(&rig->saved.hidden);
    if (mode == RECOMPUTE_ACT) {
        ffn_activate(&rig->ffn, &pass, &rig->saved);
        return;
    }
    spoil(&rig->saved.gate);
    spoil(&rig->saved.up);
    ck_assert_int_eq(ffn_hidden(&rig->ffn, &pass, rig->x, &rig->saved), 0);
}

void ffn_rig_backward(FfnRig *rig, bool training) {
    Pass pass = pass_of(training);
    const Param *bias = ffn_rig_param(rig, "down_proj.bias");
    if (bias)
        workspace_add_row_sum(&rig->space, rig->dy,
                              param_shard(&rig->set, bias, PARAM_GRADIENT, 0).data);
    Partials part = exchange_begin(rig->exchange, rig->dx);
    ck_assert_int_eq(ffn_backward(&rig->ffn, &pass, rig->x, rig->dy, &rig->saved, &part), 0);
    ck_assert_int_eq(exchange_sum(rig->exchange), 0);
}

const Param *ffn_rig_param(const FfnRig *rig, const char *name) {
    char full[PARAM_NAME];
    snprintf(full, sizeof full, "mlp.%s", name);
    int place = params_find(&rig->set, full);
    return place < 0 ? NULL : &rig->set.param[place];
}

double *ffn_rig_rows(Tensor x) {
    double *rows = naive_array(x.rows * x.cols);
    for (int64_t i = 0; i < x.rows * x.cols; i++)
        rows[i] = (double)tensor_row(x, i / x.cols)[i % x.cols];
    return rows;
}

double *ffn_rig_hidden(const FfnRig *rig) {
    return whole_activation(rig->grid, &rig->axis, 1, rig->saved.hidden.shard, rig->x.rows);
}
