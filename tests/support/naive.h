/* A decoder written down as plain loops in double, unsharded: the oracle that weft's own code is
 * held against. It shares nothing with src/, so that one mistake cannot be in both.
 *
 *     NaiveModel *model = naive_open(&config);               all weights 0
 *     copy into naive_weight(model, "model.layers.0.mlp.up_proj.weight") and so on
 *     double loss = naive_forward(model, tokens, targets, divisor);
 *     naive_backward(model);                                  adds to every naive_gradient(...)
 *     naive_close(model);
 *
 * T = sequences * context rows, D = d_model, F = d_ff, V = vocab, H = heads, K = kv_heads,
 * hd = D / H. Matrices are row-major and stored as nn.Linear does, [out, in]; tensors have their
 * Hugging Face names. Functions that return gradients ADD to what is there, and a gradient that is
 * NULL is left out. Impossible requests (no memory, unknown activation) end the program. */
#ifndef WEFT_TESTS_NAIVE_H
#define WEFT_TESTS_NAIVE_H

#include "support/naive_tensors.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- Dropout: what an element is multiplied with, 0 or 1/(1-p). ----
 * site says which of the two masks, row is in [0, T), channel in [0, F) or [0, D). */
enum { NAIVE_HIDDEN, NAIVE_OUTPUT };
typedef double (*NaiveMask)(void *context, int site, int layer, int64_t row, int64_t channel);

/* ---- What an FFN does between its projections and the product; zeros: the plain form ----
 *
 *     gated   act(min(gate, gate_clamp)) * (clamp(up, +-linear_clamp) + linear_offset)
 *     dual    act(gate) * act(up)
 *
 * A clamp of 0 is none; a beta of 0 is 1. */
typedef struct {
    bool dual;
    double beta; /* of silu */
    double gate_clamp, linear_clamp, linear_offset;
} NaiveBranches;

/* ---- The model ---- */

typedef struct {
    int64_t vocab, d_model, layers, heads, kv_heads, d_ff;
    int64_t sequences, context;
    bool gated, tied; /* gated: there is a gate (dual has one too) */
    bool bias;        /* on gate, up and down, or on single ones: */
    bool gate_bias, up_bias, down_bias;
    const char
        *activation; /* silu, gelu (erf form), gelu_tanh, relu, quick_gelu, sigmoid, identity */
    NaiveBranches branches;
    double rms_eps, rope_theta;
    NaiveMask mask; /* NULL: no dropout */
    void *mask_context;
} NaiveConfig;

typedef struct NaiveModel NaiveModel;

NaiveModel *naive_open(const NaiveConfig *config);
void naive_close(NaiveModel *model);

/* All tensors of the model. */
const NaiveTensors *naive_tensors(const NaiveModel *model);

/* Tensor number `index`, counted from 0: its name and shape (a vector has one column). Returns
 * false beyond the last one. */
bool naive_tensor(const NaiveModel *model, int index, const char **name, int64_t *rows,
                  int64_t *columns);

/* The values or gradients [rows, columns] of a tensor; NULL when the model has no such name. */
double *naive_weight(const NaiveModel *model, const char *name);
double *naive_gradient(const NaiveModel *model, const char *name);

/* tokens [T], targets [T] (negative: masked). Returns the sum of the unmasked rows' cross-entropy,
 * divided by divisor. */
double naive_forward(NaiveModel *model, const int32_t *tokens, const int32_t *targets,
                     double divisor);

/* [T, V], of the last forward. */
const double *naive_logits(const NaiveModel *model);

/* Adds the gradients of the last forward's loss; zero_gradients starts a new sum. */
void naive_backward(NaiveModel *model);
void naive_zero_gradients(NaiveModel *model);

/* [T, D]: the gradient of the embedding's output, of the last backward alone. */
const double *naive_embedding_gradient(const NaiveModel *model);

/* ---- Feed-forward: down(act(gate(x)) * up(x)), or down(act(up(x))) ---- */

typedef struct {
    int64_t rows, d_model, d_ff; /* T, D, F */
    bool gated;                  /* there is a gate (dual has one too) */
    const char *activation;
    NaiveBranches branches;
    const double *gate, *up, *down;                /* [F, D], [F, D], [D, F]; dense has no gate */
    const double *gate_bias, *up_bias, *down_bias; /* [F], [F], [D], or NULL */
    NaiveMask mask;                                /* on act * up, and after down's bias */
    void *mask_context;
    int layer; /* what the mask is told */
} NaiveFfn;

typedef struct {
    double *gate, *up, *down, *gate_bias, *up_bias, *down_bias;
} NaiveFfnGradients;

void naive_ffn(const NaiveFfn *ffn, const double *x, double *y); /* x, y [T, D] */
void naive_ffn_backward(const NaiveFfn *ffn, const double *x, const double *dy, double *dx,
                        const NaiveFfnGradients *gradients);

/* ---- Attention ---- */

typedef struct {
    int64_t sequences, context, heads, kv_heads, head_dim;
} NaiveHeads;

/* Rotary positions in x [T, heads * head_dim], in place: the pair (i, i + head_dim/2) of every head
 * turns by (row % context) * theta^(-2i/head_dim); direction -1 turns back (and is the gradient).
 */
void naive_rotate(int64_t rows, int64_t context, int64_t heads, int64_t head_dim, double theta,
                  int direction, double *x);

/* Causal, grouped-query: head h reads kv head h / (H/K). q, o [T, H*hd], k, v [T, K*hd], all of
 * them rotated already where they should be. */
void naive_causal_attention(const NaiveHeads *heads, const double *q, const double *k,
                            const double *v, double *o);
void naive_causal_attention_backward(const NaiveHeads *heads, const double *q, const double *k,
                                     const double *v, const double *d_o, double *dq, double *dk,
                                     double *dv);

/* The sublayer: projections, rotation, attention, output projection. */
typedef struct {
    NaiveHeads heads;
    int64_t d_model;
    double rope_theta;
    const double *q, *k, *v, *o; /* [H*hd, D], [K*hd, D], [K*hd, D], [D, H*hd] */
} NaiveAttention;

typedef struct {
    double *q, *k, *v, *o;
} NaiveAttentionGradients;

void naive_attention(const NaiveAttention *attention, const double *x, double *y); /* [T, D] */
void naive_attention_backward(const NaiveAttention *attention, const double *x, const double *dy,
                              double *dx, const NaiveAttentionGradients *gradients);

/* ---- Pieces ---- */

/* c [m, n] = op(a) op(b), where op(a) is [m, k] and op(b) [k, n]; a transposed one is stored the
 * other way round. */
void naive_matmul(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                  const double *a, const double *b, double *c);

/* y [rows, out] = x [rows, in] w^T + bias; w [out, in], bias [out] or NULL. */
void naive_linear(int64_t rows, int64_t out, int64_t in, const double *x, const double *w,
                  const double *bias, double *y);
void naive_linear_backward(int64_t rows, int64_t out, int64_t in, const double *x, const double *w,
                           const double *dy, double *dx, double *dw, double *dbias);

/* y [rows, n] = x / sqrt(mean(x^2) + eps) * gain. */
void naive_rms_norm(int64_t rows, int64_t n, const double *x, const double *gain, double eps,
                    double *y);
void naive_rms_norm_backward(int64_t rows, int64_t n, const double *x, const double *gain,
                             double eps, const double *dy, double *dx, double *dgain);

/* Infinities give the limit; NaN gives NaN. beta is for silu, 1 or 0 otherwise. */
double naive_activation(const char *name, double beta, double z);
double naive_activation_slope(const char *name, double beta, double z);

/* Sum over rows with target >= 0 of -log softmax(logits [rows, vocab])[target]; dlogits may be
 * NULL and otherwise receives (not adds) that sum's gradient times scale. */
double naive_cross_entropy(int64_t rows, int64_t vocab, const double *logits,
                           const int32_t *targets, double scale, double *dlogits);

/* count zeros, to be freed. */
double *naive_array(int64_t count);

#endif
