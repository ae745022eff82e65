#include "config/width.h"

#include "base/error.h"
#include "base/fault.h"
#include "nn/ffn.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const WidthKey width_keys[] = {{"width_multiplier", "llama"},
                               {"width_multiple_of", "llama"},
                               {"match_d_ff", "match"},
                               {"match_bias", "match"},
                               {NULL, NULL}};

/* A width before and after rounding. A rule returns false when its integers overflow: d_model is
 * checked before, and what grows with a square isn't. */
typedef struct {
    double exact;
    int64_t rounded;
} Width;

static bool explicit_width(const Config *config, Width *width) {
    *width = (Width){(double)config->ffn.d_ff, config->ffn.d_ff};
    return true;
}

static bool llama(const Config *config, Width *width) {
    bool given = config->ffn.width_multiplier > 0 && !fault_on("multiplier-ignored");
    double multiplier = given ? config->ffn.width_multiplier : 1;
    int64_t multiple = config->ffn.width_multiple_of;
    int64_t up = fault_on("width-rounded-down") ? 0 : multiple - 1;
    int64_t hidden = 2 * (4 * config->model.d_model) / 3;
    width->exact = multiplier * 8 * (double)config->model.d_model / 3;
    if (width->exact > INT32_MAX) return false;
    hidden = (int64_t)(multiplier * (double)hidden);
    width->rounded = (hidden + up) / multiple * multiple;
    return true;
}

static bool eight_thirds(const Config *config, Width *width) {
    *width = (Width){8 * (double)config->model.d_model / 3, 8 * config->model.d_model / 3};
    return true;
}

static int64_t matched_width(const Config *config) {
    return config->ffn.match_d_ff ? config->ffn.match_d_ff : 4 * config->model.d_model;
}

static bool match(const Config *config, Width *width) {
    FfnBiases own = config_ffn_biases(config);
    int64_t d = config->model.d_model, dense = config->ffn.match_bias, parameters;
    int64_t per_channel = 3 * d + own.gate + own.up;
    if (__builtin_mul_overflow(2 * d + dense, matched_width(config), &parameters) ||
        __builtin_add_overflow(parameters, (dense - own.down) * d, &parameters))
        return false;
    width->exact = (double)parameters / (double)per_channel;
    width->rounded = parameters / per_channel + (parameters % per_channel * 2 >= per_channel);
    return true;
}

static const char *bias_word(bool all, bool any) {
    return all ? "with biases" : any ? "with some biases" : "without biases";
}

static void tell_llama(const Config *config, char *text, size_t capacity) {
    char multiplier[48] = "";
    if (config->ffn.width_multiplier > 0)
        snprintf(multiplier, sizeof multiplier, "times %g, ", config->ffn.width_multiplier);
    snprintf(text, capacity, "%sup to a multiple of %" PRId64, multiplier,
             config->ffn.width_multiple_of);
}

static void tell_floor(const Config *config, char *text, size_t capacity) {
    snprintf(text, capacity, "8/3 of %" PRId64 ", down", config->model.d_model);
}

static void tell_match(const Config *config, char *text, size_t capacity) {
    FfnBiases own = config_ffn_biases(config);
    snprintf(text, capacity, "%s, the parameters of a dense %" PRId64 " %s",
             bias_word(own.gate && own.up && own.down, own.gate || own.up || own.down),
             matched_width(config), bias_word(config->ffn.match_bias, false));
}

typedef struct {
    const char *name;
    bool (*width)(const Config *config, Width *width);
    void (*tell)(const Config *config, char *text, size_t capacity);
} Rule;

static const Rule rules[] = {{"explicit", explicit_width, NULL},
                             {"llama", llama, tell_llama},
                             {"floor", eight_thirds, tell_floor},
                             {"match", match, tell_match}};

static const Rule *rule_of(const Config *config) {
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!strcmp(config->ffn.width, rules[i].name)) return &rules[i];
    return NULL;
}

static int check_match(const Config *config) {
    const FfnKind *kind = ffn_find(config->ffn.kind);
    if (!kind || kind->has_gate) return 0;
    return error_set(
        WEFT_USAGE,
        "ffn.width = match: it gives a kind with a gate the parameters of a dense FFN; "
        "ffn.kind = %s has no gate: set ffn.d_ff",
        config->ffn.kind);
}

int width_of(const Config *config, int64_t *d_ff, double *exact) {
    const Rule *rule = rule_of(config);
    Width width = {0};
    if (!rule)
        return error_set(WEFT_USAGE, "ffn.width = %s: there is no such rule", config->ffn.width);
    if (rule->width == match && check_match(config)) return WEFT_USAGE;
    bool sound = config->model.d_model > 0 && config->model.d_model <= INT32_MAX &&
                 rule->width(config, &width);
    if (!sound || width.rounded < 1 || width.rounded > INT32_MAX)
        return error_set(WEFT_USAGE,
                         "ffn.width = %s gives no width between 1 and %d for model.d_model = "
                         "%" PRId64 " and the keys ffn.width_..., ffn.match_...",
                         config->ffn.width, INT32_MAX, config->model.d_model);
    *d_ff = width.rounded;
    if (exact) *exact = width.exact;
    return 0;
}

void width_describe(const Config *config, char *text, size_t capacity) {
    const Rule *rule = rule_of(config);
    char how[160];
    int64_t d_ff;
    double exact;
    if (!rule || !rule->tell) {
        snprintf(text, capacity, "ffn.width = explicit: %" PRId64 " channels", config->ffn.d_ff);
    } else if (width_of(config, &d_ff, &exact) || d_ff != config->ffn.d_ff) {
        error_clear();
        snprintf(text, capacity,
                 "ffn.width = %s: %" PRId64 " channels as resolved before (ffn.width_resolved; for "
                 "this config the rule would give another width)",
                 rule->name, config->ffn.d_ff);
    } else {
        rule->tell(config, how, sizeof how);
        snprintf(text, capacity, "ffn.width = %s: %" PRId64 " channels (%.3f unrounded; %s)",
                 rule->name, d_ff, exact, how);
    }
}
