#include "support/naive.h"

#include <math.h>
#include <stdlib.h>

static double mask_factor(const NaiveFfn *ffn, int site, int64_t row, int64_t channel) {
    if (!ffn->mask) return 1;
    return ffn->mask(ffn->mask_context, site, ffn->layer, row, channel);
}

/* What down is given of one channel, before the mask, and its derivatives. */
typedef struct {
    double value, gate_slope, up_slope;
} Product;

static Product product_of(const NaiveFfn *ffn, double gate, double up) {
    const char *activation = ffn->activation;
    const NaiveBranches *b = &ffn->branches;
    if (!ffn->gated)
        return (Product){naive_activation(activation, b->beta, up), 0,
                         naive_activation_slope(activation, b->beta, up)};
    bool gate_passes = !(b->gate_clamp > 0 && gate > b->gate_clamp);
    double clamped = gate_passes ? gate : b->gate_clamp;
    double act = naive_activation(activation, b->beta, clamped);
    double act_slope = gate_passes ? naive_activation_slope(activation, b->beta, clamped) : 0;
    if (b->dual) {
        double other = naive_activation(activation, b->beta, up);
        return (Product){act * other, act_slope * other,
                         act * naive_activation_slope(activation, b->beta, up)};
    }
    bool up_passes = !(b->linear_clamp > 0 && fabs(up) > b->linear_clamp);
    double linear = (up_passes ? up : copysign(b->linear_clamp, up)) + b->linear_offset;
    return (Product){act * linear, act_slope * linear, up_passes ? act : 0};
}

/* Everything between x and y that backward needs, computed from x each time; all [T, F]. */
typedef struct {
    double *gate, *up; /* preactivations; dense has only up */
    double *hidden;    /* what down is given: the product times its mask */
} Inner;

static void free_inner(Inner *inner) {
    free(inner->gate);
    free(inner->up);
    free(inner->hidden);
}

static Inner compute_inner(const NaiveFfn *ffn, const double *x) {
    int64_t rows = ffn->rows, width = ffn->d_ff, size = rows * width;
    Inner inner = {naive_array(size), naive_array(size), naive_array(size)};
    if (ffn->gated)
        naive_linear(rows, width, ffn->d_model, x, ffn->gate, ffn->gate_bias, inner.gate);
    naive_linear(rows, width, ffn->d_model, x, ffn->up, ffn->up_bias, inner.up);
    for (int64_t i = 0; i < size; i++) {
        inner.hidden[i] = product_of(ffn, inner.gate[i], inner.up[i]).value *
                          mask_factor(ffn, NAIVE_HIDDEN, i / width, i % width);
    }
    return inner;
}

void naive_ffn(const NaiveFfn *ffn, const double *x, double *y) {
    Inner inner = compute_inner(ffn, x);
    naive_linear(ffn->rows, ffn->d_model, ffn->d_ff, inner.hidden, ffn->down, ffn->down_bias, y);
    for (int64_t i = 0; i < ffn->rows * ffn->d_model; i++)
        y[i] *= mask_factor(ffn, NAIVE_OUTPUT, i / ffn->d_model, i % ffn->d_model);
    free_inner(&inner);
}

/* Turns the gradient of hidden into those of the preactivations; dup comes in as dhidden. */
static void product_backward(const NaiveFfn *ffn, const Inner *inner, double *dgate, double *dup) {
    for (int64_t i = 0; i < ffn->rows * ffn->d_ff; i++) {
        Product product = product_of(ffn, inner->gate[i], inner->up[i]);
        double dproduct = dup[i] * mask_factor(ffn, NAIVE_HIDDEN, i / ffn->d_ff, i % ffn->d_ff);
        dgate[i] = dproduct * product.gate_slope;
        dup[i] = dproduct * product.up_slope;
    }
}

void naive_ffn_backward(const NaiveFfn *ffn, const double *x, const double *dy, double *dx,
                        const NaiveFfnGradients *gradients) {
    int64_t rows = ffn->rows, width = ffn->d_ff, d = ffn->d_model;
    Inner inner = compute_inner(ffn, x);
    double *doutput = naive_array(rows * d);
    double *dgate = naive_array(rows * width), *dup = naive_array(rows * width);
    for (int64_t i = 0; i < rows * d; i++)
        doutput[i] = dy[i] * mask_factor(ffn, NAIVE_OUTPUT, i / d, i % d);
    naive_linear_backward(rows, d, width, inner.hidden, ffn->down, doutput, dup, gradients->down,
                          gradients->down_bias);
    product_backward(ffn, &inner, dgate, dup);
    naive_linear_backward(rows, width, d, x, ffn->up, dup, dx, gradients->up, gradients->up_bias);
    if (ffn->gated)
        naive_linear_backward(rows, width, d, x, ffn->gate, dgate, dx, gradients->gate,
                              gradients->gate_bias);
    free(doutput);
    free(dgate);
    free(dup);
    free_inner(&inner);
}
