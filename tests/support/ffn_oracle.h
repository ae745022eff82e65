/* The naive network beside a rig: the same weights, x, dy and mask.
 *
 *     ffn_oracle_run(&oracle, &rig, training);        its y, dx and gradients
 *     ffn_rig_forward(&rig ...); ffn_rig_backward(&rig ...);
 *     double worst = ffn_oracle_compare(&oracle, &rig, &what);
 *     ffn_oracle_release(&oracle);
 */
#ifndef WEFT_TESTS_FFN_ORACLE_H
#define WEFT_TESTS_FFN_ORACLE_H

#include "support/ffn_rig.h"
#include "support/naive.h"

enum { FFN_TENSORS = 6 }; /* weights of gate, up, down, then their biases */

typedef struct {
    NaiveFfn naive;
    double *weight[FFN_TENSORS], *gradient[FFN_TENSORS]; /* NULL where the kind has none */
    double *x, *dy, *y, *dx;                             /* [T, D] */
} FfnOracle;

/* Fails when the rig has other tensors than its plan asks for. `rig` stays the context of
 * the mask. Collective over GROUP_TENSOR. */
void ffn_oracle_run(FfnOracle *oracle, FfnRig *rig, bool training);

/* The largest difference of y, dx or a gradient, each relative to its largest value, and whose it
 * is. Collective over GROUP_TENSOR. */
double ffn_oracle_compare(const FfnOracle *oracle, FfnRig *rig, const char **what);
void ffn_oracle_release(FfnOracle *oracle);

#endif
