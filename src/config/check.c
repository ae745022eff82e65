/* What concerns several options at once, and sizes that would overflow further down. */
#include "config/config.h"

#include "base/error.h"
#include "config/options.h"
#include "config/width.h"
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

/* What each model reads and ends in. */
static int check_model(const Config *c) {
    const char *kind = c->model.kind;
    if (is(c->data.kind, "hdf5") != config_is_mlp(c))
        return error_set(
            WEFT_USAGE,
            "model.kind = %s doesn't read data.kind = %s: an mlp reads hdf5, a decoder "
            "text or tokens",
            kind, c->data.kind);
    Config defaults;
    config_defaults(&defaults);
    for (int i = 0; i < OPTION_COUNT; i++)
        if (options[i].only && !is(kind, options[i].only) &&
            !option_equal(&options[i], c, &defaults))
            return error_set(WEFT_USAGE,
                             "%s.%s belongs to model.kind = %s, and model.kind is %s; leave it out",
                             options[i].section, options[i].key, options[i].only, kind);
    if (!config_is_mlp(c)) return 0;
    if (c->model.inputs < 1)
        return error_set(WEFT_USAGE, "model.inputs is not set: how many numbers a row has");
    int64_t least = is(c->model.loss, "cross_entropy") ? 2 : 1;
    if (c->model.outputs < least)
        return error_set(WEFT_USAGE,
                         "model.outputs = %" PRId64 ": under model.loss = %s at least %" PRId64,
                         c->model.outputs, c->model.loss, least);
    return 0;
}

static int check_heads(const Config *c) {
    if (config_is_mlp(c)) return 0;
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
    const FfnConfig ffn = {
        .kind = c->ffn.kind, .branches = config_branches(c), .d_ff = c->ffn.d_ff};
    if (!ffn.branches.activation)
        return error_set(WEFT_USAGE, "ffn.activation = %s: there is no such activation",
                         c->ffn.activation);
    return ffn_check(&ffn);
}

/* What only another rule for the width reads. */
static int check_width(const Config *c) {
    Config defaults;
    config_defaults(&defaults);
    for (const WidthKey *row = width_keys; row->key; row++) {
        const Option *option = &options[option_find("ffn", row->key)];
        if (is(c->ffn.width, row->rule) || option_equal(option, c, &defaults)) continue;
        return error_set(WEFT_USAGE, "ffn.%s belongs to ffn.width = %s, and ffn.width is %s",
                         row->key, row->rule, c->ffn.width);
    }
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

typedef struct {
    const char *what;
    int64_t factor[3], limit;
} Product;

static int check_products(const Product *products, size_t count) {
    for (size_t i = 0; i < count; i++) {
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

static const int64_t most_elements = INT64_C(1) << 40, most_rows = INT64_C(1) << 31,
                     most_tokens = INT64_C(1) << 62;

static int check_decoder_sizes(const Config *c) {
    int64_t context = c->model.context, micro = c->train.micro_batch, d = c->model.d_model;
    int64_t widest = c->model.vocab > c->ffn.d_ff ? c->model.vocab : c->ffn.d_ff;
    const Product products[] = {
        {"train.micro_batch * model.context", {micro, context, 1}, most_rows},
        {"model.vocab * model.d_model", {c->model.vocab, d, 1}, most_elements},
        {"model.d_model squared * model.layers", {d, d, c->model.layers}, most_elements},
        {"model.d_model * ffn.d_ff * model.layers",
         {d, c->ffn.d_ff, c->model.layers},
         most_elements},
        {"train.micro_batch * model.context * model.d_model", {micro, context, d}, most_elements},
        {"train.micro_batch * model.context * the larger of ffn.d_ff and model.vocab",
         {micro, context, widest},
         most_elements},
        {"model.heads * model.context squared", {c->model.heads, context, context}, most_elements},
        {"train.steps * train.global_batch * model.context",
         {c->train.steps, c->train.global_batch, context},
         most_tokens},
    };
    return check_products(products, sizeof products / sizeof products[0]);
}

static int check_mlp_sizes(const Config *c) {
    int64_t micro = c->train.micro_batch, d = c->model.d_model, layers = c->model.layers;
    const Product products[] = {
        {"train.micro_batch", {micro, 1, 1}, most_rows},
        {"model.inputs * model.d_model", {c->model.inputs, d, 1}, most_elements},
        {"model.outputs * model.d_model", {c->model.outputs, d, 1}, most_elements},
        {"model.d_model * ffn.d_ff * model.layers", {d, c->ffn.d_ff, layers}, most_elements},
        {"train.micro_batch * model.d_model", {micro, d, 1}, most_elements},
        {"train.micro_batch * ffn.d_ff", {micro, c->ffn.d_ff, 1}, most_elements},
        {"train.micro_batch * model.inputs", {micro, c->model.inputs, 1}, most_elements},
        {"train.micro_batch * model.outputs", {micro, c->model.outputs, 1}, most_elements},
        {"train.steps * train.global_batch",
         {c->train.steps, c->train.global_batch, 1},
         most_tokens},
    };
    return check_products(products, sizeof products / sizeof products[0]);
}

/* Elements of every kind of array stay below 2^40 (a float64 array below 8 TiB), rows of a
 * microbatch below 2^31 (they are a Philox word), so that no 64-bit size overflows later. */
static int check_sizes(const Config *c) {
    return config_is_mlp(c) ? check_mlp_sizes(c) : check_decoder_sizes(c);
}

int config_check(const Config *config) {
    static int (*const checks[])(const Config *) = {
        check_required, check_model, check_heads,    check_ffn,   check_width,
        check_batch,    check_data,  check_schedule, check_sizes,
    };
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        int result = checks[i](config);
        if (result) return result;
    }
    return 0;
}
