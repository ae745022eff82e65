/* Who looks at a model's insides while it computes: the guard against non-finite steps, and whoever
 * wants to see a forward pass whole.
 *
 * A model whose workspace has an observer shows it each tensor of interest once it is made, in the
 * order of the computation; without one nobody is called. A tensor that all tensor ranks hold alike
 * is shown whole on each of them; one that is cut, in pieces, by the ranks that hold them: a rank
 * without a piece isn't called, but its count goes on (`place`). What is shown depends neither on
 * the layout nor on the recompute mode, nor on whether the residual stream is cut by rows: then
 * its tensors are gathered to be shown.
 *
 * Forward, in this order (T rows, H heads and K kv heads of width d, F = d_ff):
 *   embed [T, D]; of an mlp: input [T, D]
 *   of each layer (an mlp's has nothing of attention)
 *     norm.attention [T, D], attention.q [T, H d], attention.k, attention.v [T, K d]; q and k
 *     rotated; attention.context [T, H d], attention.o, resid.attention [T, D]
 *     norm.ffn [T, D], ffn.gate (if the kind has it), ffn.up [T, F]: with bias, before act;
 *     ffn.act [T, F]: what down multiplies (the product, after the hidden dropout);
 *     ffn.down [T, D]: what is added (with bias and output dropout); resid.ffn [T, D]
 *     (until ffn.down has been shown, its layer's gate, up and act stay as they were shown)
 *   norm.final [T, D], logits [T, vocab or outputs] in chunks of rows, each a place; loss [1, 1]
 * Backward, with `gradient`, each parameter under its name in the set once its layer has added to
 * it (the sum over the microbatches so far), and the gradient of the residual stream:
 *   of the head: lm_head (or output, weight and bias) and norm, head.input [T, D]
 *   of each layer, the last first
 *     mlp and norm, resid.attention [T, D]; self_attn and norm, layer.input [T, D]
 *   the embedding, or input, weight and bias */
#ifndef WEFT_NN_OBSERVER_H
#define WEFT_NN_OBSERVER_H

#include "nn/pass.h"
#include "param/param.h"

typedef struct {
    const char *name;
    int layer;          /* -1: outside of the layers */
    bool gradient;      /* the gradient of what the name says */
    bool cut;           /* into pieces; else all tensor ranks see the same */
    int64_t microbatch; /* of the pass */
    int64_t place;      /* tensors that the pass has shown before; the same on all ranks */
    int64_t rows, cols; /* of the whole tensor */
    Range made;         /* rows of `data` that this rank has made, or all have */
    int64_t row, col;   /* where `data` lies in it */
    Tensor data;        /* to be read only, and only now; who changes place 0, the stream into
                           the first layer, has the pass go on from there (run/gradcheck.c) */
} Seen;

struct Observer {
    void (*see)(void *context, const Seen *seen); /* outside of parallel regions */
    void *context;
    int64_t microbatch, place; /* kept by the model */
};

/* All of these take a NULL observer and do nothing. */

/* A pass begins. */
void observe_begin(Observer *observer, int64_t microbatch);

/* data: [rows, cols], whole. */
void observe_whole(Observer *observer, const char *name, int layer, Tensor data);

/* data: the rows of [T, D] that this rank has of the residual stream, shown whole. Collective over
 * GROUP_TENSOR if the stream is cut. */
void observe_stream(const Workspace *space, const char *name, int layer, Tensor data);
/* The same of the gradient. */
void observe_stream_gradient(const Workspace *space, const char *name, int layer, Tensor data);

/* data: per owned shard [rows, units of the shard * unit_size], of `axis`. */
void observe_cut(Observer *observer, const char *name, int layer, const AxisLayout *axis,
                 int64_t unit_size, const Sharded *data);
/* Outside of the layers, one column a unit: `data` are rows [rows) of the `all` that there are. */
void observe_cut_rows(Observer *observer, const char *name, Range rows, int64_t all,
                      const AxisLayout *axis, const Sharded *data);

/* The gradient of a parameter by its place in the set; -1: there is none. */
void observe_parameter(Observer *observer, int layer, const ParamSet *set, int index);

#endif
