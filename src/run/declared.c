#include "run/declared.h"

#include "base/error.h"
#include "base/fault.h"
#include "checkpoint/manifest.h"
#include "config/width.h"
#include "run/normalisation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 256 };

/* Blocks that don't follow from a config. */
static const char *const others[] = {"format",         "version",
                                     "step",           "tokens",
                                     "grid",           "function",
                                     "tensors",        "shards",
                                     "view",           "fingerprint",
                                     "digest",         "origin",
                                     "implementation", "training_data_digest",
                                     "normalisation"};

static bool is_other(const char *name) {
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(others[i], name)) return true;
    return false;
}

/* ---- one value beside another ---- */

/* What manifests said before a block grew: `before`, a JSON text (NULL: nothing), where today's
 * block would hold the fields of `meant`. */
static const struct {
    const char *path, *before, *meant;
} older[] = {
    {"topology.width_rule", "\"d_ff explicit\"", "{\"rule\": \"explicit\"}"},
    {"activation.parameters", "{}",
     "{\"beta\": null, \"gate_clamp\": 0.0, \"linear_clamp\": 0.0, \"linear_offset\": 0.0}"},
    {"activation.parameters", "{}",
     "{\"beta\": 1.0, \"gate_clamp\": 0.0, \"linear_clamp\": 0.0, \"linear_offset\": 0.0}"},
    {"loss", NULL, "{\"name\": \"cross_entropy\", \"over\": \"logits\"}"},
};

/* Today's blocks came at once: a manifest has all of the older forms or none. Nor was there an mlp
 * then. */
static bool is_older(const json_t *manifest) {
    const json_t *model = json_object_get(json_object_get(manifest, "function"), "model");
    const char *kind = json_string_value(json_object_get(model, "kind"));
    const json_t *rule = json_object_get(json_object_get(manifest, "topology"), "width_rule");
    const json_t *parameters =
        json_object_get(json_object_get(manifest, "activation"), "parameters");
    return (!kind || strcmp(kind, "mlp") != 0) && json_is_string(rule) &&
           json_is_object(parameters) && json_object_size(parameters) == 0 &&
           !json_object_get(manifest, "loss");
}

static bool holds(const json_t *derived, const char *meant) {
    const char *key;
    json_t *value, *fields = json_loads(meant, 0, NULL);
    bool all = fields;
    json_object_foreach(fields, key, value) {
        all = all && json_equal(json_object_get(derived, key), value);
    }
    json_decref(fields);
    return all;
}

static bool as_before(const char *path, const json_t *said, const json_t *derived) {
    bool same = false;
    for (size_t i = 0; i < sizeof older / sizeof *older && !same; i++) {
        if (strcmp(older[i].path, path)) continue;
        json_t *before =
            older[i].before ? json_loads(older[i].before, JSON_DECODE_ANY, NULL) : NULL;
        same = (before ? json_equal(before, said) : !said) && holds(derived, older[i].meant);
        json_decref(before);
    }
    return same;
}

static char *text_of(const json_t *value, size_t digits) {
    if (!value) return NULL;
    return json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS |
                                 JSON_REAL_PRECISION(digits));
}

/* `said` is NULL: missing. `derived` is NULL: there should be none. */
static void differ(Declared *declared, const char *path, const json_t *said,
                   const json_t *derived) {
    /* 15 digits read well; where they show no difference all are needed. */
    char *one = text_of(said, 15), *other = text_of(derived, 15);
    if (one && other && !strcmp(one, other)) {
        free(one);
        free(other);
        one = text_of(said, 17);
        other = text_of(derived, 17);
    }
    if (!said)
        findings_add(&declared->findings, "%s is missing; by the function it is %.200s", path,
                     other ? other : "?");
    else if (!derived)
        findings_add(&declared->findings, "%s: the function has no such field", path);
    else
        findings_add(&declared->findings, "%s is %.200s; by the function it is %.200s", path,
                     one ? one : "?", other ? other : "?");
    free(one);
    free(other);
}

static void compare(Declared *declared, const char *path, const json_t *said,
                    const json_t *derived);

static void compare_objects(Declared *declared, const char *path, const json_t *said,
                            const json_t *derived) {
    const char *key;
    json_t *value;
    char longer[PATH];
    json_object_foreach((json_t *)derived, key, value) {
        snprintf(longer, sizeof longer, "%s.%s", path, key);
        compare(declared, longer, json_object_get(said, key), value);
    }
    json_object_foreach((json_t *)said, key, value) {
        snprintf(longer, sizeof longer, "%s.%s", path, key);
        if (!json_object_get(derived, key)) differ(declared, longer, value, NULL);
    }
}

/* An item goes by its name, where it has one. */
static void compare_arrays(Declared *declared, const char *path, const json_t *said,
                           const json_t *derived) {
    size_t i, have = json_array_size(said);
    json_t *value;
    char longer[PATH];
    json_array_foreach((json_t *)derived, i, value) {
        const char *name = json_string_value(json_object_get(value, "name"));
        if (name)
            snprintf(longer, sizeof longer, "%s[%s]", path, name);
        else
            snprintf(longer, sizeof longer, "%s[%zu]", path, i);
        compare(declared, longer, json_array_get(said, i), value);
    }
    for (; i < have; i++) {
        snprintf(longer, sizeof longer, "%s[%zu]", path, i);
        differ(declared, longer, json_array_get(said, i), NULL);
    }
}

static void compare(Declared *declared, const char *path, const json_t *said,
                    const json_t *derived) {
    if (json_equal(said, derived)) return;
    if (declared->older && as_before(path, said, derived)) return;
    if (json_is_object(said) && json_is_object(derived))
        compare_objects(declared, path, said, derived);
    else if (json_is_array(said) && json_is_array(derived) &&
             json_is_object(json_array_get(said, 0)))
        compare_arrays(declared, path, said, derived);
    else
        differ(declared, path, said, derived);
}

/* ---- the blocks ---- */

static void tell(void *context, const char *problem) {
    findings_add(&((Declared *)context)->findings, "%s", problem);
}

/* The config in `origin`; without one, what lets the function be checked alone. */
static bool read_config(Declared *declared, const json_t *manifest) {
    Config *config = &declared->config;
    const json_t *text = json_object_get(json_object_get(manifest, "origin"), "config");
    config_defaults(config);
    config_set(config, "kernels.fusion=eager"); /* says a manifest from before there was the key */
    if (json_is_string(text) && !config_read_text(config, json_string_value(text), "origin.config"))
        return true;
    findings_add(&declared->findings, "%s",
                 json_is_string(text) ? error_message() : "origin.config is missing");
    config_defaults(config);
    config_set(config, "run.dir=unknown");
    config_set(config, "data.train=unknown");
    return false;
}

/* What the config would have written as `function`, beside what stands there or follows from it. */
static int compare_functions(Declared *declared, const Config *embedded, const json_t *function) {
    json_int_t samples =
        json_integer_value(json_object_get(json_object_get(function, "sample_order"), "samples"));
    json_t *own = config_function(&declared->config, samples);
    json_t *told = embedded ? config_function(embedded, samples) : NULL;
    json_t *digest = json_object_get(function, "normalisation"); /* no config has it */
    int status =
        own && (told || !embedded) ? 0 : error_set(WEFT_RUNTIME, "out of memory: manifest");
    if (!status && told && !json_equal(own, told)) {
        char *differences =
            checkpoint_differences_between(own, "says", told, "and the config in origin");
        for (char *rest = differences, *line; (line = strsep(&rest, "\n"));)
            findings_add(&declared->findings, "function.%s", line);
        free(differences);
    }
    if (!status && digest) json_object_set(own, "normalisation", digest);
    if (!status && declared->usable) compare(declared, "function", function, own);
    json_decref(own);
    json_decref(told);
    return status;
}

/* The logical grid is a field of its own, which sizes of files follow from. */
static void take_grid(Declared *declared, bool embedded, const json_t *manifest) {
    const json_t *grid = json_object_get(manifest, "grid");
    int64_t said[] = {json_integer_value(json_object_get(grid, "tensor")),
                      json_integer_value(json_object_get(grid, "data"))};
    int64_t *there[] = {&declared->config.grid.tensor, &declared->config.grid.data};
    static const char *const name[] = {"tensor", "data"};
    for (int i = 0; i < 2; i++) {
        if (embedded && said[i] != *there[i])
            findings_add(&declared->findings,
                         "grid.%s is %lld, the config in origin has grid.%s = %lld", name[i],
                         (long long)said[i], name[i], (long long)*there[i]);
        *there[i] = said[i];
    }
}

/* The stored width counts; its rule is worth a note where it gives another. */
static void check_width(Declared *declared) {
    const Config *config = &declared->config;
    int64_t width;
    if (width_of(config, &width, NULL))
        findings_add(&declared->notes, "%s", error_message());
    else if (width != config->ffn.d_ff)
        findings_add(
            &declared->notes,
            "ffn.d_ff is %lld, its rule ffn.width = %s gives %lld: the stored number counts",
            (long long)config->ffn.d_ff, config->ffn.width, (long long)width);
}

/* Its numbers follow from the data, their count from the function; classes have none. */
static int check_normalisation(Declared *declared, const json_t *manifest) {
    const Config *config = &declared->config;
    bool classes = !strcmp(config->model.loss, "cross_entropy");
    const int64_t columns[] = {config->model.inputs, classes ? 0 : config->model.outputs};
    Normalisation numbers;
    if (!config_is_mlp(config) || !config->data.normalise) {
        if (json_object_get(manifest, "normalisation"))
            findings_add(&declared->findings, "normalisation: the function has no such block");
        return 0;
    }
    int status = normalisation_open(&numbers, columns);
    if (!status) normalisation_read(&numbers, manifest, tell, declared);
    normalisation_close(&numbers);
    return status;
}

/* Each step takes a global batch of whole sequences. */
static void check_tokens(Declared *declared, const json_t *manifest) {
    const Config *config = &declared->config;
    int64_t step = manifest_step(manifest), tokens = manifest_tokens(manifest), wanted;
    int64_t batch = config->train.global_batch * config->model.context; /* config_check: fits */
    if (__builtin_mul_overflow(step, batch, &wanted) || tokens != wanted)
        findings_add(&declared->findings,
                     "tokens is %lld; step %lld of %lld sequences of %lld each has %lld",
                     (long long)tokens, (long long)step, (long long)config->train.global_batch,
                     (long long)config->model.context, (long long)wanted);
}

static bool is_text(Declared *declared, const char *path, const json_t *value) {
    if (json_string_length(value) > 0) return true;
    findings_add(&declared->findings, "%s is %s", path, value ? "no text" : "missing");
    return false;
}

/* Who computed it, and from which data. */
static void check_origins(Declared *declared, const json_t *manifest) {
    static const char *const fields[] = {"project", "revision", "file", "symbol"};
    const json_t *who = json_object_get(manifest, "implementation");
    char path[PATH];
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        snprintf(path, sizeof path, "implementation.%s", fields[i]);
        is_text(declared, path, json_object_get(who, fields[i]));
    }
    if (!json_is_integer(json_object_get(who, "numerics_version")))
        findings_add(&declared->findings, "implementation.numerics_version is no whole number");
    const json_t *digest = json_object_get(manifest, "training_data_digest");
    Hash128 parsed;
    if (is_text(declared, "training_data_digest", digest) &&
        hash_parse(json_string_value(digest), &parsed))
        findings_add(&declared->findings, "training_data_digest is no digest of 32 hex digits");
}

static int compare_details(Declared *declared, const json_t *manifest) {
    const char *key;
    json_t *value, *details = config_details(&declared->config);
    if (!details) return error_set(WEFT_RUNTIME, "out of memory: manifest");
    json_object_foreach(details, key, value) {
        compare(declared, key, json_object_get(manifest, key), value);
        declared->blocks++;
    }
    json_object_foreach((json_t *)manifest, key, value) {
        if (!json_object_get(details, key) && !is_other(key))
            findings_add(&declared->notes, "%s: a block that nothing is known of", key);
    }
    json_decref(details);
    return 0;
}

int declared_read(const json_t *manifest, Declared *declared) {
    *declared = (Declared){.older = is_older(manifest)};
    const json_t *function = json_object_get(manifest, "function");
    bool whole = read_config(declared, manifest);
    Config embedded = declared->config;
    declared->usable = !config_take_function(&declared->config, function, tell, declared);
    take_grid(declared, whole, manifest);
    int status = compare_functions(declared, whole ? &embedded : NULL, function);
    if (!status && declared->usable && config_check(&declared->config)) {
        findings_add(&declared->findings, "function: %s", error_message());
        declared->usable = false;
    }
    if (!status) check_origins(declared, manifest);
    if (!status && declared->usable) check_width(declared);
    if (!status && declared->usable) check_tokens(declared, manifest);
    if (!status && declared->usable) status = check_normalisation(declared, manifest);
    if (!status && whole) status = compare_details(declared, manifest);
    error_clear();
    return status;
}

void declared_release(Declared *declared) {
    findings_release(&declared->findings);
    findings_release(&declared->notes);
}

/* ---- for whoever loads ---- */

/* For tests: whoever loads looks away. */
static bool is_overlooked(const char *finding) {
    return fault_on("manifest-activation") && strstr(finding, "activation");
}

int declared_check(const json_t *manifest, const char *directory) {
    Declared declared;
    const char *first = NULL;
    int more = 0, status = declared_read(manifest, &declared);
    if (!status) status = findings_whole(&declared.findings);
    for (int i = 0; i < declared.findings.count; i++) {
        if (is_overlooked(declared.findings.text[i])) continue;
        if (first)
            more++;
        else
            first = declared.findings.text[i];
    }
    if (!status && more)
        status = error_set(WEFT_INPUT,
                           "%s/" MANIFEST_FILE ": %s (and %d more: see weft verify "
                           "--static)",
                           directory, first, more);
    else if (!status && first)
        status = error_set(WEFT_INPUT, "%s/" MANIFEST_FILE ": %s", directory, first);
    declared_release(&declared);
    return status;
}
