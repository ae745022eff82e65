/* The end of the decoder: final norm, lm head cut by vocabulary rows, cross-entropy, and the way
 * back to the residual stream.
 *
 * Rows go through in chunks, so that no rank holds the logits of all T rows at once where vocab is
 * large; with more than one tensor rank none holds a row's whole vocabulary. Forward and backward
 * of a chunk are one pass: the loss divisor is known beforehand. */
#ifndef WEFT_NN_HEAD_H
#define WEFT_NN_HEAD_H

#include "comm/exchange.h"
#include "nn/pass.h"
#include "param/param.h"
#include "tensor/microbatch.h"

typedef enum { LOSS_CROSS_ENTROPY, LOSS_SQUARED_ERROR } HeadLoss;

typedef struct {
    ParamSet *set;
    Workspace *space;
    Grid *grid;         /* set before use */
    Exchange *exchange; /* [T, D] over the vocab axis; set before use */
    AxisLayout axis;    /* vocabulary rows over the tensor ranks */
    int64_t d_model;
    double norm_eps;
    int norm, weight;          /* places in the set; weight is the embedding's when they are tied */
    int chunks;                /* how many row chunks T is cut into: a function of T and vocab */
    Sharded logits;            /* [chunk, vocab rows of the shard] */
    Tensor normed, gradient;   /* [T, D] */
    real *scale, *largest;     /* [T], [chunk] */
    double *sums, *shard_sums; /* [chunk]; [shards and then partial sums, chunk] */
    double *target_logit;      /* [chunk] */
    double *row_loss;          /* [T] */
} Head;

/* Adds model.norm.weight, and lm_head.weight unless `tied` is the embedding's place (>= 0). 0 or a
 * negative code. */
int head_declare(Head *head, ParamSet *set, Workspace *space, int64_t d_model, double norm_eps,
                 double init_std, const AxisLayout *axis, int tied);
void head_take(Head *head, Arena *arena, int rank);

/* x [T, D], the batch's targets [T] (negative: masked) -> *loss: the sum of the losses of all
 * unmasked rows; *hits: how many of those have their largest logit at the target. With dx.data, dx
 * [T, D] is overwritten by the gradient of loss * scale, and weight gradients are added to.
 * Collective over GROUP_TENSOR. 0 or a negative code. */
int head_loss(Head *head, Tensor x, const Microbatch *batch, double scale, Tensor dx, double *loss,
              int64_t *hits);

/* logits [vocab] of one row of x [T, D], on all ranks. Collective over GROUP_TENSOR. 0 or a
 * negative code. */
int head_logits(Head *head, Tensor x, int64_t row, double *logits);

#endif
