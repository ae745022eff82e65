/* y = down(mask * act(gate(x)) * up(x)): the activation is on the gate branch (Shazeer 2020, eq. 5
 * and 6). */
#include "nn/ffn_kinds.h"

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
    .has_gate = true,
    .has_linear = true,
    .declare = ffn_pair_declare,
    .take = ffn_pair_take,
    .project = ffn_pair_project,
    .activate = gated_activate,
    .differentiate = gated_differentiate,
};
