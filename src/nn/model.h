/* The models, layer by layer. The decoder: pre-norm, Llama-shaped (Touvron et al. 2023).
 *
 *     x = embed(tokens)
 *     per layer: x += o(attention(norm(x)));  x += dropout(ffn(norm(x)))
 *     loss = cross_entropy(lm_head(norm(x)))
 *
 * The mlp, for rows of numbers: the same without attention between two linear maps.
 *
 *     x = input(inputs) + bias
 *     per layer: x += dropout(ffn(norm(x)))
 *     loss = cross_entropy or squared_error(output(norm(x)) + bias)
 *
 * Calling order:
 *     model_declare(&model, &config, tensor_rank, tp);  // parameters, sizes; `plan` stops here
 *     model_allocate(&model, &grid, training);          // memory and exchanges; collective
 *     model_train(&model, &pass, &microbatch, scale, &loss); ...
 *     model_release(&model);
 *
 * Between the tensor-parallel blocks a rank has R rows of the residual stream: all T, or its own
 * (nn/stream.h).
 *
 * One step: residual_embed or input_forward, layer_forward up, head_loss, layer_backward down,
 * residual_embed_backward or input_backward. */
#ifndef WEFT_NN_MODEL_H
#define WEFT_NN_MODEL_H

#include "comm/exchange.h"
#include "nn/ffn.h"
#include "nn/head.h"
#include "nn/input.h"
#include "nn/pass.h"
#include "nn/self_attention.h"
#include "tensor/microbatch.h"

typedef enum { MODEL_DECODER, MODEL_MLP } ModelKind;

/* An mlp reads nothing of vocab, tied and attention (but for d_model, which is the FFN's). */
typedef struct {
    ModelKind kind;
    int64_t inputs, outputs; /* of an mlp: numbers in a row, classes or numbers in a target */
    HeadLoss loss;           /* of a decoder: cross entropy */
    int64_t vocab, layers;
    int64_t context, sequences; /* T = context * sequences; an mlp's context is 1 */
    bool tied;
    double norm_eps;
    AttentionConfig attention;
    FfnConfig ffn;
    double output_dropout;
    double embed_init; /* std of embedding and lm head, or of input and output */
    uint64_t seed;
    int grid_tensor; /* logical shards */
    Reduction reduction;
    Transport transport;
    Recompute recompute;
    Fusion fusion;
    bool sequence; /* the residual stream is cut by rows over the tensor ranks */
    int threads;
} ModelConfig;

/* What backward needs of a layer. Which of it each layer has to itself depends on Recompute; the
 * rest is shared by all. */
typedef struct {
    Tensor middle;                     /* [R, D]: the residual stream between the sublayers */
    real *scale_attention, *scale_ffn; /* [R] */
    AttentionSaved attention;
    FfnSaved ffn;
    Tensor normed_attention, normed_ffn; /* [T, D]; of a cut stream both are its one buffer */
} LayerSaved;

typedef struct {
    SelfAttention attention;
    Ffn ffn;
    int norm_attention, norm_ffn; /* places in the set */
    LayerSaved saved;
} Layer;

typedef struct {
    ModelConfig config;
    Grid *grid;
    ParamSet set;
    Workspace space;
    Arena arena;
    AxisLayout vocab;            /* rows of the head: vocabulary, or an mlp's outputs */
    AxisLayout groups, channels; /* an mlp has no groups */
    AxisLayout width;            /* d_model: rows of an mlp's input */
    int embedding;               /* of a decoder: place in the set */
    Input input;                 /* of an mlp */
    Layer *layer;                /* [layers] */
    Head head;
    Tensor *stream; /* [layers + 1] of [R, D]: the input of each layer, and the last's output */
    Tensor rotary;  /* [context, head_dim] */
    Tensor sum, gradient; /* [R, D]: a sublayer's output or dx; d(stream) */
    Tensor branch;        /* [T, D]: a branch's dy; of a cut stream a buffer of that */
    AttentionSaved attention_gradient;
    Exchange *exchange_attention, *exchange_ffn, *exchange_head; /* an mlp has no attention's */
} Model;

/* Axes, parameters and scratch sizes for one tensor rank of tp. No memory but tables, no MPI. 0, or
 * WEFT_USAGE / WEFT_RUNTIME. */
int model_declare(Model *model, const ModelConfig *config, int tensor_rank, int tp);

/* Bytes of activations and scratch on this rank, after model_declare (without exchanges and
 * parameters). */
size_t model_activation_bytes(Model *model);

/* What the sum over an axis is opened with; also for plans. */
ExchangeSpec model_exchange_spec(const Model *model, const AxisLayout *axis);

/* Memory for activations, and parameters with (training) or without gradients and moments; opens
 * the exchanges. Collective over GROUP_TENSOR of `grid`; the error is agreed within GROUP_GRID. */
int model_allocate(Model *model, Grid *grid, bool training);
void model_release(Model *model); /* Collective over GROUP_TENSOR */
/* Frees what model_declare made, when there was no model_allocate. */
void model_forget(Model *model);

/* One microbatch forward and backward. *loss: sum over unmasked rows. Gradients of loss * scale are
 * added to the set's. Collective over GROUP_TENSOR. 0 or a negative code. */
int model_train(Model *model, const Pass *pass, const Microbatch *batch, double scale,
                double *loss);

/* Forward alone, dropout as the pass says. *hits: unmasked rows whose target has the largest logit
 * (under a squared error 0). Collective over GROUP_TENSOR. 0 or a negative code. */
int model_loss(Model *model, const Pass *pass, const Microbatch *batch, double *loss,
               int64_t *hits);
/* The same without dropout. */
int model_evaluate(Model *model, const Microbatch *batch, double *loss, int64_t *hits);

/* Forward of the tokens or inputs, then the logits [vocab] or outputs of one row, on all ranks.
 * Collective over GROUP_TENSOR. */
int model_logits(Model *model, const Microbatch *batch, int64_t row, double *logits);

/* Multiply-adds of one row's forward pass (products only; attention at full causal length / 2). */
typedef struct {
    double input, attention, ffn, head; /* attention and ffn: of all layers */
} ModelProducts;
ModelProducts model_products(const ModelConfig *config);

/* The same through the whole model. */
double model_forward_products(const ModelConfig *config);

#endif
