#include "base/mistakes.h"

#include <stddef.h>

/* tests/failure-lab reads the rows: one a line. */
const Mistake mistakes[] = {
    /* axis and shape */
    {"ffn-along-sequence", "the FFN runs along the sequence axis"},
    {"input-as-bds", "the FFN takes its input as [B, D, S]"},
    {"down-wrong-width", "the second projection has the wrong width"},
    {"unequal-widths", "gate and up may have unequal widths in a file"},
    {"transposed-storage", "a tensor that is stored transposed is accepted"},
    {"d-ff-recomputed", "the loader computes d_ff from its rule instead of reading it"},
    {"residual-inside", "the residual is added inside the FFN as well as outside"},

    /* activation and dropout */
    {"activation-after-down", "the activation comes after the second projection"},
    {"no-activation", "there is no activation"},
    {"another-activation", "a resume takes another activation than the checkpoint's"},
    {"erf-for-tanh", "the erf form where the tanh form of GELU is meant"},
    {"tanh-for-erf", "the tanh form where the erf form of GELU is meant"},
    {"exact-backward", "the exact GELU's derivative behind the approximate forward"},
    {"hidden-mask-after-down", "hidden dropout is moved behind down"},
    {"shared-mask", "one mask is shared between the two dropout sites"},
    {"dropout-in-eval", "dropout stays on in evaluation"},

    /* gated */
    {"up-ignored", "two matrices with silu: up is ignored"},
    {"add-for-multiply", "the branches are added instead of multiplied"},
    {"sigmoid-on-up", "a sigmoid on the up branch"},
    {"activation-on-up", "the activation is on up"},
    {"activation-on-product", "the activation is on the product"},
    {"gate-up-swapped-on-load", "gate and up are swapped on load"},
    {"gate-up-init-keys", "gate and up exchange their init keys"},
    {"gate-up-names", "gate and up exchange their names"},
    {"bias-dropped", "the bias of up is dropped"},
    {"bias-added-p-times", "the bias of down is added on every tensor rank"},
    {"bias-zero-filled", "a bias that the checkpoint lacks is filled with zeros"},
    {"width-rounded-down", "the width is rounded down to its multiple"},
    {"multiplier-ignored", "the width's multiplier is ignored"},
    {"equal-width-untold", "dense and gated at equal d_ff are compared without a warning"},

    /* training and runtime */
    {"up-constant", "up is treated as a constant in backward"},
    {"down-ignores-seed", "the last projection is drawn alike under every seed"},
    {"product-alone-saved", "only the product is saved for backward"},
    {"gate-cut-differently", "gate and up are cut differently"},
    {"up-gate-as-gate-up", "packed [up; gate] is split as [gate; up]"},
    {"halves-to-ranks", "two ranks are given contiguous halves of [gate; up]"},
    {"replicas-counted", "the gradient of a replicated tensor is counted p times"},
    {"gain-not-reduced", "the gradient of a norm gain is not reduced"},
    {"gain-own-rows", "a norm gain's gradient is summed over a rank's own rows alone"},
    {"rows-not-gathered", "a block reads nothing of one rank's rows"},
    {"rank-mask", "masks are keyed by the rank"},
    {"mask-redrawn", "recomputation draws another mask"},
    {"lose-moments", "a resume loses the moments"},
    {"lose-step", "a resume loses the step count"},
    {"restart-rate", "a resume restarts the learning rate"},
    {"mask-of-first-tile", "every tile of the hidden values takes the mask of its shard's first"},
    {"bias-not-in-tile", "a fused end of a block leaves out down's bias"},
    {"vocab-padding", "padding rows of the vocabulary take part in the softmax"},
    {"init-by-shard", "the std of initial values is scaled by the shard"},
    {"step-nonfinite", "a non-finite gradient is stepped anyway"},

    /* release */
    {"no-manifest", "a checkpoint without a manifest is accepted"},
    {"manifest-activation", "a manifest that names another activation is accepted"},
    {"conversion-overwrites", "a conversion overwrites its source"},
    {NULL, NULL},
};
