/* Feed-forward networks: x [T, D] -> y [T, D] by way of d_ff hidden channels, cut by channel over
 * the tensor shards.
 *
 * A kind is its topology (how many projections, how they meet); the activation is named apart. A
 * new kind is one file and one row of ffn_kinds.
 *
 *   gated  y = down(mask * act(gate(x)) * up(x))    Shazeer 2020; SwiGLU is gated with silu
 *   dual   y = down(mask * act(gate(x)) * act(up(x)))   dReLU with relu (Song et al. 2024)
 *   dense  y = down(mask * act(up(x)))              Vaswani et al. 2017, eq. 2
 *
 * mask is the hidden dropout. down's bias, the output dropout and the residual come after the sum
 * over shards, in the block. */
#ifndef WEFT_NN_FFN_H
#define WEFT_NN_FFN_H

#include "comm/exchange.h"
#include "math/activation.h"
#include "math/dropout.h"
#include "nn/pass.h"
#include "param/param.h"

typedef struct {
    const char *kind; /* a row of ffn_kinds */
    Branches branches;
    int64_t d_model, d_ff;
    bool gate_bias, up_bias, down_bias;
    double hidden_dropout;
    uint64_t seed;
    double init_in, init_out; /* std of gate and up; of down */
} FfnConfig;

typedef struct FfnKind FfnKind;

typedef struct {
    const FfnKind *kind;
    FfnConfig config;
    int layer;
    ParamSet *set;
    Workspace *space;
    AxisLayout axis;    /* d_ff channels over the tensor ranks */
    int gate, up, down; /* places in the set; -1: there is none */
    int gate_bias, up_bias, down_bias;
} Ffn;

/* What forward leaves for backward, [T, d_ff] by shard: preactivations, and what down multiplies
 * (after the mask). `work` is no part of it: at FUSION_EAGER pointwise work of a kind with two
 * branches has intermediate results there. */
typedef struct {
    Sharded gate, up, hidden, work;
} FfnSaved;

struct FfnKind { /* all required */
    const char *name;
    int projections;
    const char *equation;
    const char *activated; /* which branch act is applied to, for the manifest: gate, up, both */
    bool has_gate;         /* a gate branch, that may have a bias */
    bool has_linear;       /* a branch without act: the clamps and the offset are for its kind */
    /* Adds gate, up, down ... named PREFIX.gate_proj.weight ... to the set. 0 or a negative code.
     */
    int (*declare)(Ffn *ffn, const char *prefix);
    /* Memory for the preactivations on this tensor rank. */
    void (*take)(const Ffn *ffn, Arena *arena, int rank, int64_t rows, FfnSaved *saved);
    /* hidden = act(...) of rows and columns of one shard. */
    void (*activate)(const Ffn *ffn, Range rows, Range cols, int shard, const FfnSaved *saved);
    /* dhidden (in hidden's place) -> gradients of the preactivations in their places. */
    void (*differentiate)(const Ffn *ffn, Range rows, Range cols, int shard, const FfnSaved *saved);
    /* Both of a whole shard in passes of one operation each (nn/ffn_passes.h), by all threads. */
    void (*activate_apart)(const Ffn *ffn, int shard, const FfnSaved *saved);
    void (*differentiate_apart)(const Ffn *ffn, int shard, const FfnSaved *saved);
};

extern const FfnKind *const ffn_kinds[]; /* ends with NULL */
const FfnKind *ffn_find(const char *name);

/* Whether a kind can do what the config wants. 0, or WEFT_USAGE naming the key of [ffn] that it
 * can't. */
int ffn_check(const FfnConfig *config);

/* Declares one layer's FFN. `space` learns what scratch it needs for `rows` rows. 0, or WEFT_USAGE
 * naming what is wrong. */
int ffn_declare(Ffn *ffn, ParamSet *set, Workspace *space, const FfnConfig *config,
                const AxisLayout *axis, const char *prefix, int layer);

/* Memory for preactivations and hidden, by shard; either may be NULL (then it's taken elsewhere).
 */
void ffn_take(const Ffn *ffn, Arena *arena, int rank, FfnSaved *preactivations, FfnSaved *hidden);

/* Memory for `work`, if the level of fusion wants it; one serves all layers. */
void ffn_take_work(const Ffn *ffn, Arena *arena, int rank, FfnSaved *saved);

/* x [T, D] -> saved preactivations and hidden. 0 or a negative code. */
int ffn_hidden(const Ffn *ffn, const Pass *pass, Tensor x, const FfnSaved *saved);

/* hidden again from the saved preactivations, bit for bit. */
void ffn_activate(const Ffn *ffn, const Pass *pass, const FfnSaved *saved);

/* Partial sums of y [T, D] = hidden Wd^T over this rank's shards. */
void ffn_down(const Ffn *ffn, const FfnSaved *saved, const Partials *y);

/* dy [T, D] (the gradient of y) and x as in forward: adds to weight and bias gradients (down's bias
 * excepted), leaves partial sums of dx. Consumes `saved`. 0 or a negative code. */
int ffn_backward(const Ffn *ffn, const Pass *pass, Tensor x, Tensor dy, const FfnSaved *saved,
                 const Partials *dx);

#endif
