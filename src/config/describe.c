/* The config as a manifest says it: what defines the function, and every detail that a reader of
 * the tensors would otherwise have to guess from shapes. */
#include "config/config.h"

#include "base/real.h"
#include "config/options.h"
#include "data/order.h"
#include "math/activation.h"
#include "nn/ffn.h"

#include <math.h>
#include <string.h>

/* Adds an option's value under its section, or under `block` when that isn't NULL. */
static int add_option(json_t *object, const char *block, const Option *option,
                      const Config *config) {
    const char *name = block ? block : option->section;
    json_t *section = json_object_get(object, name);
    if (!section) {
        section = json_object();
        if (json_object_set_new(object, name, section)) return -1;
    }
    return json_object_set_new(section, option->key, option_json(option, config));
}

/* Whether the function depends on this option, of those that may define it. */
static bool defines_here(const Option *option, const Config *config, const Config *defaults) {
    if (option->only && strcmp(option->only, config->model.kind)) return false;
    return !option->later || !option_equal(option, config, defaults);
}

json_t *config_function(const Config *config, int64_t samples) {
    json_t *function = json_pack("{s:{s:i, s:I}}", "sample_order", "version", ORDER_VERSION,
                                 "samples", (json_int_t)samples);
    Config defaults;
    config_defaults(&defaults);
    int failed = !function;
    for (int i = 0; !failed && i < OPTION_COUNT; i++) {
        if (options[i].role == ROLE_STEERS || !defines_here(&options[i], config, &defaults))
            continue;
        const char *block = options[i].role == ROLE_ORDERS ? "sample_order" : NULL;
        failed = add_option(function, block, &options[i], config);
    }
    if (!failed) return function;
    json_decref(function);
    return NULL;
}

/* The linear maps of the model, [out, in] each. */
enum { IN_RESIDUAL = 1, VOCAB_TABLE = 2, NEEDS_GATE = 4 };

typedef struct {
    const char *name;
    int64_t out, in;
    const char *split; /* the axis cut into grid.tensor shards */
    int traits;
    bool bias;
} Projection;

/* o and down write into the residual stream: their initial weights are scaled by
 * 1/sqrt(2 * layers) (Radford et al. 2019, section 2.3). Embedding and lm head, which
 * may be one tensor, have init.std under both schemes. */
static json_t *projection_json(const Projection *p, const Config *c) {
    bool fan_in = !strcmp(c->init.scheme, "fan_in") && !(p->traits & VOCAB_TABLE);
    double std = fan_in ? 1 / sqrt((double)p->in) : c->init.std;
    bool residual = p->traits & IN_RESIDUAL;
    double scale = residual ? 1 / sqrt(2.0 * (double)c->model.layers) : 1;
    return json_pack("{s:s, s:[I,I], s:s, s:s, s:b, s:{s:s, s:f, s:s, s:f, s:s*}}", "name", p->name,
                     "shape", (json_int_t)p->out, (json_int_t)p->in, "storage", "[out, in]",
                     "split", p->split, "bias", p->bias, "initializer", "distribution", "normal",
                     "std", std * scale, "scheme", fan_in ? "fan_in" : "fixed", "residual_scale",
                     scale, "residual_rule", residual ? "1/sqrt(2 * layers)" : NULL);
}

static json_t *projections_json(const Config *c) {
    int64_t d = c->model.d_model, f = c->ffn.d_ff, kv = d / c->model.heads * c->model.kv_heads;
    FfnBiases bias = config_ffn_biases(c);
    const Projection list[] = {
        {"self_attn.q_proj", d, d, "out", 0, false},
        {"self_attn.k_proj", kv, d, "out", 0, false},
        {"self_attn.v_proj", kv, d, "out", 0, false},
        {"self_attn.o_proj", d, d, "in", IN_RESIDUAL, false},
        {"mlp.gate_proj", f, d, "out", NEEDS_GATE, bias.gate},
        {"mlp.up_proj", f, d, "out", 0, bias.up},
        {"mlp.down_proj", d, f, "in", IN_RESIDUAL, bias.down},
        {"model.embed_tokens", c->model.vocab, d, "out", VOCAB_TABLE, false},
        {"lm_head", c->model.vocab, d, "out", VOCAB_TABLE, false},
    };
    int count = (int)(sizeof list / sizeof list[0]) - c->model.tie_embeddings;
    const FfnKind *kind = ffn_find(c->ffn.kind);
    bool gated = kind && kind->projections == 3;
    json_t *array = json_array();
    for (int i = 0; i < count; i++) {
        if ((list[i].traits & NEEDS_GATE) && !gated) continue;
        if (!json_array_append_new(array, projection_json(&list[i], c))) continue;
        json_decref(array);
        return NULL;
    }
    return array;
}

static json_t *ffn_json(const Config *c) {
    const FfnKind *kind = ffn_find(c->ffn.kind);
    if (!kind) return NULL;
    return json_pack("{s:s, s:s, s:i, s:s, s:s, s:I, s:I, s:s}", "kind", kind->name, "model",
                     c->model.kind, "projections", kind->projections, "equation", kind->equation,
                     "activated_branch", kind->activated, "d_model", (json_int_t)c->model.d_model,
                     "d_ff", (json_int_t)c->ffn.d_ff, "width_rule", "d_ff explicit");
}

static json_t *activation_json(const Config *c) {
    const Activation *activation = activation_find(c->ffn.activation);
    if (!activation) return NULL;
    return json_pack("{s:s, s:s, s:{}}", "name", activation->name, "equation", activation->equation,
                     "parameters");
}

static json_t *dtypes_json(void) {
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "parameter", REAL_NAME, "input", REAL_NAME,
                     "activation", REAL_NAME, "accumulation", REAL_NAME, "output", REAL_NAME,
                     "scalar_sums", "float64");
}

static json_t *dropout_json(const Config *c) {
    return json_pack("[{s:s, s:s, s:f}, {s:s, s:s, s:f}]", "place",
                     "hidden channels, before down_proj", "width", "d_ff", "probability",
                     c->ffn.hidden_dropout, "place", "output of the FFN, before the residual add",
                     "width", "d_model", "probability", c->ffn.output_dropout);
}

static json_t *recompute_json(const Config *c) {
    return json_pack("{s:s, s:s}", "policy", c->train.recompute, "rng_replay",
                     "masks are computed again from Philox4x32-10 counters "
                     "(seed, purpose, layer, step, microbatch, row, channel)");
}

static json_t *accumulation_json(const Config *c) {
    int64_t per_shard = c->train.global_batch / (c->grid.data * c->train.micro_batch);
    return json_pack("{s:I, s:I, s:I, s:s, s:s}", "global_batch", (json_int_t)c->train.global_batch,
                     "micro_batch", (json_int_t)c->train.micro_batch,
                     "microbatches_per_batch_shard", (json_int_t)per_shard, "dtype", REAL_NAME,
                     "order", "microbatch after microbatch, then a binary tree over batch shards");
}

static json_t *optimizer_json(const Config *c) {
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:s, s:f, s:s, s:s, s:s}", "name", "adamw", "beta1",
                     c->optim.beta1, "beta2", c->optim.beta2, "eps", c->optim.eps, "weight_decay",
                     c->optim.weight_decay, "decayed", "matrices", "clip", c->optim.clip,
                     "moment1_dtype", REAL_NAME, "moment2_dtype", REAL_NAME, "sharding",
                     "as the parameters, each shard cut along axis 0 into grid.data pieces");
}

static json_t *schedule_json(const Config *c) {
    return json_pack("{s:s, s:f, s:f, s:I, s:I}", "name", c->optim.schedule, "lr", c->optim.lr,
                     "min_lr", c->optim.min_lr, "warmup", (json_int_t)c->optim.warmup, "steps",
                     (json_int_t)c->train.steps);
}

static json_t *grid_json(const Config *c) {
    return json_pack("{s:I, s:I, s:s}", "tensor", (json_int_t)c->grid.tensor, "data",
                     (json_int_t)c->grid.data, "reduction", c->grid.reduction);
}

static json_t *aliases_json(const Config *c) {
    if (!c->model.tie_embeddings) return json_object();
    return json_pack("{s:s}", "lm_head.weight", "model.embed_tokens.weight");
}

json_t *config_details(const Config *c) {
    /* A NULL for an "o" makes json_pack fail and drop the others. */
    return json_pack("{s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:I, s:s}",
                     "topology", ffn_json(c), "activation", activation_json(c), "projections",
                     projections_json(c), "packing", "separate", "aliases", aliases_json(c),
                     "dtypes", dtypes_json(), "dropout", dropout_json(c), "recompute",
                     recompute_json(c), "accumulation", accumulation_json(c), "optimizer",
                     optimizer_json(c), "schedule", schedule_json(c), "logical_grid", grid_json(c),
                     "fusion", "eager", "seed", (json_int_t)c->run.seed, "sample_order_rule",
                     "Feistel permutation of (seed, epoch, index) with cycle walking");
}
