/* Dropout masks from Philox: x[t][c] = keep ? x * 1/(1-p) : 0, where keep is a function of (seed,
 * purpose, layer, step, microbatch, row, global channel): ranks and recomputation see the same
 * mask. */
#ifndef WEFT_MATH_DROPOUT_H
#define WEFT_MATH_DROPOUT_H

#include "tensor/philox.h"
#include "tensor/tensor.h"

typedef struct {
    PhiloxStream stream;
    double probability;  /* of dropping; 0: nothing happens */
    uint32_t row_offset; /* added to the row: where row 0 of the tensor lies in the whole */
} Dropout;

/* Rows `rows` of x [T, n], whose column 0 is global channel `first_channel`, times the mask, into y
 * (may be x). The same function serves forward and backward. Single-threaded: the caller shares out
 * rows. */
void dropout_apply(const Dropout *dropout, Range rows, int64_t first_channel, Tensor x, Tensor y);

/* y = the mask times (y + bias), out = x + y, over `rows` of [T, n] that begin at first_channel;
 * bias [n] or NULL. out may be x or y. Single-threaded. */
void dropout_add(const Dropout *dropout, Range rows, int64_t first_channel, const real *bias,
                 Tensor x, Tensor y, Tensor out);

/* The mask factor of one element: 0 or 1/(1-p) (for tests). */
double dropout_factor(const Dropout *dropout, int64_t row, int64_t channel);

#endif
