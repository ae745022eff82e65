/* The end of a model: final norm, a linear map cut by output rows (the lm head's are the
 * vocabulary's), the loss, and the way back to the residual stream.
 *
 * Rows go through in chunks, so that no rank holds the outputs of all T rows at once where there
 * are many; with more than one tensor rank none holds a row's outputs whole. Forward and backward
 * of a chunk are one pass: the loss divisor is known beforehand. What differs from loss to loss is
 * in nn/head_losses.h. */
#ifndef WEFT_NN_HEAD_H
#define WEFT_NN_HEAD_H

#include "comm/exchange.h"
#include "nn/pass.h"
#include "param/param.h"
#include "tensor/microbatch.h"

/* Of an unmasked row:
 *   cross entropy   log(sum of exp(logits)) - logit of targets[t]
 *   squared error   mean over the outputs of (output - values[t])^2 */
typedef enum { LOSS_CROSS_ENTROPY, LOSS_SQUARED_ERROR } HeadLoss;

typedef struct LossKind LossKind;

typedef struct {
    int64_t d_model;
    double norm_eps, init_std;
    HeadLoss loss;
    const AxisLayout *axis;    /* outputs over the tensor ranks; copied */
    const char *weight, *bias; /* names; NULL: tied, and none */
    int tied;                  /* place of the weight in the set when it has no name */
    uint32_t init_key;
} HeadSpec;

typedef struct {
    ParamSet *set;
    Workspace *space;
    Grid *grid;         /* set before use */
    Exchange *exchange; /* [T, D] over the axis; set before use */
    const LossKind *loss;
    AxisLayout axis;
    int64_t d_model;
    double norm_eps;
    int norm, weight, bias;    /* places in the set; bias -1: there is none */
    int chunks;                /* how many row chunks T is cut into: a function of T and outputs */
    Sharded logits;            /* [chunk, outputs of the shard] */
    Tensor normed;             /* [T, D]; of a cut stream a buffer of that, set before use */
    Tensor gradient;           /* [R, D], R rows of the stream being here */
    real *scale;               /* [R] */
    double *row_loss;          /* [T] */
    double *sums, *shard_sums; /* [chunk]; [shards and then partial sums, chunk] */
    real *largest;             /* cross entropy: [chunk] */
    double *target_logit;      /* cross entropy: [chunk] */
} Head;

/* Adds model.norm.weight, and weight and bias unless they have no names. 0 or a negative code. */
int head_declare(Head *head, ParamSet *set, Workspace *space, const HeadSpec *spec);
void head_take(Head *head, Arena *arena, int rank);

/* x [R, D] and the batch's targets (and values) -> *loss: the sum of the losses of all unmasked
 * rows; *hits: how many of those have their largest logit at the target (under a squared error 0).
 * With dx.data, dx [R, D] is overwritten by the gradient of loss * scale, and weight gradients are
 * added to. Collective over GROUP_TENSOR. 0 or a negative code. */
int head_loss(Head *head, Tensor x, const Microbatch *batch, double scale, Tensor dx, double *loss,
              int64_t *hits);

/* The outputs (logits) of one row of the T, of which x are those that are here, on all ranks.
 * Collective over GROUP_TENSOR. 0 or a negative code. */
int head_logits(Head *head, Tensor x, int64_t row, double *logits);

#endif
