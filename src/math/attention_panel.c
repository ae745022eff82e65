#include "math/attention_panel.h"

#include "base/wide.h"
#include "math/elementary.h"
#include "math/lanes.h"

#include <string.h>

int64_t attention_tile_rows(int64_t length) { return length < 512 ? 64 : 128; }

/* With room for the last panel, however many columns it has. */
static int64_t padded(int64_t size) { return size + GEMM_MOST_COLS - 1; }

real *panels_take(Arena *arena, int64_t lines, int64_t depth) {
    return arena_take(arena, padded(lines) * padded(depth), sizeof(real));
}

real *panel_take(Arena *arena, int64_t lines) {
    return arena_take(arena, lines * GEMM_MOST_COLS, sizeof(real));
}

Tensor attention_head(Tensor x, int head, int64_t head_dim) {
    return (Tensor){x.data + head * head_dim, x.rows, head_dim, x.ld};
}

void attention_multiply(const GemmKernel *kernel, int64_t rows, int64_t k, int64_t stride,
                        const real *a, const real *b, real alpha, bool add, real *c, int64_t ldc) {
    for (int64_t begin = 0; begin < k; begin += GEMM_BLOCK)
        for (int64_t row = 0; row < rows; row += kernel->rows)
            kernel->multiply((int)size_least(rows - row, kernel->rows),
                             size_least(k - begin, GEMM_BLOCK),
                             a + row * stride + begin * kernel->rows, b + begin * kernel->cols,
                             alpha, add || begin > 0, c + row * ldc, ldc,
                             a + (row + kernel->rows) * stride + begin * kernel->rows);
}

void attention_turn(const GemmKernel *kernel, const real *panel, int64_t rows, int64_t count,
                    const real *factor, real *scratch, Tensor y) {
    kernel->pack_rows(panel, kernel->cols, rows, kernel->cols, (int)rows, scratch);
    for (int64_t i = 0; i < count; i++) {
        const real *from = scratch + i * rows;
        real *to = tensor_row(y, i);
        if (!factor) memcpy(to, from, (size_t)rows * sizeof *to);
        for (int64_t c = 0; factor && c < rows; c++) to[c] = from[c] * factor[i];
    }
}

/* Columns that don't see key first + j: those before j. */
static void fill_hidden(int width, int64_t keys, int64_t first, real value, real *score) {
    for (int64_t j = first; j < keys; j++)
        for (int64_t i = 0; i < j - first; i++) score[j * width + i] = value;
}

static inline void find_largest(int width, int64_t keys, const real *score, real *largest) {
    memcpy(largest, score, (size_t)width * sizeof *largest);
    for (int64_t j = 1; j < keys; j++) {
        const real *row = score + j * width;
#pragma omp simd
        for (int i = 0; i < width; i++) largest[i] = row[i] > largest[i] ? row[i] : largest[i];
    }
}

/* Sums in the order of lanes_sum. */
static inline void exp_columns(int width, int64_t keys, const real *largest, real *score,
                               double *lanes) {
    memset(lanes, 0, (size_t)(LANES * width) * sizeof *lanes);
    for (int64_t j = 0; j < keys; j++) {
        real *row = score + j * width;
        double *lane = lanes + j % LANES * width;
#pragma omp simd
        for (int i = 0; i < width; i++) {
            row[i] = elementary_decay(row[i] - largest[i]);
            lane[i] += (double)row[i];
        }
    }
}

static inline void fold_columns(int width, double *lanes, double *sum) {
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half * width; i++) lanes[i] += lanes[half * width + i];
    memcpy(sum, lanes, (size_t)width * sizeof *sum);
}

static inline void exp_panel(int width, int64_t keys, int64_t first, real *score, real *largest,
                             double *sum, double *lanes) {
    fill_hidden(width, keys, first, -(real)INFINITY, score);
    find_largest(width, keys, score, largest);
    exp_columns(width, keys, largest, score, lanes);
    fill_hidden(width, keys, first, 0, score);
    fold_columns(width, lanes, sum);
}

/* With the width as a constant its loops are straight code. */
WIDE static void exp_of_width(int width, int64_t keys, int64_t first, real *score, real *largest,
                              double *sum, double *lanes) {
    if (width == GEMM_MOST_COLS)
        exp_panel(GEMM_MOST_COLS, keys, first, score, largest, sum, lanes);
    else if (width == GEMM_MOST_COLS / 2)
        exp_panel(GEMM_MOST_COLS / 2, keys, first, score, largest, sum, lanes);
    else
        exp_panel(width, keys, first, score, largest, sum, lanes);
}

void attention_exp(int width, int64_t keys, int64_t first, real *score, real *largest, double *sum,
                   double *lanes) {
    exp_of_width(width, keys, first, score, largest, sum, lanes);
}

static inline void slope_panel(int width, int64_t begin, int64_t end, int64_t seen, const real *lse,
                               const real *delta, real *score, real *slope) {
    for (int64_t i = begin; i < end; i++, seen++) {
        real *p = score + i * width, *ds = slope + i * width;
        const real shift = lse[i], mean = delta[i];
#pragma omp simd
        for (int j = 0; j < width; j++) {
            p[j] = elementary_exp_times(1, p[j] - shift, 0);
            ds[j] = p[j] * (ds[j] - mean);
        }
        for (int64_t j = seen; j < width; j++) p[j] = ds[j] = 0;
    }
}

WIDE static void slope_of_width(int width, int64_t begin, int64_t end, int64_t seen,
                                const real *lse, const real *delta, real *score, real *slope) {
    if (width == GEMM_MOST_COLS)
        slope_panel(GEMM_MOST_COLS, begin, end, seen, lse, delta, score, slope);
    else if (width == GEMM_MOST_COLS / 2)
        slope_panel(GEMM_MOST_COLS / 2, begin, end, seen, lse, delta, score, slope);
    else
        slope_panel(width, begin, end, seen, lse, delta, score, slope);
}

void attention_slope(int width, int64_t begin, int64_t end, int64_t seen, const real *lse,
                     const real *delta, real *score, real *slope) {
    slope_of_width(width, begin, end, seen, lse, delta, score, slope);
}
