#include "run/trace_input.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "data/batch.h"
#include "data/source.h"
#include "run/normalisation.h"
#include "run/setup.h"

#include <stdlib.h>
#include <string.h>

/* ---- tokens ---- */

/* tokens [T] and targets [T], on one rank. */
static int read_window(const TraceInput *input, const Config *config, const char *path,
                       int64_t first) {
    TokenSource *source = NULL;
    int32_t *tokens = input->batch.tokens, *targets = input->batch.targets;
    int64_t rows = input->rows;
    int status = source_open(&source, path, config->data.kind, (int)config->data.token_bytes,
                             config->model.vocab);
    if (status) return status;
    int64_t length = source_length(source) - first, used = length < rows ? length : rows;
    int64_t known = length - 1 < rows ? length - 1 : rows; /* targets */
    if (known < 1)
        status = error_set(WEFT_INPUT,
                           "%s: %lld tokens from %lld on: at least 2 are needed to predict one",
                           path, (long long)(length < 0 ? 0 : length), (long long)first);
    if (!status) status = source_read(source, first, used, tokens);
    if (!status) status = source_read(source, first + 1, known, targets);
    for (int64_t t = known; t < rows; t++) targets[t] = -1;
    if (!status && length > rows + 1)
        log_info("%s: the model reads %lld tokens (model.context) from %lld on, of %lld", path,
                 (long long)rows, (long long)first, (long long)(first + length));
    if (!status && length < rows)
        log_info("%s has %lld tokens from %lld on: the window of %lld is padded with token 0", path,
                 (long long)length, (long long)first, (long long)rows);
    source_close(source);
    return status;
}

static int take_tokens(TraceInput *input, const Config *config) {
    input->sequences = 1;
    input->rows = config->model.context;
    input->batch.tokens = memory_allocate((size_t)input->rows * sizeof(int32_t), "tokens");
    input->batch.targets = memory_allocate((size_t)input->rows * sizeof(int32_t), "targets");
    return input->batch.tokens && input->batch.targets ? 0 : WEFT_RUNTIME;
}

static int read_tokens(TraceInput *input, const Config *config, const char *path, int64_t first,
                       Grid *grid) {
    int status = take_tokens(input, config);
    if (!status && group_rank(grid, GROUP_GRID) == 0)
        status = read_window(input, config, path, first);
    return comm_agree(grid, GROUP_GRID, status);
}

/* ---- rows ---- */

static int take_tensor(Tensor *tensor, int64_t rows, int64_t cols, const char *what) {
    *tensor = tensor_view(memory_allocate((size_t)(rows * cols) * sizeof(real), what), rows, cols);
    return tensor->data ? 0 : WEFT_RUNTIME;
}

/* rows is known. */
static int take_rows(TraceInput *input, const ArraySpec *spec) {
    Microbatch *batch = &input->batch;
    batch->targets = memory_allocate((size_t)input->rows * sizeof(int32_t), "targets");
    int status = batch->targets ? 0 : WEFT_RUNTIME;
    if (!status)
        status = take_tensor(&batch->inputs, input->rows, spec->width[ARRAY_INPUTS], "inputs");
    if (!status && !spec->classes)
        status = take_tensor(&batch->values, input->rows, spec->width[ARRAY_TARGETS], "targets");
    return status;
}

/* Of the training rows. */
static int measure(Normalisation *normalisation, const DatasetSpec *spec) {
    Dataset data;
    int status = dataset_open(&data, spec);
    if (status) return status;
    status = dataset_normalise(&data);
    if (!status)
        memcpy(normalisation->number, data.normalisation.number,
               (size_t)normalisation->numbers * sizeof *normalisation->number);
    normalisation->known = !status;
    dataset_close(&data);
    return status;
}

static int find_normalisation(Normalisation *normalisation, const DatasetSpec *spec,
                              const char *directory) {
    const int64_t *width = spec->arrays.width;
    const int64_t columns[] = {width[ARRAY_INPUTS],
                               spec->arrays.classes ? 0 : width[ARRAY_TARGETS]};
    if (!spec->normalise) return 0;
    int status = normalisation_open(normalisation, columns);
    if (status || !directory) return status ? status : measure(normalisation, spec);
    json_t *manifest;
    status = checkpoint_manifest(directory, &manifest);
    if (!status) status = normalisation_take(normalisation, manifest, directory);
    json_decref(manifest);
    return status;
}

/* One part of all rows, on one rank. */
static int read_part(const TraceInput *input, const ArraySource *source, int64_t first,
                     ArrayPart part) {
    const Microbatch *batch = &input->batch;
    int64_t width = arrays_width(source, part);
    Tensor to = part == ARRAY_INPUTS ? batch->inputs : batch->values;
    double *values =
        memory_allocate((size_t)(input->rows * width) * sizeof *values, "rows of the input");
    int status = values ? arrays_read(source, part, first, input->rows, values) : WEFT_RUNTIME;
    if (!status && to.data)
        normalise(&input->normalisation, part, values, input->rows, width, to.data);
    for (int64_t t = 0; !status && !to.data && t < input->rows; t++)
        batch->targets[t] = (int32_t)values[t]; /* classes */
    free(values);
    return status;
}

static int read_parts(const TraceInput *input, const ArraySource *source, int64_t first) {
    int status = read_part(input, source, first, ARRAY_INPUTS);
    if (status || arrays_has(source, ARRAY_TARGETS))
        return status ? status : read_part(input, source, first, ARRAY_TARGETS);
    Tensor values = input->batch.values;
    if (values.data) memset(values.data, 0, (size_t)(values.rows * values.cols) * sizeof(real));
    for (int64_t t = 0; t < input->rows; t++) input->batch.targets[t] = -1;
    return 0;
}

static int open_rows(TraceInput *input, ArraySource **source, const DatasetSpec *spec,
                     const char *path, int64_t first) {
    ArraySpec arrays = spec->arrays;
    arrays.unlabelled = true;
    int status = arrays_open(source, path, &arrays);
    if (status) return status;
    if (!arrays_has(*source, ARRAY_TARGETS))
        log_info("%s has no dataset %s (data.targets): outputs without a loss", path,
                 arrays.name[ARRAY_TARGETS]);
    int64_t all = arrays_rows(*source), rows = all - first;
    if (rows < 1)
        return error_set(WEFT_INPUT, "%s: there are %lld rows in it, none from %lld on", path,
                         (long long)all, (long long)first);
    input->rows = rows < TRACE_ROWS ? rows : TRACE_ROWS;
    if (input->rows < rows)
        log_info("%s: the model reads %lld rows from %lld on, of %lld; --first %lld goes on", path,
                 (long long)input->rows, (long long)first, (long long)all,
                 (long long)(first + input->rows));
    return 0;
}

static int read_rows(TraceInput *input, const Config *config, const char *directory,
                     const char *path, int64_t first, Grid *grid) {
    DatasetSpec spec = setup_dataset(config);
    ArraySource *source = NULL;
    bool reads = group_rank(grid, GROUP_GRID) == 0;
    int status =
        comm_agree(grid, GROUP_GRID, reads ? open_rows(input, &source, &spec, path, first) : 0);
    if (!status) {
        comm_broadcast(grid, GROUP_GRID, &input->rows, sizeof input->rows, 0);
        input->sequences = input->rows;
        status = take_rows(input, &spec.arrays);
        if (!status && reads) status = find_normalisation(&input->normalisation, &spec, directory);
        if (!status && reads) status = read_parts(input, source, first);
        status = comm_agree(grid, GROUP_GRID, status);
    }
    if (source) arrays_close(source);
    return status;
}

/* ---- both ---- */

static void share(Grid *grid, Tensor tensor) {
    if (tensor.data)
        comm_broadcast(grid, GROUP_GRID, tensor.data,
                       (size_t)(tensor.rows * tensor.cols) * sizeof *tensor.data, 0);
}

int trace_input_read(TraceInput *input, const Config *config, const char *directory,
                     const char *path, int64_t first, Grid *grid) {
    *input = (TraceInput){.targets = 0};
    int status = config_is_mlp(config) ? read_rows(input, config, directory, path, first, grid)
                                       : read_tokens(input, config, path, first, grid);
    if (status) return status;
    const Microbatch *batch = &input->batch;
    size_t bytes = (size_t)input->rows * sizeof(int32_t);
    if (batch->tokens) comm_broadcast(grid, GROUP_GRID, batch->tokens, bytes, 0);
    comm_broadcast(grid, GROUP_GRID, batch->targets, bytes, 0);
    share(grid, batch->inputs);
    share(grid, batch->values);
    for (int64_t t = 0; t < input->rows; t++) input->targets += batch->targets[t] >= 0;
    return 0;
}

void trace_input_release(TraceInput *input) {
    free(input->batch.tokens);
    free(input->batch.targets);
    free(input->batch.inputs.data);
    free(input->batch.values.data);
    normalisation_close(&input->normalisation);
    *input = (TraceInput){.targets = 0};
}

static int write_tensor(TraceFile *file, const char *name, Tensor x) {
    TraceBlock block = {x.rows, x.cols, 0, x.rows, x.data};
    return trace_put(file, name, &block);
}

int trace_input_write(const TraceInput *input, TraceFile *file) {
    const Microbatch *batch = &input->batch;
    int status = batch->tokens ? trace_put_integers(file, "tokens", batch->tokens, input->rows)
                               : write_tensor(file, "inputs", batch->inputs);
    if (status || !input->targets) return status;
    return batch->values.data ? write_tensor(file, "targets", batch->values)
                              : trace_put_integers(file, "targets", batch->targets, input->rows);
}

bool trace_input_has_units(const TraceInput *input) {
    return input->normalisation.known && input->normalisation.columns[ARRAY_TARGETS] > 0;
}

void trace_input_undo(const TraceInput *input, int64_t rows, int64_t cols, real *outputs) {
    const double *mean = input->normalisation.mean[ARRAY_TARGETS];
    const double *scale = input->normalisation.scale[ARRAY_TARGETS];
    for (int64_t i = 0; i < rows * cols; i++)
        outputs[i] = (real)((double)outputs[i] * scale[i % cols] + mean[i % cols]);
}
