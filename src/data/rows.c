/* Samples of array files: a row of inputs, and its targets or its class. */
#include "base/error.h"
#include "data/sample_kind.h"

#include <string.h>

static int open_arrays(void **source, const DatasetSpec *spec, const char *path) {
    ArraySource *arrays;
    int status = arrays_open(&arrays, path, &spec->arrays);
    *source = arrays;
    return status;
}

static void close_arrays(void *source) { arrays_close(source); }
static int64_t arrays_length(const void *source) { return arrays_rows(source); }
static int digest_arrays(const void *source, Hash128 *digest) {
    return arrays_digest(source, digest);
}

static int check_arrays(const void *source) { return arrays_check(source); }

/* The first `count` rows of `out`, normalised; the rest 0. */
static int read_numbers(const Dataset *data, const void *source, ArrayPart part, const int64_t *row,
                        int64_t count, Tensor out) {
    int64_t width = arrays_width(source, part), all = data->micro_batch * width;
    int status = arrays_gather(source, part, row, count, data->values);
    if (status) return status;
    normalise(&data->normalisation, part, data->values, count, width, out.data);
    memset(out.data + count * width, 0, (size_t)(all - count * width) * sizeof *out.data);
    return 0;
}

static int read_classes(const Dataset *data, const void *source, const int64_t *row, int64_t count,
                        int32_t *targets) {
    int status = arrays_gather(source, ARRAY_TARGETS, row, count, data->values);
    for (int64_t i = 0; !status && i < count; i++) targets[i] = (int32_t)data->values[i];
    return status;
}

static int read_rows(const Dataset *data, const void *source, const int64_t *first, int64_t end,
                     const Microbatch *batch) {
    int64_t count = 0;
    if (data->normalisation.number && !data->normalisation.known)
        return error_set(WEFT_RUNTIME, "the data's normalisation was neither measured nor loaded");
    while (count < data->micro_batch && first[count] < end) count++;
    for (int64_t i = 0; i < data->micro_batch; i++) batch->targets[i] = i < count ? 0 : -1;
    int status = read_numbers(data, source, ARRAY_INPUTS, first, count, batch->inputs);
    if (status) return status;
    if (batch->values.data)
        return read_numbers(data, source, ARRAY_TARGETS, first, count, batch->values);
    return read_classes(data, source, first, count, batch->targets);
}

const SampleKind samples_of_rows = {.items = "rows",
                                    .open = open_arrays,
                                    .close = close_arrays,
                                    .length = arrays_length,
                                    .digest = digest_arrays,
                                    .check = check_arrays,
                                    .read = read_rows};
