#include "math/dropout.h"

#include <string.h>

enum { BLOCK = 256 };

/* A word below it drops its element. */
static uint32_t drop_threshold(const Dropout *dropout) {
    return (uint32_t)(dropout->probability * 0x1p32);
}

static real keep_factor(const Dropout *dropout) { return (real)(1 / (1 - dropout->probability)); }

static void apply_row(const Dropout *dropout, uint32_t row, int64_t first_channel, int64_t n,
                      const real *x, real *y) {
    uint32_t word[BLOCK], threshold = drop_threshold(dropout);
    real factor = keep_factor(dropout);
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        int64_t size = n - begin < BLOCK ? n - begin : BLOCK, channel = first_channel + begin;
        philox_words(&dropout->stream, row, (Range){channel, channel + size}, word);
#pragma omp simd
        for (int64_t i = 0; i < size; i++) {
            y[begin + i] = word[i] < threshold ? 0 : x[begin + i] * factor;
        }
    }
}

void dropout_apply(const Dropout *dropout, Range rows, int64_t first_channel, Tensor x, Tensor y) {
    for (int64_t t = rows.begin; t < rows.end; t++) {
        const real *from = tensor_row(x, t);
        real *to = tensor_row(y, t);
        if (dropout->probability > 0) {
            apply_row(dropout, (uint32_t)t + dropout->row_offset, first_channel, x.cols, from, to);
        } else if (to != from) {
            memcpy(to, from, (size_t)x.cols * sizeof *to);
        }
    }
}

double dropout_factor(const Dropout *dropout, int64_t row, int64_t channel) {
    uint32_t word[4];
    if (dropout->probability <= 0) return 1;
    philox_block(&dropout->stream, (uint32_t)row + dropout->row_offset, (uint32_t)(channel / 4),
                 word);
    return word[channel % 4] < drop_threshold(dropout) ? 0 : (double)keep_factor(dropout);
}
