#include "support/ffn_rig.h"

#include "base/error.h"
#include "nn/residual.h"
#include "support/support.h"
#include "support/whole.h"

#include <stdio.h>
#include <stdlib.h>

enum { STEP = 3, MICROBATCH = 2 };

static void take_all(FfnRig *rig, int64_t rows, int64_t d_model) {
    Tensor *buffer[] = {&rig->x, &rig->y, &rig->dy, &rig->dx, &rig->zero};
    for (int i = 0; i < 5; i++)
        *buffer[i] =
            tensor_view(arena_take(&rig->arena, rows * d_model, sizeof(real)), rows, d_model);
    ffn_take(&rig->ffn, &rig->arena, rig->set.tensor_rank, &rig->saved, &rig->saved);
    workspace_take(&rig->space, &rig->arena);
}

void ffn_rig_open(FfnRig *rig, Grid *grid, const FfnRigPlan *plan) {
    *rig = (FfnRig){.grid = grid, .axis = axis_layout(plan->d_ff, plan->shards, grid->tp)};
    rig->space = (Workspace){
        .threads = 1, .rows = plan->rows, .row_shards = shard_count(plan->rows, plan->shards)};
    FfnConfig config = {.kind = plan->kind,
                        .branches = {activation_find(plan->activation), 1, 0, 0, 0},
                        .d_model = plan->d_model,
                        .d_ff = plan->d_ff,
                        .gate_bias = plan->bias,
                        .up_bias = plan->bias,
                        .down_bias = plan->bias,
                        .hidden_dropout = plan->hidden_dropout,
                        .seed = plan->seed,
                        .init_in = 1,
                        .init_out = 1};
    ExchangeSpec spec = {.group = GROUP_TENSOR,
                         .axis = &rig->axis,
                         .rows = plan->rows,
                         .cols = plan->d_model,
                         .threads = 1};
    params_init(&rig->set, grid->tensor_rank, grid->tp);
    int status = ffn_declare(&rig->ffn, &rig->set, &rig->space, &config, &rig->axis, "mlp", 0);
    if (!status) status = params_allocate(&rig->set, true);
    arena_init(&rig->arena);
    take_all(rig, plan->rows, plan->d_model);
    if (!status) status = arena_allocate(&rig->arena, "activations");
    ck_assert_msg(status == 0, "%s", error_message());
    take_all(rig, plan->rows, plan->d_model);
    ck_assert_msg(exchange_open(&rig->exchange, grid, &spec) == 0, "%s", error_message());
}

void ffn_rig_close(FfnRig *rig) {
    exchange_close(rig->exchange);
    workspace_release(&rig->space);
    arena_release(&rig->arena);
    params_release(&rig->set);
    *rig = (FfnRig){0};
}

/* In (-1, 1), exact in float. */
static double value_at(uint64_t salt, uint64_t place, int64_t index) {
    uint64_t state = (salt << 48) + (place << 40) + (uint64_t)index + 1;
    for (int i = 0; i < 2; i++) state = (state ^ state >> 31) * 0xbf58476d1ce4e5b9u;
    return (double)(state >> 41) * 0x1p-22 - 1;
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
        rig->x.data[i] = (real)value_at(salt, 100, i);
        rig->dy.data[i] = (real)value_at(salt, 101, i);
    }
}

static Pass pass_of(bool training) { return (Pass){STEP, MICROBATCH, training}; }

void ffn_rig_forward(FfnRig *rig, bool training) {
    Pass pass = pass_of(training);
    ck_assert_int_eq(ffn_hidden(&rig->ffn, &pass, rig->x, &rig->saved), 0);
    Partials part = exchange_begin(rig->exchange, rig->y);
    ffn_down(&rig->ffn, &rig->saved, &part);
    ck_assert_int_eq(exchange_sum(rig->exchange), 0);
    const Param *bias = ffn_rig_param(rig, "down_proj.bias");
    residual_add(&rig->space, rig->zero, rig->y,
                 bias ? param_shard(&rig->set, bias, PARAM_VALUE, 0).data : NULL,
                 &(Dropout){.probability = 0}, rig->y);
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

double *ffn_rig_hidden(const FfnRig *rig) {
    return whole_activation(rig->grid, &rig->axis, 1, rig->saved.hidden.shard, rig->x.rows);
}
