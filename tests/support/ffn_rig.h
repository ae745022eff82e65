/* One feed-forward network alone, with everything that a layer puts around it: memory, the sum over
 * shards, down's bias. */
#ifndef WEFT_TESTS_FFN_RIG_H
#define WEFT_TESTS_FFN_RIG_H

#include "nn/ffn.h"

/* Where the passes of a rig are; its masks are those of oracle_mask when plan.seed is ORACLE_SEED.
 */
enum { FFN_RIG_MICROBATCH = 2 };

/* Zeros are the plain form. */
typedef struct {
    const char *kind, *activation;
    int64_t rows, d_model, d_ff;
    bool bias; /* on every projection there is, or on single ones: */
    bool gate_bias, up_bias, down_bias;
    double hidden_dropout;
    double beta; /* 0: 1 */
    double gate_clamp, linear_clamp, linear_offset;
    int shards;  /* logical */
    int threads; /* 0: 1 */
    int64_t gap; /* between the rows of x and of dy */
    uint64_t seed;
} FfnRigPlan;

typedef struct {
    FfnRigPlan plan;
    Grid *grid;
    ParamSet set;
    Workspace space;
    Arena arena;
    AxisLayout axis;
    Ffn ffn;
    FfnSaved saved;
    Exchange *exchange;
    Tensor x, y, dy, dx; /* [T, D], the same on all ranks; gaps are NaN */
    Tensor zero;         /* the residual stream */
} FfnRig;

/* The level of fusion of rigs that are opened from now on, at first FUSION_EAGER; returns the one
 * before. */
Fusion ffn_rig_fuse(Fusion level);

FfnConfig ffn_rig_config(const FfnRigPlan *plan);

/* "gated silu, tp 2": for messages; overwritten by the next call. */
const char *ffn_rig_name(const FfnRig *rig);

/* Values and gradients are 0; tensors are named "gate_proj.weight" and so on, after "mlp.".
 * gemm_setup() comes first. Collective over GROUP_GRID. A function that fails ends the test. */
void ffn_rig_open(FfnRig *rig, Grid *grid, const FfnRigPlan *plan);
void ffn_rig_close(FfnRig *rig); /* Collective over GROUP_TENSOR */

/* Values of all tensors and of x and dy, from a fixed sequence in [-1, 1): `salt` picks another.
 * They have 7 bits, so that preactivations are exact in float: kinks and limits fall alike on the
 * oracle's side. */
void ffn_rig_fill(FfnRig *rig, uint64_t salt);

/* x -> y. Collective over GROUP_TENSOR. */
void ffn_rig_forward(FfnRig *rig, bool training);
/* What a recompute mode does between the two: spoils what it does not keep and makes it again. */
void ffn_rig_recompute(FfnRig *rig, bool training, Recompute mode);
/* dy -> dx, after a forward; weight gradients are added to. Collective over GROUP_TENSOR. */
void ffn_rig_backward(FfnRig *rig, bool training);

/* The tensor "gate_proj.weight", NULL when this kind has none. */
const Param *ffn_rig_param(const FfnRig *rig, const char *name);

/* A [T, D] tensor without gaps; to be freed. */
double *ffn_rig_rows(Tensor x);

/* hidden [T, d_ff], whole; to be freed. Collective over GROUP_TENSOR. */
double *ffn_rig_hidden(const FfnRig *rig);

#endif
