/* y = down(mask * act(gate(x)) * act(up(x))): the activation is on both branches, dReLU with relu
 * (Song et al. 2024, Turbo Sparse). */
#include "nn/ffn_kinds.h"

static void dual_activate(const Ffn *ffn, Range rows, int shard, const FfnSaved *saved) {
    Tensor gate = saved->gate.shard[shard], up = saved->up.shard[shard];
    activation_dual(&ffn->config.branches, range_size(rows) * gate.cols,
                    tensor_row(gate, rows.begin), tensor_row(up, rows.begin),
                    tensor_row(saved->hidden.shard[shard], rows.begin));
}

static void dual_differentiate(const Ffn *ffn, Range rows, int shard, const FfnSaved *saved) {
    real *gate = tensor_row(saved->gate.shard[shard], rows.begin);
    real *up = tensor_row(saved->up.shard[shard], rows.begin);
    const real *dhidden = tensor_row(saved->hidden.shard[shard], rows.begin);
    activation_dual_backward(&ffn->config.branches,
                             range_size(rows) * saved->gate.shard[shard].cols, gate, up, dhidden,
                             gate, up);
}

const FfnKind ffn_dual = {
    .name = "dual",
    .projections = 3,
    .equation = "down(act(gate(x)) * act(up(x)))",
    .activated = "both",
    .has_gate = true,
    .has_linear = false,
    .declare = ffn_pair_declare,
    .take = ffn_pair_take,
    .project = ffn_pair_project,
    .activate = dual_activate,
    .differentiate = dual_differentiate,
};
