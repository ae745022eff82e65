/* What the conformance programs of feed-forward networks iterate: layouts, and every row of
 * ffn_kinds with every row of activations. */
#ifndef WEFT_TESTS_FFN_SUITE_H
#define WEFT_TESTS_FFN_SUITE_H

#include "support/ffn_rig.h"

enum { MOST_TP = 3 }; /* the programs run on 3 ranks */

/* body on a grid of tp = 1, 2 and 3 ranks, with rigs of each level of fusion (in double precision
 * of the first and the last); ranks that are left over do nothing. */
typedef void (*OnLayout)(Grid *grid);
void on_layouts(OnLayout body);

/* body with each kind and activation, the rest as in `base` (biases and clamps only where the kind
 * has the branch, beta where the activation has one). */
typedef void (*OnKind)(Grid *grid, const FfnRigPlan *plan);
void on_kinds_with(const FfnRigPlan *base, Grid *grid, OnKind body);

/* With biases, dropout and uneven shards: 45 channels over 8. */
extern const FfnRigPlan suite_plan;
/* With beta, both clamps and an offset as well. */
extern const FfnRigPlan suite_bounded_plan;
void on_kinds(Grid *grid, OnKind body); /* with suite_plan */

/* Leaves out of a plan what its kind or activation does not have. */
FfnRigPlan suite_fit(FfnRigPlan plan);

#endif
