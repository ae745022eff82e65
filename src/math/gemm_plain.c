/* Products for any core, in plain C: what the others are held against. */
#include "math/gemm_kernel.h"

#include <math.h>
#include <string.h>

enum { TILE_ROWS = 4, TILE_COLS = 16 };

#ifdef WEFT_REAL64
#define FMA fma
#else
#define FMA fmaf
#endif

static void multiply(int rows, int64_t k, const real *a, const real *b, real alpha, bool add,
                     real *c, int64_t ldc, const real *ahead) {
    (void)ahead;
    real sum[TILE_ROWS][TILE_COLS];
    memset(sum, 0, sizeof sum);
    for (int64_t p = 0; p < k; p++)
        for (int i = 0; i < TILE_ROWS; i++)
            for (int j = 0; j < TILE_COLS; j++)
                sum[i][j] = FMA(a[p * TILE_ROWS + i], b[p * TILE_COLS + j], sum[i][j]);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < TILE_COLS; j++) {
            real *to = c + i * ldc + j;
            *to = add ? FMA(alpha, sum[i][j], *to) : alpha * sum[i][j];
        }
}

static void pack(const real *x, int64_t down, int64_t across, int64_t count, int64_t k, int width,
                 real *out) {
    for (int64_t first = 0; first < count; first += width, out += width * k)
        for (int64_t p = 0; p < k; p++)
            for (int64_t i = 0; i < width; i++)
                out[p * width + i] = first + i < count ? x[p * down + (first + i) * across] : 0;
}

static void pack_rows(const real *x, int64_t ldx, int64_t count, int64_t k, int width, real *out) {
    pack(x, 1, ldx, count, k, width, out);
}

static void pack_cols(const real *x, int64_t ldx, int64_t count, int64_t k, int width, real *out) {
    pack(x, ldx, 1, count, k, width, out);
}

static bool runs_here(void) { return true; }

const GemmKernel gemm_plain = {"plain",  TILE_ROWS, TILE_COLS, runs_here,
                               multiply, pack_rows, pack_cols};
