#include "run/setup.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

int setup_node_cores(void) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > 0 ? (int)cores : 1;
}

int setup_threads(const Config *config, int node_ranks) {
    if (config->run.threads > 0) return (int)config->run.threads;
    int threads = setup_node_cores() / node_ranks;
    return threads > 0 ? threads : 1;
}

/* Standard deviation of a projection's initial values: init.std, or 1/sqrt(fan in); those that
 * write into the residual stream are scaled by 1/sqrt(2 * layers) (Radford et al. 2019,
 * section 2.3). */
static double init_std(const Config *config, int64_t fan_in, bool residual) {
    double std =
        strcmp(config->init.scheme, "fan_in") ? config->init.std : 1 / sqrt((double)fan_in);
    return residual ? std / sqrt(2.0 * (double)config->model.layers) : std;
}

static Recompute recompute_mode(const char *name) {
    static const char *const names[] = {"none", "act", "block"};
    for (int mode = RECOMPUTE_NONE; mode <= RECOMPUTE_BLOCK; mode++)
        if (!strcmp(name, names[mode])) return (Recompute)mode;
    return RECOMPUTE_NONE;
}

static Fusion fusion_level(const char *name) {
    static const char *const names[] = {"eager", "packed", "gate", "block"};
    for (int level = FUSION_EAGER; level <= FUSION_BLOCK; level++)
        if (!strcmp(name, names[level])) return (Fusion)level;
    return FUSION_EAGER;
}

static Transport transport_mode(const char *name) {
    if (!strcmp(name, "window")) return TRANSPORT_WINDOW;
    return strcmp(name, "messages") ? TRANSPORT_AUTO : TRANSPORT_MESSAGES;
}

ModelConfig setup_model(const Config *config, int64_t sequences, int threads) {
    int64_t d = config->model.d_model;
    FfnBiases bias = config_ffn_biases(config);
    uint64_t seed = (uint64_t)config->run.seed;
    return (ModelConfig){
        .kind = config_is_mlp(config) ? MODEL_MLP : MODEL_DECODER,
        .inputs = config->model.inputs,
        .outputs = config->model.outputs,
        .loss =
            strcmp(config->model.loss, "squared_error") ? LOSS_CROSS_ENTROPY : LOSS_SQUARED_ERROR,
        .vocab = config->model.vocab,
        .layers = config->model.layers,
        .context = config->model.context,
        .sequences = sequences,
        .tied = config->model.tie_embeddings,
        .norm_eps = config->model.norm_eps,
        .attention = {d, config->model.heads, config->model.kv_heads, config->model.context,
                      config->model.rope_theta, init_std(config, d, false),
                      init_std(config, d, true)},
        .ffn = {config->ffn.kind, config_branches(config), d, config->ffn.d_ff, bias.gate, bias.up,
                bias.down, config->ffn.hidden_dropout, seed, init_std(config, d, false),
                init_std(config, config->ffn.d_ff, true)},
        .output_dropout = config->ffn.output_dropout,
        .embed_init = config->init.std,
        .seed = seed,
        .grid_tensor = (int)config->grid.tensor,
        .reduction =
            strcmp(config->grid.reduction, "exact") ? REDUCTION_ALLREDUCE : REDUCTION_EXACT,
        .transport = transport_mode(config->grid.transport),
        .recompute = recompute_mode(config->train.recompute),
        .fusion = fusion_level(config->kernels.fusion),
        .sequence = config->parallel.sequence,
        .threads = threads,
    };
}

DatasetSpec setup_dataset(const Config *config) {
    return (DatasetSpec){config->data.kind,
                         config->data.train,
                         config->data.held,
                         config->data.held_out,
                         (int)config->data.token_bytes,
                         config->model.vocab,
                         config->model.context,
                         config->train.micro_batch,
                         config->train.global_batch,
                         (uint64_t)config->run.seed,
                         {{config->data.inputs, config->data.targets},
                          {config->model.inputs, config->model.outputs},
                          strcmp(config->model.loss, "squared_error") != 0,
                          false},
                         config_is_mlp(config) && config->data.normalise};
}

AdamW setup_adamw(const Config *config) {
    return (AdamW){config->optim.beta1, config->optim.beta2, config->optim.eps,
                   config->optim.weight_decay};
}

Schedule setup_schedule(const Config *config) {
    return (Schedule){config->optim.lr, config->optim.min_lr, config->optim.warmup,
                      config->train.steps, !strcmp(config->optim.schedule, "cosine")};
}
