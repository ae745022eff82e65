/* config_take_function: from a manifest's words back to a Config. */
#include "base/error.h"
#include "config/options.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    Config *config;
    const Config *defaults;
    const json_t *function;
    void (*tell)(void *context, const char *problem);
    void *context;
    int problems;
} Taking;

static void complain(Taking *taking) {
    taking->problems++;
    taking->tell(taking->context, error_message());
}

static const char *block_of(const Option *option) {
    return option->role == ROLE_ORDERS ? "sample_order" : option->section;
}

/* Of this model; model.kind comes before the rows that depend on it. */
static bool belongs(const Option *option, const Config *config) {
    return option->role != ROLE_STEERS &&
           (!option->only || !strcmp(option->only, config->model.kind));
}

/* The value as a config would say it; false when it is of another type. */
static bool as_text(const Option *option, const json_t *value, char text[CONFIG_TEXT]) {
    static const char *const words[] = {"false", "true"};
    if (option->type == OPTION_BOOLEAN && json_is_boolean(value))
        return snprintf(text, CONFIG_TEXT, "%s", words[json_is_true(value)]) > 0;
    if (option->type == OPTION_INTEGER && json_is_integer(value))
        return snprintf(text, CONFIG_TEXT, "%lld", (long long)json_integer_value(value)) > 0;
    if (option->type == OPTION_NUMBER && json_is_real(value))
        return snprintf(text, CONFIG_TEXT, "%.17g", json_real_value(value)) > 0;
    return (option->type == OPTION_TEXT || option->type == OPTION_CHOICE) &&
           json_is_string(value) && json_string_length(value) < CONFIG_TEXT &&
           snprintf(text, CONFIG_TEXT, "%s", json_string_value(value)) >= 0;
}

static void take(Taking *taking, const Option *option) {
    char text[CONFIG_TEXT];
    const char *block = block_of(option);
    const json_t *value = json_object_get(json_object_get(taking->function, block), option->key);
    if (!value && option->later) {
        option_default(option, taking->config);
    } else if (!value) {
        error_set(WEFT_INPUT, "function.%s.%s is missing", block, option->key);
        complain(taking);
    } else if (!as_text(option, value, text)) {
        error_set(WEFT_INPUT, "function.%s.%s isn't of its type", block, option->key);
        complain(taking);
    } else if (option_parse(option, taking->config, text)) {
        error_prefix(WEFT_INPUT, "function: ");
        complain(taking);
    } else if (option->later && option_equal(option, taking->config, taking->defaults)) {
        error_set(WEFT_INPUT, "function.%s.%s is its default, which is left out", block,
                  option->key);
        complain(taking);
    }
}

static void need(Taking *taking, const char *key) {
    const json_t *order = json_object_get(taking->function, "sample_order");
    const json_t *value = json_object_get(order, key);
    if (json_is_integer(value) && json_integer_value(value) >= 1) return;
    error_set(WEFT_INPUT, "function.sample_order.%s %s", key,
              value ? "isn't a whole number from 1 on" : "is missing");
    complain(taking);
}

static bool is_known(const Config *config, const char *block, const char *key) {
    if (!strcmp(block, "sample_order") && (!strcmp(key, "version") || !strcmp(key, "samples")))
        return true;
    for (int i = 0; i < OPTION_COUNT; i++)
        if (belongs(&options[i], config) && !strcmp(block_of(&options[i]), block) &&
            !strcmp(options[i].key, key))
            return true;
    return false;
}

/* A digest that src/run compares with the numbers. */
static bool is_normalisation(const Config *config, const char *block, const json_t *value) {
    return !strcmp(block, "normalisation") && json_is_string(value) && config_is_mlp(config) &&
           config->data.normalise;
}

static void look_for_unknown(Taking *taking) {
    const char *block, *key;
    json_t *section, *value;
    json_object_foreach((json_t *)taking->function, block, section) {
        if (is_normalisation(taking->config, block, section)) continue;
        if (!json_is_object(section)) {
            error_set(WEFT_INPUT, "function.%s: nothing is known of it", block);
            complain(taking);
        }
        json_object_foreach(section, key, value) {
            if (is_known(taking->config, block, key)) continue;
            error_set(WEFT_INPUT, "function.%s.%s: a model of kind %s has no such field", block,
                      key, taking->config->model.kind);
            complain(taking);
        }
    }
}

int config_take_function(Config *config, const json_t *function,
                         void (*tell)(void *context, const char *problem), void *context) {
    Config defaults;
    config_defaults(&defaults);
    Taking taking = {config, &defaults, function, tell, context, 0};
    for (int i = 0; i < OPTION_COUNT; i++)
        if (belongs(&options[i], config)) take(&taking, &options[i]);
    need(&taking, "version");
    need(&taking, "samples");
    look_for_unknown(&taking);
    return taking.problems;
}
