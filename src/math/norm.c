#include "math/norm.h"

#include "math/elementary.h"
#include "math/lanes.h"

#include <math.h>
#include <string.h>

/* y = x * scale * gain, in this order: norm_forward and norm_again agree bit for bit. */
static void apply_row(int64_t n, const real *x, const real *gain, real scale, real *y) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * scale * gain[i];
}

void norm_forward(Range rows, Tensor x, const real *gain, double eps, Tensor y, real *scale) {
    for (int64_t t = rows.begin; t < rows.end; t++) {
        const real *row = tensor_row(x, t);
        double mean = lanes_dot(x.cols, row, row) / (double)x.cols;
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
static double weighted_dot(int64_t n, const real *dy, const real *gain, const real *x) {
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (int j = 0; j < LANES; j++) {
            lane[j] += (double)(dy[i + j] * gain[i + j]) * (double)x[i + j];
        }
    }
    for (int j = 0; i + j < n; j++) lane[j] += (double)(dy[i + j] * gain[i + j]) * (double)x[i + j];
    return lanes_fold(lane);
}

/* With s = scale: dx_i = s dy_i gain_i - x_i s^3 / D sum_j (dy_j gain_j x_j). */
void norm_backward(Range rows, Tensor dy, Tensor x, const real *gain, const real *scale, Tensor dx,
                   double *gain_sum) {
    int64_t n = x.cols;
    memset(gain_sum, 0, (size_t)n * sizeof *gain_sum);
    for (int64_t t = rows.begin; t < rows.end; t++) {
        const real *d = tensor_row(dy, t), *row = tensor_row(x, t);
        real *sink = tensor_row(dx, t), s = scale[t];
        double dot = weighted_dot(n, d, gain, row);
        real back = (real)((double)s * s * s * dot / (double)n);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            sink[i] += real_fma(d[i] * gain[i], s, -row[i] * back);
            gain_sum[i] += (double)d[i] * ((double)row[i] * s);
        }
    }
}

void rows_sum(Range rows, Tensor x, double *sum) {
    memset(sum, 0, (size_t)x.cols * sizeof *sum);
    for (int64_t t = rows.begin; t < rows.end; t++) {
        const real *row = tensor_row(x, t);
#pragma omp simd
        for (int64_t i = 0; i < x.cols; i++) sum[i] += (double)row[i];
    }
}
