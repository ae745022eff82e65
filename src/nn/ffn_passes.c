#include "nn/ffn_passes.h"

#include <math.h>

enum { BLOCK = 1024 }; /* elements that a thread takes at a time */

/* out = f(x, y) over [n]. */
typedef void Operation(const Branches *branches, int64_t n, const real *x, const real *y,
                       real *out);

static void run(const Ffn *ffn, Operation *operation, Tensor x, Tensor y, Tensor out) {
    int64_t size = out.rows * out.cols;
#pragma omp parallel for num_threads(ffn->space->threads) schedule(static)
    for (int64_t at = 0; at < size; at += BLOCK)
        operation(&ffn->config.branches, size - at < BLOCK ? size - at : BLOCK, x.data + at,
                  y.data + at, out.data + at);
}

static void act(const Branches *branches, int64_t n, const real *x, const real *y, real *out) {
    (void)y;
    branches->activation->value(n, x, branches->beta, out);
}

void pass_act(const Ffn *ffn, Tensor z, Tensor a) { run(ffn, act, z, z, a); }

static void slope(const Branches *branches, int64_t n, const real *x, const real *y, real *out) {
    real value[BLOCK], by_y[BLOCK];
    branches->activation->slope(n, y, branches->beta, value, by_y);
    for (int64_t i = 0; i < n; i++) out[i] = x[i] * by_y[i];
}

void pass_slope(const Ffn *ffn, Tensor da, Tensor z, Tensor dz) { run(ffn, slope, da, z, dz); }

static void multiply(const Branches *branches, int64_t n, const real *x, const real *y, real *out) {
    (void)branches;
    for (int64_t i = 0; i < n; i++) out[i] = x[i] * y[i];
}

void pass_multiply(const Ffn *ffn, Tensor x, Tensor y, Tensor xy) { run(ffn, multiply, x, y, xy); }

static void copy(const Branches *branches, int64_t n, const real *x, const real *y, real *out) {
    (void)branches, (void)y;
    for (int64_t i = 0; i < n; i++) out[i] = x[i];
}

void pass_copy(const Ffn *ffn, Tensor x, Tensor y) { run(ffn, copy, x, x, y); }

/* ---- bounds ---- */

static real limit(double clamp) { return clamp > 0 ? (real)clamp : (real)INFINITY; }

/* NaN fails every comparison and stays. */
static void clamp_gate(const Branches *branches, int64_t n, const real *x, const real *y,
                       real *out) {
    (void)y;
    real most = limit(branches->gate_clamp);
    for (int64_t i = 0; i < n; i++) out[i] = x[i] > most ? most : x[i];
}

void pass_clamp_gate(const Ffn *ffn, Tensor g, Tensor y) { run(ffn, clamp_gate, g, g, y); }

static void clamp_linear(const Branches *branches, int64_t n, const real *x, const real *y,
                         real *out) {
    (void)y;
    real most = limit(branches->linear_clamp);
    for (int64_t i = 0; i < n; i++) out[i] = x[i] > most ? most : x[i] < -most ? -most : x[i];
}

void pass_clamp_linear(const Ffn *ffn, Tensor u, Tensor y) { run(ffn, clamp_linear, u, u, y); }

static void offset(const Branches *branches, int64_t n, const real *x, const real *y, real *out) {
    (void)y;
    real added = (real)branches->linear_offset;
    for (int64_t i = 0; i < n; i++) out[i] = x[i] + added;
}

void pass_offset(const Ffn *ffn, Tensor u, Tensor y) {
    run(ffn, ffn->config.branches.linear_offset != 0 ? offset : copy, u, u, y);
}

static void stop_gate(const Branches *branches, int64_t n, const real *x, const real *y,
                      real *out) {
    real most = limit(branches->gate_clamp);
    for (int64_t i = 0; i < n; i++) out[i] = y[i] > most ? 0 : x[i];
}

void pass_stop_gate(const Ffn *ffn, Tensor d, Tensor z, Tensor dz) {
    run(ffn, stop_gate, d, z, dz);
}

static void stop_linear(const Branches *branches, int64_t n, const real *x, const real *y,
                        real *out) {
    real most = limit(branches->linear_clamp);
    for (int64_t i = 0; i < n; i++) out[i] = y[i] > most || y[i] < -most ? 0 : x[i];
}

void pass_stop_linear(const Ffn *ffn, Tensor d, Tensor z, Tensor dz) {
    run(ffn, stop_linear, d, z, dz);
}
