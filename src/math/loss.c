#include "math/loss.h"

#include "math/elementary.h"
#include "math/lanes.h"

#include <math.h>
#include <stdbool.h>

enum { BLOCK = 256 };

void loss_row_max(Range rows, Tensor logits, real *largest) {
    for (int64_t t = rows.begin; t < rows.end; t++) {
        largest[t] = lanes_max(logits.cols, tensor_row(logits, t), largest[t]);
    }
}

void loss_exp_sums(Range rows, Tensor logits, const real *largest, double *sums) {
    real power[BLOCK];
    for (int64_t t = rows.begin; t < rows.end; t++) {
        const real *row = tensor_row(logits, t);
        sums[t] = 0;
        for (int64_t begin = 0; begin < logits.cols; begin += BLOCK) {
            int64_t size = logits.cols - begin < BLOCK ? logits.cols - begin : BLOCK;
            elementary_exp(size, row + begin, largest[t], power);
            sums[t] += lanes_sum(size, power);
        }
    }
}

double loss_row(real largest, double sum, real target_logit) {
    return log(sum) + ((double)largest - (double)target_logit);
}

/* The target's element is a difference of nearly equal numbers when the model is sure: it is taken
 * in double. */
static void gradient_row(int64_t n, real *row, real largest, double sum, int64_t target,
                         double scale) {
    double factor = scale / sum;
    real rounded = (real)factor, at_target = 0;
    bool here = 0 <= target && target < n;
    if (here) {
        double power = (double)elementary_exp_times(1, row[target] - largest, 0);
        at_target = (real)(power * factor - scale);
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        row[i] = elementary_exp_times(1, row[i] - largest, 0) * rounded;
    }
    if (here) row[target] = at_target;
}

void loss_gradient(Range rows, Tensor logits, int64_t first, const int32_t *targets,
                   const real *largest, const double *sums, double scale) {
    for (int64_t t = rows.begin; t < rows.end; t++) {
        real *row = tensor_row(logits, t);
        if (targets[t] < 0) {
            for (int64_t i = 0; i < logits.cols; i++) row[i] = 0;
        } else {
            gradient_row(logits.cols, row, largest[t], sums[t], targets[t] - first, scale);
        }
    }
}
