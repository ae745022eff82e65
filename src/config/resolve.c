#include "base/error.h"
#include "base/fault.h"
#include "config/config.h"
#include "config/width.h"
#include "nn/ffn.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { DEFAULT_D_FF = 682 };

bool config_is_mlp(const Config *config) { return !strcmp(config->model.kind, "mlp"); }

static bool has_gate(const Config *config) {
    const FfnKind *kind = ffn_find(config->ffn.kind);
    return kind && kind->has_gate;
}

static bool has_bias(const Config *config, const char *own) {
    return strcmp(own, "auto") ? !strcmp(own, "true") : config->ffn.bias;
}

FfnBiases config_ffn_biases(const Config *config) {
    return (FfnBiases){has_gate(config) && has_bias(config, config->ffn.gate_bias),
                       has_bias(config, config->ffn.up_bias),
                       has_bias(config, config->ffn.down_bias)};
}

Branches config_branches(const Config *config) {
    return (Branches){activation_find(config->ffn.activation), config->ffn.swish_beta,
                      config->ffn.gate_clamp, config->ffn.linear_clamp, config->ffn.linear_offset};
}

/* One way to say each choice of biases, so that the same function has the same fingerprint: all of
 * them by ffn.bias, some of them by their own keys. */
static int resolve_biases(Config *config) {
    FfnBiases has = config_ffn_biases(config);
    bool gated = has_gate(config);
    if (!gated && !strcmp(config->ffn.gate_bias, "true"))
        return error_set(WEFT_USAGE, "ffn.gate_bias = true: ffn.kind = %s has no gate",
                         config->ffn.kind);
    bool all = has.up && has.down && (has.gate || !gated);
    const struct {
        char *key;
        bool value;
    } row[] = {{config->ffn.gate_bias, has.gate},
               {config->ffn.up_bias, has.up},
               {config->ffn.down_bias, has.down}};
    config->ffn.bias = all;
    for (int i = 0; i < 3; i++)
        snprintf(row[i].key, CONFIG_CHOICE, "%s", row[i].value && !all ? "true" : "auto");
    return 0;
}

/* The number instead of the rule, once: a config that says it is resolved keeps its number. */
static int resolve_width(Config *config) {
    bool given = config->ffn.d_ff != 0;
    if (!strcmp(config->ffn.width, "explicit")) {
        if (!given) config->ffn.d_ff = DEFAULT_D_FF;
        config->ffn.width_resolved = false;
        return 0;
    }
    if (config->ffn.width_resolved && !given)
        return error_set(WEFT_USAGE,
                         "ffn.width_resolved = true without ffn.d_ff, the number that ffn.width = "
                         "%s gave: add it, or delete the line",
                         config->ffn.width);
    if (config->ffn.width_resolved)
        return fault_on("d-ff-recomputed") ? width_of(config, &config->ffn.d_ff, NULL) : 0;
    if (given)
        return error_set(WEFT_USAGE,
                         "ffn.d_ff = %" PRId64 " and ffn.width = %s: both say how wide the FFN is; "
                         "delete one of the lines",
                         config->ffn.d_ff, config->ffn.width);
    int status = width_of(config, &config->ffn.d_ff, NULL);
    config->ffn.width_resolved = !status;
    return status;
}

int config_resolve(Config *config) {
    if (config_is_mlp(config)) config->model.context = 1;
    int status = resolve_biases(config);
    return status ? status : resolve_width(config);
}
