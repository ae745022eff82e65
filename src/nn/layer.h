/* One block: attention sublayer (of a decoder; an mlp has none) and FFN sublayer, each norm ->
 * heads or hidden -> sum over shards -> residual. */
#ifndef WEFT_NN_LAYER_H
#define WEFT_NN_LAYER_H

#include "nn/model.h"

/* Adds layer l's tensors to the model's set, in Hugging Face's order of modules. 0 or a negative
 * code. */
int layer_declare(Model *model, int l);

/* Of a tensor's name "model.layers.3.mlp.up_proj.weight": *layer 3, and "mlp.up_proj.weight"; else
 * -1 and the whole name. */
const char *layer_split_name(const char *name, int *layer);

/* Lays out what backward reads, for all layers, by the model's recompute mode. */
void layer_take_all(Model *model);

/* stream[l] -> stream[l + 1]. Collective over GROUP_TENSOR. 0 or a negative code. */
int layer_forward(Model *model, int l, const Pass *pass);

/* model->gradient: d(stream[l + 1]) -> d(stream[l]); weight gradients are added to. Collective over
 * GROUP_TENSOR. */
int layer_backward(Model *model, int l, const Pass *pass);

#endif
