/* Causal self-attention with grouped kv heads and rotary positions, cut by kv head group over the
 * tensor shards: a group is one key/value head and the query heads that share it (Ainslie et al.
 * 2023). q, k, v are column-parallel, o is row-parallel. No biases, no attention dropout. */
#ifndef WEFT_NN_SELF_ATTENTION_H
#define WEFT_NN_SELF_ATTENTION_H

#include "comm/exchange.h"
#include "nn/pass.h"
#include "param/param.h"

typedef struct {
    int64_t d_model, heads, kv_heads, context;
    double rope_theta;
    double init_in, init_out; /* std of q, k, v; of o */
} AttentionConfig;

typedef struct {
    AttentionConfig config;
    ParamSet *set;
    Workspace *space;
    AxisLayout axis; /* kv head groups over the tensor ranks */
    int64_t head_dim;
    int group_heads; /* query heads in a group */
    Tensor rotary;   /* [context, head_dim], shared by all layers */
    int q, k, v, o;  /* places in the set */
} SelfAttention;

/* By shard: q and o [T, query heads * head_dim], k and v [T, kv heads * head_dim], lse [sequences *
 * query heads, context]. The same shape (without lse) holds the gradients. */
typedef struct {
    Sharded q, k, v, o, lse;
} AttentionSaved;

/* Adds PREFIX.q_proj.weight ... to the set. 0 or a negative code. `rotary` is set by the caller
 * once there is memory. */
int attention_declare(SelfAttention *attention, ParamSet *set, Workspace *space,
                      const AttentionConfig *config, const AxisLayout *axis, const char *prefix,
                      int layer);

void attention_take(const SelfAttention *attention, Arena *arena, int rank, bool lse,
                    AttentionSaved *saved);

/* x [T, D] -> saved q, k (rotated), v, o, lse. 0 or a negative code. */
int attention_heads(const SelfAttention *attention, Tensor x, const AttentionSaved *saved);

/* Partial sums of y [T, D] = o Wo^T over this rank's shards. */
void attention_output(const SelfAttention *attention, const AttentionSaved *saved,
                      const Partials *y);

/* dy [T, D] (the gradient of y) and x as in forward: adds to the weight gradients, leaves partial
 * sums of dx. `gradient` is scratch of the saved shape. 0 or a negative code. */
int attention_backward_heads(const SelfAttention *attention, Tensor x, Tensor dy,
                             const AttentionSaved *saved, const AttentionSaved *gradient,
                             const Partials *dx);

#endif
