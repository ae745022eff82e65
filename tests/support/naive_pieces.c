#include "support/naive.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double *naive_array(int64_t count) {
    double *array = calloc((size_t)count + 1, sizeof *array);
    if (!array) {
        fprintf(stderr, "naive: no memory for %lld doubles\n", (long long)count);
        abort();
    }
    return array;
}

void naive_matmul(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                  const double *a, const double *b, double *c) {
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += (transpose_a ? a[l * m + i] : a[i * k + l]) *
                       (transpose_b ? b[j * k + l] : b[l * n + j]);
            c[i * n + j] = sum;
        }
    }
}

void naive_linear(int64_t rows, int64_t out, int64_t in, const double *x, const double *w,
                  const double *bias, double *y) {
    for (int64_t t = 0; t < rows; t++) {
        for (int64_t o = 0; o < out; o++) {
            double sum = bias ? bias[o] : 0;
            for (int64_t i = 0; i < in; i++) sum += x[t * in + i] * w[o * in + i];
            y[t * out + o] = sum;
        }
    }
}

void naive_linear_backward(int64_t rows, int64_t out, int64_t in, const double *x, const double *w,
                           const double *dy, double *dx, double *dw, double *dbias) {
    for (int64_t t = 0; t < rows; t++) {
        for (int64_t o = 0; o < out; o++) {
            double slope = dy[t * out + o];
            if (dbias) dbias[o] += slope;
            for (int64_t i = 0; i < in; i++) {
                if (dx) dx[t * in + i] += slope * w[o * in + i];
                if (dw) dw[o * in + i] += slope * x[t * in + i];
            }
        }
    }
}

static double inverse_rms(int64_t n, const double *x, double eps) {
    double squares = 0;
    for (int64_t i = 0; i < n; i++) squares += x[i] * x[i];
    return 1 / sqrt(squares / (double)n + eps);
}

/* Zhang and Sennrich 2019, equation 4, with eps under the root as in Llama. */
void naive_rms_norm(int64_t rows, int64_t n, const double *x, const double *gain, double eps,
                    double *y) {
    for (int64_t t = 0; t < rows; t++) {
        double scale = inverse_rms(n, x + t * n, eps);
        for (int64_t i = 0; i < n; i++) y[t * n + i] = x[t * n + i] * scale * gain[i];
    }
}

/* With s = 1/rms and ds/dx_i = -s^3 x_i / n:
 * dx_i = s gain_i dy_i - (s^3 / n) x_i sum_j(gain_j dy_j x_j). */
void naive_rms_norm_backward(int64_t rows, int64_t n, const double *x, const double *gain,
                             double eps, const double *dy, double *dx, double *dgain) {
    for (int64_t t = 0; t < rows; t++, x += n, dy += n) {
        double scale = inverse_rms(n, x, eps), sum = 0;
        for (int64_t i = 0; i < n; i++) sum += gain[i] * dy[i] * x[i];
        for (int64_t i = 0; i < n; i++) {
            if (dgain) dgain[i] += dy[i] * x[i] * scale;
            if (dx)
                dx[t * n + i] +=
                    scale * gain[i] * dy[i] - scale * scale * scale / (double)n * x[i] * sum;
        }
    }
}

static double sigmoid(double z) { return 1 / (1 + exp(-z)); }

static double silu(double z) { return z * sigmoid(z); }

static double silu_slope(double z) { return sigmoid(z) * (1 + z * (1 - sigmoid(z))); }

/* Hendrycks and Gimpel 2016: z Phi(z), Phi the normal distribution function. */
static double gelu(double z) { return z * 0.5 * (1 + erf(z / sqrt(2))); }

static double gelu_slope(double z) {
    return 0.5 * (1 + erf(z / sqrt(2))) + z * exp(-z * z / 2) / sqrt(2 * M_PI);
}

/* Their approximation: 0.5 z (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))). */
static double gelu_tanh(double z) {
    return 0.5 * z * (1 + tanh(sqrt(2 / M_PI) * (z + 0.044715 * z * z * z)));
}

static double gelu_tanh_slope(double z) {
    double t = tanh(sqrt(2 / M_PI) * (z + 0.044715 * z * z * z));
    return 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * z * z);
}

/* Hendrycks and Gimpel 2016, section 2: z sigmoid(1.702 z). */
static double quick_gelu(double z) { return silu(1.702 * z) / 1.702; }

static double quick_gelu_slope(double z) { return silu_slope(1.702 * z); }

static double sigmoid_slope(double z) { return sigmoid(z) * (1 - sigmoid(z)); }

static double relu(double z) { return z > 0 ? z : 0; }

static double relu_slope(double z) { return z > 0 ? 1 : 0; }

static double identity(double z) { return z; }

static double identity_slope(double z) {
    (void)z;
    return 1;
}

static const struct {
    const char *name;
    double (*value)(double z), (*slope)(double z);
    double left; /* the value at minus infinity */
} activation_table[] = {
    {"silu", silu, silu_slope, 0},
    {"gelu", gelu, gelu_slope, 0},
    {"gelu_tanh", gelu_tanh, gelu_tanh_slope, 0},
    {"relu", relu, relu_slope, 0},
    {"quick_gelu", quick_gelu, quick_gelu_slope, 0},
    {"sigmoid", sigmoid, sigmoid_slope, 0},
    {"identity", identity, identity_slope, -INFINITY},
};

/* Asked for each element, mostly for the one that it was asked for before. */
static int find_activation(const char *name) {
    static int last;
    int count = sizeof activation_table / sizeof activation_table[0];
    if (strcmp(activation_table[last].name, name) == 0) return last;
    for (int i = 0; i < count; i++)
        if (strcmp(activation_table[i].name, name) == 0) return last = i;
    fprintf(stderr, "naive: no activation is called %s\n", name);
    abort();
}

/* z sigmoid(beta z) = silu(beta z) / beta. */
double naive_activation(const char *name, double beta, double z) {
    int row = find_activation(name);
    double scale = beta == 0 ? 1 : beta;
    if (isnan(z)) return z;
    if (z == -INFINITY) return activation_table[row].left;
    return activation_table[row].value(scale * z) / scale;
}

double naive_activation_slope(const char *name, double beta, double z) {
    const double far = 1e100; /* where every slope has its limit and nothing overflows yet */
    int row = find_activation(name);
    double scale = beta == 0 ? 1 : beta;
    if (isnan(z)) return z;
    return activation_table[row].slope(scale * (z > far ? far : z < -far ? -far : z));
}

double naive_cross_entropy(int64_t rows, int64_t vocab, const double *logits,
                           const int32_t *targets, double scale, double *dlogits) {
    double loss = 0;
    for (int64_t t = 0; t < rows; t++) {
        const double *row = logits + t * vocab;
        bool masked = targets[t] < 0;
        double largest = row[0], sum = 0;
        for (int64_t c = 1; c < vocab; c++) largest = fmax(largest, row[c]);
        for (int64_t c = 0; c < vocab; c++) sum += exp(row[c] - largest);
        if (!masked) loss += log(sum) + largest - row[targets[t]];
        for (int64_t c = 0; dlogits && c < vocab; c++) {
            double error = exp(row[c] - largest) / sum - (c == targets[t]);
            dlogits[t * vocab + c] = masked ? 0 : scale * error;
        }
    }
    return loss;
}
