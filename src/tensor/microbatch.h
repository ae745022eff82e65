/* One microbatch of T rows, as a model takes it. Which members are used depends on the model and
 * its loss; the others are NULL (of tensors, data). The holder of the memory is whoever fills it.
 */
#ifndef WEFT_TENSOR_MICROBATCH_H
#define WEFT_TENSOR_MICROBATCH_H

#include "tensor/tensor.h"

typedef struct {
    int32_t *tokens;  /* [T]: what a decoder reads */
    Tensor inputs;    /* [T, a]: what an mlp reads, normalised */
    int32_t *targets; /* [T]: classes (next tokens); any value >= 0 under a squared error; negative:
                         the row is masked */
    Tensor values;    /* [T, b]: targets of a squared error, normalised */
} Microbatch;

#endif
