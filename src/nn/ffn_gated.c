/* y = down(mask * act(gate(x)) * up(x)): the activation is on the gate branch (Shazeer 2020, eq. 5
 * and 6). */
#include "nn/ffn_kinds.h"
#include "nn/linear.h"

static int gated_declare(Ffn *ffn, const char *prefix) {
    int status = ffn_declare_column(ffn, prefix, "gate", INIT_KEY_GATE, ffn->config.gate_bias,
                                    &ffn->gate, &ffn->gate_bias);
    if (!status)
        status = ffn_declare_column(ffn, prefix, "up", INIT_KEY_UP, ffn->config.up_bias, &ffn->up,
                                    &ffn->up_bias);
    if (!status)
        status = ffn_declare_row(ffn, prefix, "down", INIT_KEY_DOWN, ffn->config.down_bias,
                                 &ffn->down, &ffn->down_bias);
    return status;
}

static void gated_take(const Ffn *ffn, Arena *arena, int rank, int64_t rows, FfnSaved *saved) {
    sharded_take(&saved->gate, arena, &ffn->axis, rank, 1, rows);
    sharded_take(&saved->up, arena, &ffn->axis, rank, 1, rows);
}

static int gated_project(const Ffn *ffn, Tensor x, const FfnSaved *saved) {
    GemmList *list = &ffn->space->products;
    const Param *param = ffn->set->param;
    int status = linear_column_forward(list, ffn->set, &param[ffn->gate], x, &saved->gate);
    if (!status) status = linear_column_forward(list, ffn->set, &param[ffn->up], x, &saved->up);
    return status;
}

static void gated_activate(const Ffn *ffn, Range rows, int shard, const FfnSaved *saved) {
    Tensor gate = saved->gate.shard[shard], up = saved->up.shard[shard];
    activation_gated(&ffn->config.branches, range_size(rows) * gate.cols,
                     tensor_row(gate, rows.begin), tensor_row(up, rows.begin),
                     tensor_row(saved->hidden.shard[shard], rows.begin));
}

static void gated_differentiate(const Ffn *ffn, Range rows, int shard, const FfnSaved *saved) {
    real *gate = tensor_row(saved->gate.shard[shard], rows.begin);
    real *up = tensor_row(saved->up.shard[shard], rows.begin);
    const real *dhidden = tensor_row(saved->hidden.shard[shard], rows.begin);
    activation_gated_backward(&ffn->config.branches,
                              range_size(rows) * saved->gate.shard[shard].cols, gate, up, dhidden,
                              gate, up);
}

const FfnKind ffn_gated = {
    .name = "gated",
    .projections = 3,
    .equation = "down(act(gate(x)) * up(x))",
    .activated = "gate",
    .declare = gated_declare,
    .take = gated_take,
    .project = gated_project,
    .activate = gated_activate,
    .differentiate = gated_differentiate,
};
