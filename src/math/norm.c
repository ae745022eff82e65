#include "math/norm.h"

#include "base/wide.h"
#include "math/elementary.h"
#include "math/lanes.h"

#include <math.h>
#include <string.h>

/* y = x * scale * gain, in this order: norm_forward and norm_again agree bit for bit. */
WIDE static void apply_row(int64_t n, const real *x, const real *gain, real scale, real *y) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * scale * gain[i];
}

WIDE static double squares(int64_t n, const real *x) { return lanes_dot(n, x, x); }

void norm_forward(Range rows, Tensor x, const real *gain, double eps, Tensor y, real *scale) {
    for (int64_t t = rows.begin; t < rows.end; t++) {
        const real *row = tensor_row(x, t);
        double mean = squares(x.cols, row) / (double)x.cols;
        scale[t] = (real)(1 / sqrt(mean + eps));
        if (y.data) apply_row(x.cols, row, gain, scale[t], tensor_row(y, t));
    }
}

void norm_again(Range rows, Tensor x, const real *gain, const real *scale, Tensor y) {
    for (int64_t t = rows.begin; t < rows.end; t++) {
        apply_row(x.cols, tensor_row(x, t), gain, scale[t], tensor_row(y, t));
    }
}

/* Sum over i of (dy gain) x, by lanes. */
static inline double weighted_dot(int64_t n, const real *dy, const real *gain, const real *x) {
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (int j = 0; j < LANES; j++)
            lane[j] = lanes_add_product(lane[j], dy[i + j] * gain[i + j], x[i + j]);
    }
    for (int j = 0; i + j < n; j++)
        lane[j] = lanes_add_product(lane[j], dy[i + j] * gain[i + j], x[i + j]);
    return lanes_fold(lane);
}

/* With s = scale: dx_i = s dy_i gain_i - x_i s^3 / D sum_j (dy_j gain_j x_j). */
WIDE static void backward_row(int64_t n, const real *d, const real *x, const real *gain, real s,
                              real *restrict dx, double *restrict gain_sum) {
    real back = (real)((double)s * s * s * weighted_dot(n, d, gain, x) / (double)n);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        dx[i] += real_fma(d[i] * gain[i], s, -x[i] * back);
        gain_sum[i] += (double)d[i] * ((double)x[i] * s);
    }
}

void norm_backward(Range rows, Tensor dy, Tensor x, const real *gain, const real *scale, Tensor dx,
                   double *gain_sum) {
    memset(gain_sum, 0, (size_t)x.cols * sizeof *gain_sum);
    for (int64_t t = rows.begin; t < rows.end; t++)
        backward_row(x.cols, tensor_row(dy, t), tensor_row(x, t), gain, scale[t], tensor_row(dx, t),
                     gain_sum);
}

WIDE static void add_row(int64_t n, const real *x, double *restrict sum) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) sum[i] += (double)x[i];
}

void rows_sum(Range rows, Tensor x, double *sum) {
    memset(sum, 0, (size_t)x.cols * sizeof *sum);
    for (int64_t t = rows.begin; t < rows.end; t++) add_row(x.cols, tensor_row(x, t), sum);
}
