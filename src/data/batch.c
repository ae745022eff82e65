#include "data/batch.h"

#include "base/error.h"
#include "base/memory.h"
#include "data/sample_kind.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name; /* data.kind */
    const SampleKind *kind;
} kinds[] = {
    {"text", &samples_of_tokens}, {"tokens", &samples_of_tokens}, {"hdf5", &samples_of_rows}};

static const SampleKind *find_kind(const char *name) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, name)) return kinds[i].kind;
    return NULL;
}

const char *dataset_items(const Dataset *data) { return data->kind->items; }

/* Where the held-out part lies. */
static int place_held(Dataset *data, const DatasetSpec *spec) {
    const SampleKind *kind = data->kind;
    int64_t items = kind->length(data->train), least = 1 + kind->beyond;
    data->train_items = items;
    if (spec->held[0]) {
        int status = kind->open(&data->held, spec, spec->held);
        if (status) return status;
        data->held_apart = true;
        data->held_items = kind->length(data->held);
    } else if (spec->held_out > 0) {
        data->held = data->train;
        data->held_items = (int64_t)floor((double)items * spec->held_out);
        data->held_first = data->train_items = items - data->held_items;
    }
    if (data->held && data->held_items < least)
        return error_set(WEFT_INPUT,
                         "%s: too short: %" PRId64 " %s are held out of %" PRId64
                         "; at least %" PRId64 " are needed to predict one",
                         data->held_apart ? spec->held : spec->train, data->held_items, kind->items,
                         data->held_apart ? data->held_items : items, least);
    return 0;
}

static int check_length(const Dataset *data, const DatasetSpec *spec) {
    int64_t needed = spec->global_batch * spec->context + data->kind->beyond;
    if (data->order.samples >= spec->global_batch) return 0;
    return error_set(WEFT_INPUT,
                     "%s: too short: %" PRId64 " %s to train on; one global batch of %" PRId64
                     " sequences of %" PRId64 " needs %" PRId64,
                     spec->train, data->train_items, data->kind->items, spec->global_batch,
                     spec->context, needed);
}

static int allocate(Dataset *data, const DatasetSpec *spec) {
    const int64_t *width = spec->arrays.width;
    int64_t inputs = width[ARRAY_INPUTS], outputs = spec->arrays.classes ? 0 : width[ARRAY_TARGETS];
    int64_t widest = inputs > outputs ? inputs : outputs;
    size_t samples = (size_t)data->micro_batch;
    data->first = memory_allocate(samples * sizeof *data->first, "sample ids of a microbatch");
    data->values =
        memory_allocate(samples * (size_t)widest * sizeof *data->values, "rows of a microbatch");
    if (!data->first || !data->values) return WEFT_RUNTIME;
    return spec->normalise
               ? normalisation_open(&data->normalisation, (const int64_t[]){inputs, outputs})
               : 0;
}

int dataset_open(Dataset *data, const DatasetSpec *spec) {
    *data = (Dataset){
        .kind = find_kind(spec->kind), .context = spec->context, .micro_batch = spec->micro_batch};
    if (!data->kind) return error_set(WEFT_USAGE, "data.kind = %s: there is no such", spec->kind);
    int status = data->kind->open(&data->train, spec, spec->train);
    if (!status) status = place_held(data, spec);
    if (!status) {
        data->order =
            (SampleOrder){spec->seed, (data->train_items - data->kind->beyond) / data->context};
        status = check_length(data, spec);
    }
    if (!status) status = allocate(data, spec);
    if (status) dataset_close(data);
    return status;
}

void dataset_close(Dataset *data) {
    if (data->held_apart) data->kind->close(data->held);
    if (data->train) data->kind->close(data->train);
    normalisation_close(&data->normalisation);
    free(data->first);
    free(data->values);
    memset(data, 0, sizeof *data);
}

int dataset_digests(const Dataset *data, Hash128 *train, Hash128 *held) {
    int status = data->kind->digest(data->train, train);
    *held = *train;
    return !status && data->held_apart ? data->kind->digest(data->held, held) : status;
}

int dataset_check(const Dataset *data) {
    if (!data->kind->check) return 0;
    int status = data->kind->check(data->train);
    return !status && data->held_apart ? data->kind->check(data->held) : status;
}

int dataset_normalise(Dataset *data) {
    Normalisation *normalisation = &data->normalisation;
    if (!normalisation->number || normalisation->known) return 0;
    return normalisation_measure(normalisation, data->train, data->train_items);
}

int dataset_train_batch(const Dataset *data, int64_t step, int64_t global_batch, int64_t microbatch,
                        const Microbatch *batch, int64_t *sample_ids) {
    for (int64_t i = 0; i < data->micro_batch; i++) {
        int64_t place = microbatch * data->micro_batch + i;
        int64_t sample = order_sample(&data->order, step, global_batch, place);
        data->first[i] = sample * data->context;
        if (sample_ids) sample_ids[i] = sample;
    }
    return data->kind->read(data, data->train, data->first, data->train_items, batch);
}

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int64_t all_windows(const Dataset *data) {
    int64_t items = data->held_items - data->kind->beyond;
    return items > 0 ? divide_up(items, data->context) : 0;
}

static int64_t eval_windows(const Dataset *data, int64_t samples) {
    int64_t all = all_windows(data);
    return samples && samples < all ? samples : all;
}

int64_t dataset_eval_batches(const Dataset *data, int64_t samples) {
    return divide_up(eval_windows(data, samples), data->micro_batch);
}

/* place * all / taken without overflow. */
static int64_t spread(int64_t place, int64_t all, int64_t taken) {
    return place * (all / taken) + place * (all % taken) / taken;
}

int dataset_eval_batch(const Dataset *data, int64_t samples, int64_t microbatch,
                       const Microbatch *batch) {
    int64_t all = all_windows(data), taken = eval_windows(data, samples);
    int64_t end = data->held_first + data->held_items;
    for (int64_t i = 0; i < data->micro_batch; i++) {
        int64_t place = microbatch * data->micro_batch + i;
        data->first[i] = end;
        if (place < taken) /* spread over the whole part: neighbours are alike */
            data->first[i] = data->held_first + spread(place, all, taken) * data->context;
    }
    return data->kind->read(data, data->held, data->first, end, batch);
}
