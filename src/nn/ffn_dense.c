/* y = down(mask * act(up(x))): two matrices (Vaswani et al. 2017, eq. 2). */
#include "nn/ffn_kinds.h"
#include "nn/ffn_passes.h"

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

static void dense_activate(const Ffn *ffn, Range rows, Range cols, int shard,
                           const FfnSaved *saved) {
    Tensor up = saved->up.shard[shard], hidden = saved->hidden.shard[shard];
    for (int64_t t = rows.begin; t < rows.end; t++)
        activation_plain(&ffn->config.branches, range_size(cols), tensor_row(up, t) + cols.begin,
                         tensor_row(hidden, t) + cols.begin);
}

static void dense_differentiate(const Ffn *ffn, Range rows, Range cols, int shard,
                                const FfnSaved *saved) {
    for (int64_t t = rows.begin; t < rows.end; t++) {
        real *up = tensor_row(saved->up.shard[shard], t) + cols.begin;
        const real *dhidden = tensor_row(saved->hidden.shard[shard], t) + cols.begin;
        activation_plain_backward(&ffn->config.branches, range_size(cols), up, dhidden, up);
    }
}

static void dense_activate_apart(const Ffn *ffn, int shard, const FfnSaved *saved) {
    pass_act(ffn, saved->up.shard[shard], saved->hidden.shard[shard]);
}

static void dense_differentiate_apart(const Ffn *ffn, int shard, const FfnSaved *saved) {
    Tensor up = saved->up.shard[shard];
    pass_slope(ffn, saved->hidden.shard[shard], up, up);
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
    .activate = dense_activate,
    .differentiate = dense_differentiate,
    .activate_apart = dense_activate_apart,
    .differentiate_apart = dense_differentiate_apart,
};
