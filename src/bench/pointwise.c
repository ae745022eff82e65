/* What a step does beside products, kernel by kernel, shared out by rows as nn does it, against a
 * stream of four reads and three writes. */
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "bench/bench.h"
#include "bench/figure.h"
#include "bench/stream.h"
#include "math/activation.h"
#include "math/dropout.h"
#include "math/loss.h"
#include "math/norm.h"
#include "nn/residual.h"
#include "run/setup.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BUFFERS = 4, CHUNK_ROWS = 32, MOST_KERNELS = 48 };

typedef struct {
    ModelConfig model;
    Grid *grid;
    int threads;
    Workspace space;    /* of what nn shares out */
    int64_t rows, cols; /* of a buffer: T, and the widest of D, F, V */
    real *buffer[BUFFERS];
    real *gain, *scale;
    double *sums;                 /* [T], or [row shards, D] */
    int32_t *target;              /* [T] */
    const Activation *activation; /* that kernels of one use */
} Pointwise;

/* What is timed. Work on `rows` of the buffers, `width` columns wide; elements count reads and
 * writes of memory in units of the buffer. */
typedef struct {
    const char *name;
    const Activation *activation; /* NULL: none is named */
    int64_t width;
    int reads, writes;
    void (*run)(Pointwise *p, int64_t width, Range rows);
    void (*run_all)(Pointwise *p, int64_t width); /* instead: shares out its rows by itself */
    Series seconds, ratio;
} Kernel;

static Tensor view(const Pointwise *p, int buffer, int64_t width) {
    return tensor_view(p->buffer[buffer], p->rows, width);
}

static real *at(const Pointwise *p, int buffer, int64_t width, Range rows) {
    return p->buffer[buffer] + rows.begin * width;
}

static void run_value(Pointwise *p, int64_t width, Range rows) {
    p->activation->value(range_size(rows) * width, at(p, 0, width, rows), 1, at(p, 1, width, rows));
}

static void run_slope(Pointwise *p, int64_t width, Range rows) {
    real *z = at(p, 0, width, rows);
    p->activation->slope(range_size(rows) * width, z, 1, z, at(p, 1, width, rows));
}

static void run_gated(Pointwise *p, int64_t width, Range rows) {
    activation_gated(&p->model.ffn.branches, range_size(rows) * width, at(p, 0, width, rows),
                     at(p, 1, width, rows), at(p, 2, width, rows));
}

static void run_gated_backward(Pointwise *p, int64_t width, Range rows) {
    real *gate = at(p, 0, width, rows), *up = at(p, 1, width, rows);
    activation_gated_backward(&p->model.ffn.branches, range_size(rows) * width, gate, up,
                              at(p, 2, width, rows), gate, up);
}

static void run_dropout(Pointwise *p, int64_t width, Range rows) {
    Dropout dropout = {{1, PHILOX_HIDDEN_DROPOUT, 0, 0, 0}, 0.1, 0};
    Tensor x = view(p, 0, width);
    dropout_apply(&dropout, rows, 0, x, x);
}

static void run_norm(Pointwise *p, int64_t width, Range rows) {
    norm_forward(rows, view(p, 0, width), p->gain, 1e-5, view(p, 1, width), p->scale);
}

static void run_loss_sums(Pointwise *p, int64_t width, Range rows) {
    Tensor logits = view(p, 0, width);
    for (int64_t t = rows.begin; t < rows.end; t++) p->scale[t] = (real)-INFINITY;
    loss_row_max(rows, logits, p->scale);
    loss_exp_sums(rows, logits, p->scale, p->sums);
}

static void run_loss_gradient(Pointwise *p, int64_t width, Range rows) {
    loss_gradient(rows, view(p, 0, width), 0, p->target, p->scale, p->sums, 1e-3);
}

static void run_norm_backward(Pointwise *p, int64_t width) {
    residual_norm_backward(&p->space, view(p, 0, width), view(p, 1, width), p->gain, p->scale,
                           view(p, 2, width), p->gain);
}

static void add(Pointwise *p, int64_t width, double probability) {
    Dropout dropout = {{1, PHILOX_OUTPUT_DROPOUT, 0, 0, 0}, probability, 0};
    residual_add(&p->space, view(p, 0, width), view(p, 1, width), NULL, &dropout,
                 view(p, 2, width));
}

static void run_add(Pointwise *p, int64_t width) { add(p, width, 0); }
static void run_add_dropout(Pointwise *p, int64_t width) { add(p, width, 0.1); }

/* ---- measuring ---- */

/* Values of about 1, or a kernel's input of another size: the sums that a gradient divides by. */
static void refill(Pointwise *p) {
    int64_t n = p->rows * p->cols;
#pragma omp parallel for num_threads(p->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        for (int b = 0; b < BUFFERS; b++) p->buffer[b][i] = (real)((i * 31 + b * 7) % 101) / 50 - 1;
    for (int64_t t = 0; t < p->rows; t++) {
        p->scale[t] = 1;
        p->sums[t] = 100;
    }
}

static void run_rows(Pointwise *p, const Kernel *kernel) {
    int64_t chunks = (p->rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
    if (kernel->run_all) {
        kernel->run_all(p, kernel->width);
        return;
    }
#pragma omp parallel for num_threads(p->threads) schedule(static)
    for (int64_t c = 0; c < chunks; c++) {
        int64_t end = (c + 1) * CHUNK_ROWS;
        kernel->run(p, kernel->width, (Range){c * CHUNK_ROWS, end < p->rows ? end : p->rows});
    }
}

static Hash128 state_of(const Pointwise *p) {
    Hash128 part[BUFFERS + 3];
    for (int b = 0; b < BUFFERS; b++)
        part[b] = hash_bytes(p->buffer[b], (size_t)(p->rows * p->cols) * sizeof(real));
    part[BUFFERS] = hash_bytes(p->gain, (size_t)p->cols * sizeof(real));
    part[BUFFERS + 1] = hash_bytes(p->scale, (size_t)p->rows * sizeof(real));
    part[BUFFERS + 2] = hash_bytes(p->sums, (size_t)p->rows * sizeof(double));
    return hash_bytes(part, sizeof part);
}

/* Nothing is the fastest kernel of all. */
static int check_kernels(Pointwise *p, const Kernel *kernel, int count) {
    for (int k = 0; k < count; k++) {
        refill(p);
        p->activation = kernel[k].activation;
        Hash128 before = state_of(p);
        run_rows(p, &kernel[k]);
        Hash128 after = state_of(p);
        if (hash_equal(before, after))
            return error_set(WEFT_RUNTIME, "the bench's kernel \"%s\" has changed nothing",
                             kernel[k].name);
    }
    return 0;
}

static double stream_of(Pointwise *p) {
    return stream_rate(p->threads, p->rows * p->cols, p->buffer[0], p->buffer[1], p->buffer[2],
                       p->buffer[3]);
}

static double bytes_of(const Pointwise *p, const Kernel *kernel) {
    return (double)((kernel->reads + kernel->writes) * p->rows * kernel->width) * sizeof(real);
}

static void take_pair(Pointwise *p, Kernel *kernel, int count, bool counts) {
    for (int k = 0; k < count; k++) {
        refill(p);
        double stream = stream_of(p);
        p->activation = kernel[k].activation;
        double start = clock_seconds();
        run_rows(p, &kernel[k]);
        double seconds = clock_seconds() - start;
        if (!counts) continue;
        series_add(&kernel[k].seconds, seconds);
        series_add(&kernel[k].ratio, bytes_of(p, &kernel[k]) / seconds / stream);
    }
}

static void print_kernel(const Pointwise *p, const Kernel *kernel) {
    char what[64], name[96];
    double seconds = series_figure(&kernel->seconds).median;
    snprintf(what, sizeof what, "%s%s%s", kernel->activation ? kernel->activation->name : "",
             kernel->activation ? " " : "", kernel->name);
    snprintf(name, sizeof name, "ns per element; %.1f GB/s, %d read, %d written",
             bytes_of(p, kernel) / seconds / 1e9, kernel->reads, kernel->writes);
    series_print(&kernel->seconds, what, 1e-9 * (double)(p->rows * kernel->width), name);
    snprintf(name, sizeof name, "%s / stream", what);
    series_print(&kernel->ratio, name, 1, "of its bytes/s");
}

static int list_kernels(const Pointwise *p, Kernel kernel[MOST_KERNELS]) {
    int64_t d = p->model.ffn.d_model, f = p->model.ffn.d_ff;
    int64_t v = p->model.kind == MODEL_MLP ? p->model.outputs : p->model.vocab;
    int count = 0;
    for (const Activation *row = activations; row->name; row++) {
        kernel[count++] = (Kernel){.name = "value",
                                   .activation = row,
                                   .width = f,
                                   .reads = 1,
                                   .writes = 1,
                                   .run = run_value};
        kernel[count++] = (Kernel){.name = "value and slope",
                                   .activation = row,
                                   .width = f,
                                   .reads = 1,
                                   .writes = 2,
                                   .run = run_slope};
    }
    const Kernel others[] = {
        {.name = "gated forward", .width = f, .reads = 2, .writes = 1, .run = run_gated},
        {.name = "gated backward", .width = f, .reads = 3, .writes = 2, .run = run_gated_backward},
        {.name = "dropout", .width = f, .reads = 1, .writes = 1, .run = run_dropout},
        {.name = "norm forward", .width = d, .reads = 1, .writes = 1, .run = run_norm},
        {.name = "norm backward",
         .width = d,
         .reads = 3,
         .writes = 1,
         .run_all = run_norm_backward},
        {.name = "residual add", .width = d, .reads = 2, .writes = 1, .run_all = run_add},
        {.name = "residual add with dropout",
         .width = d,
         .reads = 2,
         .writes = 2,
         .run_all = run_add_dropout},
        {.name = "cross-entropy sums", .width = v, .reads = 1, .writes = 0, .run = run_loss_sums},
        {.name = "cross-entropy gradient",
         .width = v,
         .reads = 1,
         .writes = 1,
         .run = run_loss_gradient},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) kernel[count++] = others[i];
    return count;
}

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static int take_memory(Pointwise *p) {
    size_t size = (size_t)(p->rows * p->cols) * sizeof(real);
    bool good = true;
    for (int b = 0; b < BUFFERS; b++)
        good = (p->buffer[b] = memory_allocate(size, "the bench's activations")) && good;
    int64_t sums = p->rows + p->space.row_shards * p->model.ffn.d_model;
    p->gain = memory_allocate((size_t)p->cols * sizeof(real), "a gain");
    p->scale = memory_allocate((size_t)p->rows * sizeof(real), "scales");
    p->sums = memory_allocate((size_t)sums * sizeof(double), "sums");
    p->target = memory_allocate((size_t)p->rows * sizeof(int32_t), "targets");
    good = good && p->gain && p->scale && p->sums && p->target;
    if (good) p->space.row_sums = p->sums + p->rows;
    return comm_agree(p->grid, GROUP_GRID, good ? 0 : WEFT_RUNTIME);
}

static void free_memory(Pointwise *p) {
    for (int b = 0; b < BUFFERS; b++) free(p->buffer[b]);
    free(p->gain);
    free(p->scale);
    free(p->sums);
    free(p->target);
}

static int measure(Pointwise *p, int pairs) {
    Kernel kernel[MOST_KERNELS];
    int count = list_kernels(p, kernel);
    int status = comm_agree(p->grid, GROUP_GRID, check_kernels(p, kernel, count));
    if (status) return status;
    for (int i = -1; i < pairs; i++) { /* the first warms up */
        take_pair(p, kernel, count, i >= 0);
        if (i >= 0) log_info("pair %d of %d", i + 1, pairs);
    }
    for (int k = 0; k < count; k++) print_kernel(p, &kernel[k]);
    return 0;
}

int bench_pointwise(const Bench *bench) {
    const Config *config = bench->config;
    ModelConfig model = setup_model(config, config->train.micro_batch, bench->threads);
    int64_t rows = model.sequences * model.context;
    int64_t outputs = model.kind == MODEL_MLP ? model.outputs : model.vocab;
    Pointwise p = {.model = model,
                   .grid = bench->grid,
                   .threads = bench->threads,
                   .space = {.threads = bench->threads,
                             .rows = rows,
                             .row_shards = shard_count(rows, model.grid_tensor)},
                   .rows = rows,
                   .cols = most(most(model.ffn.d_model, model.ffn.d_ff), outputs)};
    stream_init(&p.space.stream, rows, model.ffn.d_model, model.grid_tensor, false, 0, 1);
    int status = take_memory(&p);
    if (!status) status = measure(&p, bench->pairs);
    free_memory(&p);
    return status;
}
