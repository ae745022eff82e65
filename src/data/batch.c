#include "data/batch.h"

#include "base/error.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Where the held-out part lies. */
static int place_held(Dataset *data, const DatasetSpec *spec) {
    int64_t tokens = source_length(data->train);
    data->train_tokens = tokens;
    if (spec->held[0]) {
        int status =
            source_open(&data->held, spec->held, spec->kind, spec->token_bytes, spec->vocab);
        if (status) return status;
        data->held_apart = true;
        data->held_tokens = source_length(data->held);
    } else if (spec->held_out > 0) {
        data->held = data->train;
        data->held_tokens = (int64_t)floor((double)tokens * spec->held_out);
        data->held_first = data->train_tokens = tokens - data->held_tokens;
    }
    if (data->held && data->held_tokens < 2)
        return error_set(WEFT_INPUT,
                         "%s: too short: %" PRId64 " tokens are held out of %" PRId64
                         "; at least 2 are needed to predict one",
                         data->held_apart ? spec->held : spec->train, data->held_tokens,
                         data->held_apart ? data->held_tokens : tokens);
    return 0;
}

int dataset_open(Dataset *data, const DatasetSpec *spec) {
    *data = (Dataset){.context = spec->context, .micro_batch = spec->micro_batch};
    int status = source_open(&data->train, spec->train, spec->kind, spec->token_bytes, spec->vocab);
    if (!status) status = place_held(data, spec);
    if (status) goto failed;
    data->order = (SampleOrder){spec->seed, (data->train_tokens - 1) / data->context};
    if (data->order.samples < spec->global_batch) {
        status =
            error_set(WEFT_INPUT,
                      "%s: too short: %" PRId64 " tokens to train on; one global batch of %" PRId64
                      " sequences of %" PRId64 " needs %" PRId64,
                      spec->train, data->train_tokens, spec->global_batch, spec->context,
                      spec->global_batch * spec->context + 1);
        goto failed;
    }
    return 0;
failed:
    dataset_close(data);
    return status;
}

void dataset_close(Dataset *data) {
    if (data->held_apart) source_close(data->held);
    source_close(data->train);
    memset(data, 0, sizeof *data);
}

/* One sequence: tokens [context] and targets [context] from `first`; past `end` padded. Each token
 * is read once. */
static int read_sequence(const Dataset *data, const TokenSource *source, int64_t first, int64_t end,
                         int32_t *tokens, int32_t *targets) {
    int64_t context = data->context, count = end - first - 1;
    if (count > context) count = context;
    if (count < 0) count = 0;
    if (count) {
        int status = source_read(source, first, count, tokens);
        if (!status) status = source_read(source, first + count, 1, &targets[count - 1]);
        if (status) return status;
        memcpy(targets, tokens + 1, (size_t)(count - 1) * sizeof *targets);
    }
    for (int64_t i = count; i < context; i++) {
        tokens[i] = 0;
        targets[i] = -1;
    }
    return 0;
}

int dataset_train_batch(const Dataset *data, int64_t step, int64_t global_batch, int64_t microbatch,
                        const Microbatch *batch, int64_t *sample_ids) {
    for (int64_t i = 0; i < data->micro_batch; i++) {
        int64_t place = microbatch * data->micro_batch + i;
        int64_t sample = order_sample(&data->order, step, global_batch, place);
        int status =
            read_sequence(data, data->train, sample * data->context, data->train_tokens,
                          batch->tokens + i * data->context, batch->targets + i * data->context);
        if (status) return status;
        if (sample_ids) sample_ids[i] = sample;
    }
    return 0;
}

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int64_t all_windows(const Dataset *data) {
    return data->held_tokens > 1 ? divide_up(data->held_tokens - 1, data->context) : 0;
}

static int64_t eval_windows(const Dataset *data, int64_t sequences) {
    int64_t all = all_windows(data);
    return sequences && sequences < all ? sequences : all;
}

int64_t dataset_eval_batches(const Dataset *data, int64_t sequences) {
    return divide_up(eval_windows(data, sequences), data->micro_batch);
}

int dataset_eval_batch(const Dataset *data, int64_t sequences, int64_t microbatch,
                       const Microbatch *batch) {
    int64_t all = all_windows(data), taken = eval_windows(data, sequences);
    int64_t end = data->held_first + data->held_tokens;
    for (int64_t i = 0; i < data->micro_batch; i++) {
        int64_t place = microbatch * data->micro_batch + i, first = end;
        if (place < taken) /* spread over the whole part: neighbours are alike */
            first = data->held_first + place * all / taken * data->context;
        int status = read_sequence(data, data->held, first, end, batch->tokens + i * data->context,
                                   batch->targets + i * data->context);
        if (status) return status;
    }
    return 0;
}
