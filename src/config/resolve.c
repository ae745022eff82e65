#include "base/error.h"
#include "config/config.h"
#include "config/options.h"
#include "config/width.h"

#include <string.h>

static bool has_bias(const Config *config, const char *own) {
    return strcmp(own, "auto") ? !strcmp(own, "true") : config->ffn.bias;
}

FfnBiases config_ffn_biases(const Config *config) {
    bool gated = strcmp(config->ffn.kind, "dense") != 0;
    return (FfnBiases){gated && has_bias(config, config->ffn.gate_bias),
                       has_bias(config, config->ffn.up_bias),
                       has_bias(config, config->ffn.down_bias)};
}

int config_resolve(Config *config) {
    if (!strcmp(config->model.kind, "mlp")) config->model.context = 1;
    if (!strcmp(config->ffn.width, "explicit") || config->ffn.width_resolved) return 0;
    int status = width_of(config, &config->ffn.d_ff, NULL);
    config->ffn.width_resolved = !status;
    return status;
}
