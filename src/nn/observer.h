/* Who looks at a model's insides while it computes: called with every activation of interest, in
 * the order of the computation, on the rank that holds it. A model without an observer calls
 * nobody. */
#ifndef WEFT_NN_OBSERVER_H
#define WEFT_NN_OBSERVER_H

#include "tensor/tensor.h"

typedef struct {
    /* `name`: static text such as "ffn.act"; `layer`: -1 outside of the layers; `shard`: of a cut
     * activation, -1 of one that all tensor ranks hold alike. data: [rows, cols] with its ld. */
    void (*see)(void *context, const char *name, int layer, int shard, Tensor data);
    void *context;
} Observer;

#endif
