/* The config as a manifest says it: what defines the function, and every detail that a reader of
 * the tensors would otherwise have to guess from shapes. */
#include "config/config.h"

#include "base/real.h"
#include "config/options.h"
#include "config/topology.h"
#include "data/order.h"

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
    if (!c->model.tie_embeddings || config_is_mlp(c)) return json_object();
    return json_pack("{s:s}", "lm_head.weight", "model.embed_tokens.weight");
}

json_t *config_details(const Config *c) {
    /* A NULL for an "o" makes json_pack fail and drop the others. */
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:I, s:s}",
        "topology", topology_json(c), "loss", loss_json(c), "activation", activation_json(c),
        "projections", projections_json(c), "packing", "separate", "aliases", aliases_json(c),
        "dtypes", dtypes_json(), "dropout", dropout_json(c), "recompute", recompute_json(c),
        "accumulation", accumulation_json(c), "optimizer", optimizer_json(c), "schedule",
        schedule_json(c), "logical_grid", grid_json(c), "fusion", c->kernels.fusion, "seed",
        (json_int_t)c->run.seed, "sample_order_rule",
        "Feistel permutation of (seed, epoch, index) with cycle walking");
}
