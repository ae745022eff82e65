/* y = down(mask * act(up(x))): two matrices (Vaswani et al. 2017, eq. 2). */
#include "nn/ffn_kinds.h"
#include "nn/linear.h"

static int dense_declare(Ffn *ffn, const char *prefix) {
    int status = ffn_declare_column(ffn, prefix, "up", INIT_KEY_UP, ffn->config.up_bias, &ffn->up,
                                    &ffn->up_bias);
    if (!status)
        status = ffn_declare_row(ffn, prefix, "down", INIT_KEY_DOWN, ffn->config.down_bias,
                                 &ffn->down, &ffn->down_bias);
    return status;
}

static void dense_take(const Ffn *ffn, Arena *arena, int rank, int64_t rows, FfnSaved *saved) {
    sharded_take(&saved->up, arena, &ffn->axis, rank, 1, rows);
}

static int dense_project(const Ffn *ffn, Tensor x, const FfnSaved *saved) {
    return linear_column_forward(&ffn->space->products, ffn->set, &ffn->set->param[ffn->up], x,
                                 &saved->up);
}

static void dense_activate(const Ffn *ffn, Range rows, int shard, const FfnSaved *saved) {
    Tensor up = saved->up.shard[shard];
    activation_plain(&ffn->config.branches, range_size(rows) * up.cols, tensor_row(up, rows.begin),
                     tensor_row(saved->hidden.shard[shard], rows.begin));
}

static void dense_differentiate(const Ffn *ffn, Range rows, int shard, const FfnSaved *saved) {
    real *up = tensor_row(saved->up.shard[shard], rows.begin);
    activation_plain_backward(&ffn->config.branches, range_size(rows) * saved->up.shard[shard].cols,
                              up, tensor_row(saved->hidden.shard[shard], rows.begin), up);
}

const FfnKind ffn_dense = {
    .name = "dense",
    .projections = 2,
    .equation = "down(act(up(x)))",
    .activated = "up",
    .has_gate = false,
    .has_linear = false,
    .declare = dense_declare,
    .take = dense_take,
    .project = dense_project,
    .activate = dense_activate,
    .differentiate = dense_differentiate,
};
