#include "support/naive_mlp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct NaiveMlp {
    NaiveMlpConfig config;
    NaiveTensors tensors;
    const double *inputs, *values; /* of the last forward */
    const int32_t *targets;
    double divisor;
    double *states; /* [L + 1][T, D]: what each layer is given, and the final norm */
    double *outputs, *doutputs;
    double *dstate; /* [T, D]: the gradient on its way down */
};

static int64_t state_size(const NaiveMlp *mlp) {
    return mlp->config.ffn.rows * mlp->config.ffn.d_model;
}

static void declare_layer(NaiveMlp *mlp, int layer) {
    const NaiveMlpConfig *c = &mlp->config;
    int64_t d = c->ffn.d_model, f = c->ffn.d_ff;
    const struct {
        bool there;
        const char *name;
        int64_t rows, columns;
    } tensor[] = {{true, "norm.weight", d, 1},
                  {c->ffn.gated, "mlp.gate_proj.weight", f, d},
                  {c->gate_bias, "mlp.gate_proj.bias", f, 1},
                  {true, "mlp.up_proj.weight", f, d},
                  {c->up_bias, "mlp.up_proj.bias", f, 1},
                  {true, "mlp.down_proj.weight", d, f},
                  {c->down_bias, "mlp.down_proj.bias", d, 1}};
    for (size_t i = 0; i < sizeof tensor / sizeof *tensor; i++)
        if (tensor[i].there)
            naive_tensors_add_in_layer(&mlp->tensors, layer, tensor[i].name, tensor[i].rows,
                                       tensor[i].columns);
}

NaiveMlp *naive_mlp_open(const NaiveMlpConfig *config) {
    NaiveMlp *mlp = calloc(1, sizeof *mlp);
    if (!mlp) abort();
    mlp->config = *config;
    naive_tensors_add(&mlp->tensors, "input.weight", config->ffn.d_model, config->inputs);
    naive_tensors_add(&mlp->tensors, "input.bias", config->ffn.d_model, 1);
    for (int layer = 0; layer < config->layers; layer++) declare_layer(mlp, layer);
    naive_tensors_add(&mlp->tensors, "model.norm.weight", config->ffn.d_model, 1);
    naive_tensors_add(&mlp->tensors, "output.weight", config->outputs, config->ffn.d_model);
    naive_tensors_add(&mlp->tensors, "output.bias", config->outputs, 1);
    mlp->states = naive_array((config->layers + 1) * state_size(mlp));
    mlp->outputs = naive_array(config->ffn.rows * config->outputs);
    mlp->doutputs = naive_array(config->ffn.rows * config->outputs);
    mlp->dstate = naive_array(state_size(mlp));
    return mlp;
}

void naive_mlp_close(NaiveMlp *mlp) {
    naive_tensors_release(&mlp->tensors);
    free(mlp->states);
    free(mlp->outputs);
    free(mlp->doutputs);
    free(mlp->dstate);
    free(mlp);
}

const NaiveTensors *naive_mlp_tensors(const NaiveMlp *mlp) { return &mlp->tensors; }

const double *naive_mlp_outputs(const NaiveMlp *mlp) { return mlp->outputs; }

static const double *weight(const NaiveMlp *mlp, const char *name) {
    const NaiveTensor *tensor = naive_tensors_find(&mlp->tensors, name);
    return tensor ? tensor->weight : NULL;
}

static double *gradient(const NaiveMlp *mlp, const char *name) {
    const NaiveTensor *tensor = naive_tensors_find(&mlp->tensors, name);
    return tensor ? tensor->gradient : NULL;
}

/* NULL where the layer has no such tensor. */
static const NaiveTensor *in_layer(const NaiveMlp *mlp, int layer, const char *name) {
    char full[80];
    snprintf(full, sizeof full, "model.layers.%d.%s", layer, name);
    return naive_tensors_find(&mlp->tensors, full);
}

static const double *layer_weight(const NaiveMlp *mlp, int layer, const char *name) {
    const NaiveTensor *tensor = in_layer(mlp, layer, name);
    return tensor ? tensor->weight : NULL;
}

static double *layer_gradient(const NaiveMlp *mlp, int layer, const char *name) {
    const NaiveTensor *tensor = in_layer(mlp, layer, name);
    return tensor ? tensor->gradient : NULL;
}

static NaiveFfn ffn_of(const NaiveMlp *mlp, int layer) {
    NaiveFfn ffn = mlp->config.ffn;
    ffn.gate = layer_weight(mlp, layer, "mlp.gate_proj.weight");
    ffn.up = layer_weight(mlp, layer, "mlp.up_proj.weight");
    ffn.down = layer_weight(mlp, layer, "mlp.down_proj.weight");
    ffn.gate_bias = layer_weight(mlp, layer, "mlp.gate_proj.bias");
    ffn.up_bias = layer_weight(mlp, layer, "mlp.up_proj.bias");
    ffn.down_bias = layer_weight(mlp, layer, "mlp.down_proj.bias");
    ffn.layer = layer;
    return ffn;
}

/* out = x + ffn(norm(x)); all [T, D]. */
static void layer_forward(const NaiveMlp *mlp, int layer, const double *x, double *out) {
    const NaiveMlpConfig *c = &mlp->config;
    NaiveFfn ffn = ffn_of(mlp, layer);
    double *normed = naive_array(state_size(mlp));
    naive_rms_norm(c->ffn.rows, c->ffn.d_model, x, layer_weight(mlp, layer, "norm.weight"),
                   c->rms_eps, normed);
    naive_ffn(&ffn, normed, out);
    for (int64_t i = 0; i < state_size(mlp); i++) out[i] += x[i];
    free(normed);
}

double naive_squared_error(int64_t rows, int64_t n, const double *y, const double *values,
                           const int32_t *targets, double scale, double *dy) {
    double loss = 0;
    for (int64_t i = 0; i < rows * n; i++) {
        double error = targets[i / n] < 0 ? 0 : y[i] - values[i];
        loss += error * error / (double)n;
        if (dy) dy[i] = scale * 2 * error / (double)n;
    }
    return loss;
}

/* The sum of the losses; their gradient / divisor in doutputs. */
static double loss_of(NaiveMlp *mlp) {
    int64_t rows = mlp->config.ffn.rows, n = mlp->config.outputs;
    if (mlp->config.squared)
        return naive_squared_error(rows, n, mlp->outputs, mlp->values, mlp->targets,
                                   1 / mlp->divisor, mlp->doutputs);
    return naive_cross_entropy(rows, n, mlp->outputs, mlp->targets, 1 / mlp->divisor,
                               mlp->doutputs);
}

double naive_mlp_forward(NaiveMlp *mlp, const double *inputs, const int32_t *targets,
                         const double *values, double divisor) {
    const NaiveMlpConfig *c = &mlp->config;
    int64_t rows = c->ffn.rows, d = c->ffn.d_model, size = state_size(mlp);
    mlp->inputs = inputs;
    mlp->targets = targets;
    mlp->values = values;
    mlp->divisor = divisor;
    naive_linear(rows, d, c->inputs, inputs, weight(mlp, "input.weight"), weight(mlp, "input.bias"),
                 mlp->states);
    for (int layer = 0; layer < c->layers; layer++)
        layer_forward(mlp, layer, mlp->states + layer * size, mlp->states + (layer + 1) * size);
    double *normed = naive_array(size);
    naive_rms_norm(rows, d, mlp->states + c->layers * size, weight(mlp, "model.norm.weight"),
                   c->rms_eps, normed);
    naive_linear(rows, c->outputs, d, normed, weight(mlp, "output.weight"),
                 weight(mlp, "output.bias"), mlp->outputs);
    free(normed);
    return loss_of(mlp) / divisor;
}

/* dstate: in, the gradient of the layer's output (residual included); out, of x. */
static void layer_backward(const NaiveMlp *mlp, int layer, const double *x, double *dstate) {
    const NaiveMlpConfig *c = &mlp->config;
    int64_t rows = c->ffn.rows, d = c->ffn.d_model;
    const double *gain = layer_weight(mlp, layer, "norm.weight");
    double *normed = naive_array(rows * d), *dnormed = naive_array(rows * d);
    NaiveFfn ffn = ffn_of(mlp, layer);
    NaiveFfnGradients gradients = {.gate = layer_gradient(mlp, layer, "mlp.gate_proj.weight"),
                                   .up = layer_gradient(mlp, layer, "mlp.up_proj.weight"),
                                   .down = layer_gradient(mlp, layer, "mlp.down_proj.weight"),
                                   .gate_bias = layer_gradient(mlp, layer, "mlp.gate_proj.bias"),
                                   .up_bias = layer_gradient(mlp, layer, "mlp.up_proj.bias"),
                                   .down_bias = layer_gradient(mlp, layer, "mlp.down_proj.bias")};
    naive_rms_norm(rows, d, x, gain, c->rms_eps, normed);
    naive_ffn_backward(&ffn, normed, dstate, dnormed, &gradients);
    naive_rms_norm_backward(rows, d, x, gain, c->rms_eps, dnormed, dstate,
                            layer_gradient(mlp, layer, "norm.weight"));
    free(normed);
    free(dnormed);
}

/* Leaves the gradient of the last layer's output in dstate. */
static void output_backward(NaiveMlp *mlp) {
    const NaiveMlpConfig *c = &mlp->config;
    int64_t rows = c->ffn.rows, d = c->ffn.d_model, size = state_size(mlp);
    const double *gain = weight(mlp, "model.norm.weight"), *x = mlp->states + c->layers * size;
    double *normed = naive_array(size), *dnormed = naive_array(size);
    naive_rms_norm(rows, d, x, gain, c->rms_eps, normed);
    naive_linear_backward(rows, c->outputs, d, normed, weight(mlp, "output.weight"), mlp->doutputs,
                          dnormed, gradient(mlp, "output.weight"), gradient(mlp, "output.bias"));
    memset(mlp->dstate, 0, (size_t)size * sizeof *mlp->dstate);
    naive_rms_norm_backward(rows, d, x, gain, c->rms_eps, dnormed, mlp->dstate,
                            gradient(mlp, "model.norm.weight"));
    free(normed);
    free(dnormed);
}

void naive_mlp_backward(NaiveMlp *mlp) {
    const NaiveMlpConfig *c = &mlp->config;
    output_backward(mlp);
    for (int layer = (int)c->layers - 1; layer >= 0; layer--)
        layer_backward(mlp, layer, mlp->states + layer * state_size(mlp), mlp->dstate);
    naive_linear_backward(c->ffn.rows, c->ffn.d_model, c->inputs, mlp->inputs,
                          weight(mlp, "input.weight"), mlp->dstate, NULL,
                          gradient(mlp, "input.weight"), gradient(mlp, "input.bias"));
}
