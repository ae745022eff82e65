#include "math/dropout.h"

#include "base/wide.h"

#include <string.h>

enum { BLOCK = 256 };

/* A word below it drops its element. */
static uint32_t drop_threshold(const Dropout *dropout) {
    return (uint32_t)(dropout->probability * 0x1p32);
}

static real keep_factor(const Dropout *dropout) { return (real)(1 / (1 - dropout->probability)); }

/* The words of `size` channels. */
static void take_words(const Dropout *dropout, int64_t row, int64_t channel, int64_t size,
                       uint32_t *word) {
    philox_words(&dropout->stream, (uint32_t)row + dropout->row_offset,
                 (Range){channel, channel + size}, word);
}

WIDE static void mask(int64_t n, const uint32_t *word, uint32_t threshold, real factor,
                      const real *x, real *y) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = word[i] < threshold ? 0 : x[i] * factor;
}

static int64_t block_size(int64_t n, int64_t begin) {
    return n - begin < BLOCK ? n - begin : BLOCK;
}

static void apply_row(const Dropout *dropout, int64_t row, int64_t first_channel, int64_t n,
                      const real *x, real *y) {
    uint32_t word[BLOCK], threshold = drop_threshold(dropout);
    real factor = keep_factor(dropout);
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        int64_t size = block_size(n, begin);
        take_words(dropout, row, first_channel + begin, size, word);
        mask(size, word, threshold, factor, x + begin, y + begin);
    }
}

void dropout_apply(const Dropout *dropout, Range rows, int64_t first_channel, Tensor x, Tensor y) {
    for (int64_t t = rows.begin; t < rows.end; t++) {
        const real *from = tensor_row(x, t);
        real *to = tensor_row(y, t);
        if (dropout->probability > 0)
            apply_row(dropout, t, first_channel, x.cols, from, to);
        else if (to != from)
            memcpy(to, from, (size_t)x.cols * sizeof *to);
    }
}

/* y += bias, where there is one, and out = x + y; memory bounds it, not the width of vectors. */
static void add(int64_t n, const real *x, real *y, const real *bias, real *out) {
    if (!bias) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) out[i] = x[i] + y[i];
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        real b = y[i] + bias[i];
        y[i] = b;
        out[i] = x[i] + b;
    }
}

WIDE static void add_masked(int64_t n, const uint32_t *word, uint32_t threshold, real factor,
                            const real *x, real *y, const real *bias, real *out) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        real b = word[i] < threshold ? 0 : (bias ? y[i] + bias[i] : y[i]) * factor;
        y[i] = b;
        out[i] = x[i] + b;
    }
}

static void add_masked_row(const Dropout *dropout, int64_t row, int64_t first_channel, int64_t n,
                           const real *x, real *y, const real *bias, real *out) {
    uint32_t word[BLOCK], threshold = drop_threshold(dropout);
    real factor = keep_factor(dropout);
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        int64_t size = block_size(n, begin);
        take_words(dropout, row, first_channel + begin, size, word);
        add_masked(size, word, threshold, factor, x + begin, y + begin, bias ? bias + begin : NULL,
                   out + begin);
    }
}

void dropout_add(const Dropout *dropout, Range rows, int64_t first_channel, const real *bias,
                 Tensor x, Tensor y, Tensor out) {
    for (int64_t t = rows.begin; t < rows.end; t++) {
        if (dropout->probability > 0)
            add_masked_row(dropout, t, first_channel, x.cols, tensor_row(x, t), tensor_row(y, t),
                           bias, tensor_row(out, t));
        else
            add(x.cols, tensor_row(x, t), tensor_row(y, t), bias, tensor_row(out, t));
    }
}

double dropout_factor(const Dropout *dropout, int64_t row, int64_t channel) {
    uint32_t word[4];
    if (dropout->probability <= 0) return 1;
    philox_block(&dropout->stream, (uint32_t)row + dropout->row_offset, (uint32_t)(channel / 4),
                 word);
    return word[channel % 4] < drop_threshold(dropout) ? 0 : (double)keep_factor(dropout);
}
