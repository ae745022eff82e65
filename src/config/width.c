#include "config/width.h"

#include "base/error.h"

#include <math.h>
#include <string.h>

static double llama(const Config *config) {
    int64_t width = 2 * (4 * config->model.d_model) / 3, multiple = config->ffn.width_multiple_of;
    if (config->ffn.width_multiplier > 0)
        width = (int64_t)floor(config->ffn.width_multiplier * (double)width);
    return (double)((width + multiple - 1) / multiple * multiple);
}

static double eight_thirds(const Config *config) { return (double)(8 * config->model.d_model / 3); }

static double match(const Config *config) {
    FfnBiases own = config_ffn_biases(config);
    double d = (double)config->model.d_model, dense = config->ffn.match_bias;
    double c = config->ffn.match_d_ff ? (double)config->ffn.match_d_ff : 4 * d;
    return (2 * d * c + dense * c + (dense - own.down) * d) / (3 * d + own.gate + own.up);
}

static double explicit_width(const Config *config) { return (double)config->ffn.d_ff; }

int width_of(const Config *config, int64_t *d_ff, double *exact) {
    static const struct {
        const char *name;
        double (*width)(const Config *config);
    } rules[] = {
        {"explicit", explicit_width}, {"llama", llama}, {"floor", eight_thirds}, {"match", match}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (strcmp(config->ffn.width, rules[i].name)) continue;
        double width = rules[i].width(config);
        if (exact) *exact = width;
        if (!(width >= 0.5 && width < INT32_MAX))
            return error_set(WEFT_USAGE,
                             "ffn.width = %s gives %g channels for model.d_model = %lld",
                             config->ffn.width, width, (long long)config->model.d_model);
        *d_ff = (int64_t)floor(width + 0.5);
        return 0;
    }
    return error_set(WEFT_USAGE, "ffn.width = %s: there is no such rule", config->ffn.width);
}
