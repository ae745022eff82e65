#include "math/attention.h"

#include "base/wide.h"

#include <math.h>

void rotary_table(double theta, Tensor table) {
    int64_t half = table.cols / 2;
    for (int64_t t = 0; t < table.rows; t++) {
        real *row = tensor_row(table, t);
        for (int64_t i = 0; i < half; i++) {
            double angle = (double)t * pow(theta, -(double)(2 * i) / (double)table.cols);
            row[i] = (real)cos(angle);
            row[half + i] = (real)sin(angle);
        }
    }
}

/* All heads of a row. */
WIDE static void rotate(int heads, int64_t half, const real *angle, real sign, real *x) {
    const real *cosine = angle, *sine = angle + half;
    for (int h = 0; h < heads; h++, x += 2 * half) {
#pragma omp simd
        for (int64_t i = 0; i < half; i++) {
            real a = x[i], b = x[half + i], s = sign * sine[i];
            x[i] = a * cosine[i] - b * s;
            x[half + i] = b * cosine[i] + a * s;
        }
    }
}

void rotary_apply(Tensor table, int heads, int direction, Tensor x) {
    for (int64_t t = 0; t < x.rows; t++)
        rotate(heads, table.cols / 2, tensor_row(table, t), (real)direction, tensor_row(x, t));
}
