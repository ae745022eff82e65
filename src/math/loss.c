#include "math/loss.h"

#include "base/wide.h"
#include "math/elementary.h"
#include "math/lanes.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { BLOCK = 256 };

WIDE static real row_max(int64_t n, const real *row, real least) {
    return lanes_max(n, row, least);
}

void loss_row_max(Range rows, Tensor logits, real *largest) {
    for (int64_t t = rows.begin; t < rows.end; t++)
        largest[t] = row_max(logits.cols, tensor_row(logits, t), largest[t]);
}

WIDE static double exp_sum(int64_t n, const real *row, real largest) {
    real power[BLOCK];
    double sum = 0;
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        int64_t size = n - begin < BLOCK ? n - begin : BLOCK;
#pragma omp simd
        for (int64_t i = 0; i < size; i++) power[i] = elementary_decay(row[begin + i] - largest);
        sum += lanes_sum(size, power);
    }
    return sum;
}

void loss_exp_sums(Range rows, Tensor logits, const real *largest, double *sums) {
    for (int64_t t = rows.begin; t < rows.end; t++)
        sums[t] = exp_sum(logits.cols, tensor_row(logits, t), largest[t]);
}

double loss_row(real largest, double sum, real target_logit) {
    return log(sum) + ((double)largest - (double)target_logit);
}

/* The target's element is a difference of nearly equal numbers when the model is sure: it is taken
 * in double. */
WIDE static void gradient_row(int64_t n, real *row, real largest, double sum, int64_t target,
                              double scale) {
    double factor = scale / sum;
    real rounded = (real)factor, at_target = 0;
    bool here = 0 <= target && target < n;
    if (here) {
        double power = (double)elementary_decay(row[target] - largest);
        at_target = (real)(power * factor - scale);
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        row[i] = elementary_decay(row[i] - largest) * rounded;
    }
    if (here) row[target] = at_target;
}

void loss_gradient(Range rows, Tensor logits, int64_t first, const int32_t *targets,
                   const real *largest, const double *sums, double scale) {
    for (int64_t t = rows.begin; t < rows.end; t++) {
        real *row = tensor_row(logits, t);
        if (targets[t] < 0) {
            memset(row, 0, (size_t)logits.cols * sizeof *row);
        } else {
            gradient_row(logits.cols, row, largest[t], sums[t], targets[t] - first, scale);
        }
    }
}

/* Sum over i of (y - v)^2, by lanes. */
WIDE static double squared_distance(int64_t n, const real *y, const real *v) {
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (int j = 0; j < LANES; j++) {
            double error = (double)y[i + j] - (double)v[i + j];
            lane[j] += error * error;
        }
    }
    for (int j = 0; i + j < n; j++) {
        double error = (double)y[i + j] - (double)v[i + j];
        lane[j] += error * error;
    }
    return lanes_fold(lane);
}

void loss_squared_sums(Range rows, Tensor outputs, Tensor values, double *sums) {
    for (int64_t t = rows.begin; t < rows.end; t++)
        sums[t] = squared_distance(outputs.cols, tensor_row(outputs, t), tensor_row(values, t));
}

WIDE static void squared_gradient_row(int64_t n, real *row, const real *value, real factor) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) row[i] = (row[i] - value[i]) * factor;
}

void loss_squared_gradient(Range rows, Tensor outputs, Tensor values, const int32_t *targets,
                           double factor) {
    for (int64_t t = rows.begin; t < rows.end; t++) {
        real *row = tensor_row(outputs, t);
        if (targets[t] < 0)
            memset(row, 0, (size_t)outputs.cols * sizeof *row);
        else
            squared_gradient_row(outputs.cols, row, tensor_row(values, t), (real)factor);
    }
}
