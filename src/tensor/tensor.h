/* A Tensor is a view of a row-major matrix [rows, cols] whose rows lie `ld` elements apart; it owns
 * nothing. A vector is a matrix of one row. */
#ifndef WEFT_TENSOR_TENSOR_H
#define WEFT_TENSOR_TENSOR_H

#include "base/real.h"

#include <stdint.h>

typedef struct {
    real *data;
    int64_t rows, cols, ld;
} Tensor;

static inline Tensor tensor_view(real *data, int64_t rows, int64_t cols) {
    return (Tensor){data, rows, cols, cols};
}

static inline real *tensor_row(Tensor t, int64_t row) { return t.data + row * t.ld; }

#endif
