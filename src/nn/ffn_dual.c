/* y = down(mask * act(gate(x)) * act(up(x))): the activation is on both branches, dReLU with relu
 * (Song et al. 2024, Turbo Sparse). */
#include "nn/ffn_kinds.h"

static void dual_activate(const Ffn *ffn, Range rows, int shard, const FfnSaved *saved) {
    ffn_pair_activate(ffn, rows, shard, saved, activation_dual);
}

static void dual_differentiate(const Ffn *ffn, Range rows, int shard, const FfnSaved *saved) {
    ffn_pair_differentiate(ffn, rows, shard, saved, activation_dual_backward);
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
