/* y = down(mask * act(gate(x)) * up(x)): the activation is on the gate branch (Shazeer 2020, eq. 5
 * and 6). */
#include "nn/ffn_kinds.h"

static void gated_activate(const Ffn *ffn, Range rows, int shard, const FfnSaved *saved) {
    ffn_pair_activate(ffn, rows, shard, saved, activation_gated);
}

static void gated_differentiate(const Ffn *ffn, Range rows, int shard, const FfnSaved *saved) {
    ffn_pair_differentiate(ffn, rows, shard, saved, activation_gated_backward);
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
