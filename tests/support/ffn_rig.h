/* One feed-forward network alone, with everything that a layer puts around it: memory, the sum over
 * shards, down's bias. */
#ifndef WEFT_TESTS_FFN_RIG_H
#define WEFT_TESTS_FFN_RIG_H

#include "nn/ffn.h"

typedef struct {
    const char *kind, *activation;
    int64_t rows, d_model, d_ff;
    bool bias;
    double hidden_dropout;
    int shards; /* logical */
    uint64_t seed;
} FfnRigPlan;

typedef struct {
    Grid *grid;
    ParamSet set;
    Workspace space;
    Arena arena;
    AxisLayout axis;
    Ffn ffn;
    FfnSaved saved;
    Exchange *exchange;
    Tensor x, y, dy, dx; /* [T, D], the same on all ranks */
    Tensor zero;         /* the residual stream */
} FfnRig;

/* Values and gradients are 0; tensors are named "gate_proj.weight" and so on, after "mlp.".
 * gemm_setup() comes first. Collective over GROUP_GRID. A function that fails ends the test. */
void ffn_rig_open(FfnRig *rig, Grid *grid, const FfnRigPlan *plan);
void ffn_rig_close(FfnRig *rig); /* Collective over GROUP_TENSOR */

/* Values of all tensors and of x and dy, from a fixed sequence in (-1, 1): `salt` picks another. */
void ffn_rig_fill(FfnRig *rig, uint64_t salt);

/* x -> y. Collective over GROUP_TENSOR. */
void ffn_rig_forward(FfnRig *rig, bool training);
/* dy -> dx, after a forward; weight gradients are added to. Collective over GROUP_TENSOR. */
void ffn_rig_backward(FfnRig *rig, bool training);

/* The tensor "gate_proj.weight", NULL when this kind has none. */
const Param *ffn_rig_param(const FfnRig *rig, const char *name);

/* hidden [T, d_ff], whole; to be freed. Collective over GROUP_TENSOR. */
double *ffn_rig_hidden(const FfnRig *rig);

#endif
