/* What concerns several options at once, and sizes that would overflow further down. */
#include "config/config.h"

#include "base/error.h"
#include "math/activation.h"
#include "nn/ffn.h"
#include "tensor/philox.h"

#include <inttypes.h>
#include <string.h>

static bool is(const char *value, const char *choice) { return !strcmp(value, choice); }

static int check_required(const Config *c) {
    if (!c->run.dir[0]) return error_set(WEFT_USAGE, "run.dir is not set: where the run is kept");
    if (!c->data.train[0])
        return error_set(WEFT_USAGE, "data.train is not set: the file to train on");
    return 0;
}

static int check_heads(const Config *c) {
    int64_t d_model = c->model.d_model, heads = c->model.heads, kv_heads = c->model.kv_heads;
    if (d_model % heads)
        return error_set(WEFT_USAGE,
                         "model.d_model = %" PRId64 " is not a multiple of model.heads = %" PRId64
                         " (remainder %" PRId64 ")",
                         d_model, heads, d_model % heads);
    if (d_model / heads % 2)
        return error_set(WEFT_USAGE,
                         "model.d_model / model.heads = %" PRId64 " / %" PRId64 " = %" PRId64
                         ": rotary positions need an even head width",
                         d_model, heads, d_model / heads);
    if (heads % kv_heads)
        return error_set(WEFT_USAGE,
                         "model.heads = %" PRId64 " is not a multiple of model.kv_heads = %" PRId64,
                         heads, kv_heads);
    return 0;
}

static int check_ffn(const Config *c) {
    if (!ffn_find(c->ffn.kind))
        return error_set(WEFT_USAGE, "ffn.kind = %s: there is no such kind", c->ffn.kind);
    if (!activation_find(c->ffn.activation))
        return error_set(WEFT_USAGE, "ffn.activation = %s: there is no such activation",
                         c->ffn.activation);
    return 0;
}

static int check_batch(const Config *c) {
    int64_t batch = c->train.global_batch, micro = c->train.micro_batch, data = c->grid.data;
    if (batch % (data * micro))
        return error_set(WEFT_USAGE,
                         "train.global_batch = %" PRId64 " is not a multiple of grid.data * "
                         "train.micro_batch = %" PRId64 " * %" PRId64 " = %" PRId64
                         "; the nearest above is %" PRId64,
                         batch, data, micro, data * micro,
                         (batch / (data * micro) + 1) * data * micro);
    if (batch / micro > PHILOX_MAX_MICROBATCHES)
        return error_set(WEFT_USAGE,
                         "train.global_batch / train.micro_batch = %" PRId64 " / %" PRId64
                         " = %" PRId64 " microbatches; at most %d",
                         batch, micro, batch / micro, PHILOX_MAX_MICROBATCHES);
    return 0;
}

static int check_schedule(const Config *c) {
    if (c->optim.warmup > c->train.steps)
        return error_set(WEFT_USAGE,
                         "optim.warmup = %" PRId64 " exceeds train.steps = %" PRId64
                         ": the learning rate would never be reached; lower optim.warmup",
                         c->optim.warmup, c->train.steps);
    if (c->optim.min_lr > c->optim.lr)
        return error_set(WEFT_USAGE, "optim.min_lr = %g exceeds optim.lr = %g", c->optim.min_lr,
                         c->optim.lr);
    return 0;
}

static int check_data(const Config *c) {
    if (is(c->data.kind, "text") && c->model.vocab < 256)
        return error_set(WEFT_USAGE,
                         "model.vocab = %" PRId64
                         ": data.kind = text has 256 tokens (bytes); at least 256",
                         c->model.vocab);
    if (c->data.token_bytes == 3)
        return error_set(WEFT_USAGE, "data.token_bytes = 3: expected 2 or 4");
    if (c->eval.every && !c->data.held[0] && c->data.held_out == 0)
        return error_set(
            WEFT_USAGE,
            "eval.every = %" PRId64
            " needs a held-out part: set data.held_out or data.held, or eval.every = 0",
            c->eval.every);
    return 0;
}

/* Elements of every kind of array stay below 2^40 (a float64 array below 8 TiB), rows of a
 * microbatch below 2^31 (they are a Philox word), so that no 64-bit size overflows later. */
static int check_sizes(const Config *c) {
    int64_t context = c->model.context, micro = c->train.micro_batch;
    int64_t widest = c->model.vocab > c->ffn.d_ff ? c->model.vocab : c->ffn.d_ff;
    const struct {
        const char *what;
        int64_t factor[3], limit;
    } products[] = {
        {"train.micro_batch * model.context", {micro, context, 1}, INT64_C(1) << 31},
        {"model.vocab * model.d_model", {c->model.vocab, c->model.d_model, 1}, INT64_C(1) << 40},
        {"model.d_model squared * model.layers",
         {c->model.d_model, c->model.d_model, c->model.layers},
         INT64_C(1) << 40},
        {"model.d_model * ffn.d_ff * model.layers",
         {c->model.d_model, c->ffn.d_ff, c->model.layers},
         INT64_C(1) << 40},
        {"train.micro_batch * model.context * model.d_model",
         {micro, context, c->model.d_model},
         INT64_C(1) << 40},
        {"train.micro_batch * model.context * the larger of ffn.d_ff and model.vocab",
         {micro, context, widest},
         INT64_C(1) << 40},
        {"model.heads * model.context squared",
         {c->model.heads, context, context},
         INT64_C(1) << 40},
        {"train.steps * train.global_batch * model.context",
         {c->train.steps, c->train.global_batch, context},
         INT64_C(1) << 62},
    };
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        const int64_t *factor = products[i].factor;
        int64_t product;
        if (!__builtin_mul_overflow(factor[0], factor[1], &product) &&
            !__builtin_mul_overflow(product, factor[2], &product) && product < products[i].limit)
            continue;
        return error_set(WEFT_USAGE,
                         "%s = %" PRId64 " * %" PRId64 " * %" PRId64
                         " is too large: it must stay below %" PRId64,
                         products[i].what, factor[0], factor[1], factor[2], products[i].limit);
    }
    return 0;
}

int config_check(const Config *config) {
    static int (*const checks[])(const Config *) = {
        check_required, check_heads, check_ffn,   check_batch,
        check_schedule, check_data,  check_sizes,
    };
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        int result = checks[i](config);
        if (result) return result;
    }
    return 0;
}
