#include "run/weights.h"

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "run/setup.h"
#include "run/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT "weft-ffn 1"

/* ---- what defines the network ---- */

/* The keys of a config that say what the weights are; of a file of another system the first ones
 * must be declared. */
static const char *const keys[] = {
    "ffn.kind",          "ffn.activation", "model.d_model",  "ffn.d_ff",
    "model.layers",      "ffn.swish_beta", "ffn.gate_clamp", "ffn.linear_clamp",
    "ffn.linear_offset", "ffn.gate_bias",  "ffn.up_bias",    "ffn.down_bias",
};
enum { KEYS = sizeof keys / sizeof keys[0], KEYS_NEEDED = 5 };

/* The shortest text of the usual ones that gives the number back. */
static json_t *number_text(double number) {
    char text[32];
    snprintf(text, sizeof text, "%.15g", number);
    if (strtod(text, NULL) != number) snprintf(text, sizeof text, "%.17g", number);
    return json_string(text);
}

static json_t *flag_text(bool flag) { return json_string(flag ? "true" : "false"); }

/* The same keys with their values as texts. New reference, NULL when memory is short. */
static json_t *describe(const Ffn *ffn, int64_t layers) {
    const FfnConfig *c = &ffn->config;
    char d_model[32], d_ff[32], count[32];
    snprintf(d_model, sizeof d_model, "%" PRId64, c->d_model);
    snprintf(d_ff, sizeof d_ff, "%" PRId64, c->d_ff);
    snprintf(count, sizeof count, "%" PRId64, layers);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", keys[0],
                     ffn->kind->name, keys[1], c->branches.activation->name, keys[2], d_model,
                     keys[3], d_ff, keys[4], count, keys[5], number_text(c->branches.beta), keys[6],
                     number_text(c->branches.gate_clamp), keys[7],
                     number_text(c->branches.linear_clamp), keys[8],
                     number_text(c->branches.linear_offset), keys[9], flag_text(c->gate_bias),
                     keys[10], flag_text(c->up_bias), keys[11], flag_text(c->down_bias));
}

/* 0, or WEFT_INPUT listing what differs. Takes both over. */
static int compare_descriptions(json_t *a, const char *a_name, json_t *b, const char *b_name) {
    char *differences = checkpoint_differences_between(a, a_name, b, b_name);
    int status = a && b ? 0 : error_set(WEFT_RUNTIME, "out of memory: a description");
    if (!status && differences)
        status = error_set(WEFT_INPUT, "%s contradicts %s:\n%s", b_name, a_name, differences);
    free(differences);
    json_decref(a);
    json_decref(b);
    return status;
}

static int ffn_of(const Config *config, Ffn *ffn) {
    FfnConfig shape = setup_model(config, 1, 1).ffn;
    *ffn = (Ffn){.kind = ffn_find(shape.kind), .config = shape};
    if (!ffn->kind)
        return error_set(WEFT_USAGE, "ffn.kind = %s: there is no such kind", config->ffn.kind);
    ffn->config.kind = ffn->kind->name;
    if (!shape.branches.activation)
        return error_set(WEFT_USAGE, "ffn.activation = %s: there is no such activation",
                         config->ffn.activation);
    return 0;
}

static bool sets_key(const char *set, const char *key) {
    size_t length = strlen(key);
    return !strncmp(set, key, length) && set[length] == '=';
}

static bool declares(const WeightsDeclaration *declaration, const char *key) {
    for (int i = 0; i < declaration->sets; i++)
        if (sets_key(declaration->set[i], key)) return true;
    return false;
}

/* What is declared over what is known. */
static int apply(const WeightsDeclaration *declaration, Config *config) {
    if (declares(declaration, "ffn.bias"))
        for (int i = 0; i < 3; i++)
            memcpy((char *[]){config->ffn.gate_bias, config->ffn.up_bias, config->ffn.down_bias}[i],
                   "auto", sizeof "auto");
    for (int i = 0; i < declaration->sets; i++) {
        const char *set = declaration->set[i];
        bool known = sets_key(set, "ffn.bias");
        for (int k = 0; k < KEYS; k++) known |= sets_key(set, keys[k]);
        if (!known)
            return error_set(WEFT_USAGE,
                             "--set %.200s: says nothing of the weights: model.d_model, "
                             "model.layers, and of ffn the kind, activation, d_ff, biases, beta, "
                             "clamps and offset do",
                             set);
        if (config_set(config, set)) return WEFT_USAGE;
    }
    return 0;
}

/* Takes the network from `config`, which the source has told, and checks that what is declared is
 * the same. */
static int take_told(Weights *weights, const WeightsDeclaration *declaration,
                     const Config *config) {
    Ffn declared;
    Config changed = *config;
    int status = ffn_of(config, &weights->ffn);
    if (!status) status = apply(declaration, &changed);
    if (!status) status = ffn_of(&changed, &declared);
    if (status) return status;
    return compare_descriptions(describe(&weights->ffn, config->model.layers), declaration->path,
                                describe(&declared, changed.model.layers), "--set");
}

static int take_declared(Weights *weights, const WeightsDeclaration *declaration, Config *config) {
    for (int k = 0; k < KEYS_NEEDED; k++)
        if (!declares(declaration, keys[k]))
            return error_set(WEFT_USAGE,
                             "%s: doesn't say its %s, and shapes don't decide it: declare it with "
                             "--set %s=...",
                             declaration->path, keys[k], keys[k]);
    int status = apply(declaration, config);
    return status ? status : ffn_of(config, &weights->ffn);
}

/* ---- files ---- */

static const char *note(const json_t *notes, const char *key) {
    return json_string_value(json_object_get(notes, key));
}

/* A word that a file says, that is declared, or both; they must agree. */
static int choose(const char *path, const char *key, const char *told, const char *option,
                  const char *declared, const char **chosen) {
    *chosen = told ? told : declared;
    if (!told || !declared || !strcmp(told, declared)) return 0;
    return error_set(WEFT_INPUT, "%s: its attribute %s says %s, but %s says %s", path, key, told,
                     option, declared);
}

/* `code` of errors: of what a file says, or of what is declared. */
static int take_layout(Packing *packing, const char *path, int code, const char *layout,
                       const char *names) {
    if (!layout)
        return error_set(code,
                         "%s: doesn't say in which layout it is, and neither names nor shapes "
                         "decide it: declare it with --from LAYOUT",
                         path);
    packing->layout = packing_layout_find(layout);
    packing->names = packing_names_find(names ? names : packing_names[0].name);
    if (!packing->layout)
        return error_set(code, "%s: there is no layout %s; there are %s", path, layout,
                         packing_layout_list());
    return packing->names ? 0
                          : error_set(code, "%s: there are no names %s; there are %s", path, names,
                                      packing_names_list());
}

static const char *const part_options[] = {NULL, "--shards", "--ranks"};

static int take_parts(Packing *packing, const WeightsDeclaration *declaration,
                      const json_t *notes) {
    PackingCut cut = packing->layout->cut;
    const char *told = note(notes, "parts"), *chosen;
    char declared[32];
    snprintf(declared, sizeof declared, "%d", declaration->parts[cut]);
    packing->parts = 1;
    if (cut == PACKING_WHOLE) return 0;
    int status = choose(declaration->path, "parts", told, part_options[cut],
                        declaration->parts[cut] ? declared : NULL, &chosen);
    if (status) return status;
    if (!chosen)
        return error_set(WEFT_USAGE,
                         "%s: doesn't say of how many parts it is: declare it with %s N (where "
                         "both sides are %s, N is the target's: go by way of separate)",
                         declaration->path, part_options[cut], packing->layout->name);
    packing->parts = (int)strtol(chosen, NULL, 10); /* packing_check says what is possible */
    return 0;
}

/* Of a file that weft has written: the config that its attributes tell. */
static int config_told(const char *path, const json_t *notes, Config *config) {
    for (int k = 0; k < KEYS; k++) {
        char set[CONFIG_TEXT];
        const char *value = note(notes, keys[k]);
        if (!value) return error_set(WEFT_INPUT, "%s: its attribute %s is missing", path, keys[k]);
        if (snprintf(set, sizeof set, "%s=%s", keys[k], value) >= (int)sizeof set ||
            config_set(config, set))
            return error_set(WEFT_INPUT, "%s: its attribute %s can't be %s", path, keys[k], value);
    }
    return 0;
}

static void fill_packing(Packing *packing, const Ffn *ffn, int64_t layers) {
    packing->layers = layers;
    packing->d_model = ffn->config.d_model;
    packing->d_ff = ffn->config.d_ff;
    packing->gated = ffn->kind->projections == 3;
    packing->bias[PACKING_GATE] = packing->gated && ffn->config.gate_bias;
    packing->bias[PACKING_UP] = ffn->config.up_bias;
    packing->bias[PACKING_DOWN] = ffn->config.down_bias;
}

static int describe_file(Weights *weights, const WeightsDeclaration *declaration,
                         const json_t *notes) {
    Config config;
    const char *path = declaration->path, *format = note(notes, "format"), *layout, *names;
    config_defaults(&config);
    if (format && strcmp(format, FORMAT))
        return error_set(WEFT_INPUT, "%s: its attribute format says %s, %s is read", path, format,
                         FORMAT);
    const json_t *told = format ? notes : NULL;
    int status =
        choose(path, "layout", note(told, "layout"), "--from", declaration->layout, &layout);
    if (!status)
        status =
            choose(path, "names", note(told, "names"), "--from-names", declaration->names, &names);
    if (!status)
        status =
            take_layout(&weights->packing, path, told ? WEFT_INPUT : WEFT_USAGE, layout, names);
    if (!status) status = take_parts(&weights->packing, declaration, told);
    if (!status && told) status = config_told(path, told, &config);
    if (!status)
        status = told ? take_told(weights, declaration, &config)
                      : take_declared(weights, declaration, &config);
    if (!status) fill_packing(&weights->packing, &weights->ffn, config.model.layers);
    return status;
}

static int open_file(Weights *weights, const WeightsDeclaration *declaration) {
    json_t *notes = NULL;
    int status = packing_read_notes(declaration->path, &notes);
    if (!status) status = describe_file(weights, declaration, notes);
    if (status) goto done;
    status = packing_open(&weights->file, &weights->packing, declaration->path);
    if (status == WEFT_USAGE) /* what the file itself or its user says */
        status = error_prefix(note(notes, "format") ? WEFT_INPUT : WEFT_USAGE,
                              "%s: ", declaration->path);
done:
    json_decref(notes);
    return status;
}

/* ---- checkpoints ---- */

static int check_checkpoint(const Weights *weights, const WeightsDeclaration *declaration) {
    const json_t *packing = json_object_get(weights->reader.manifest, "packing");
    const char *told = json_string_value(packing), *layout, *names;
    if (!told || strcmp(told, packing_layouts[0].name))
        return error_set(WEFT_INPUT, "%s: manifest: field packing isn't %s", weights->path,
                         packing_layouts[0].name);
    int status = choose(weights->path, "packing", told, "--from", declaration->layout, &layout);
    return status ? status
                  : choose(weights->path, "names", packing_names[0].name, "--from-names",
                           declaration->names, &names);
}

static int open_checkpoint(Weights *weights, const WeightsDeclaration *declaration) {
    Config config;
    weights->is_checkpoint = true;
    int status = checkpoint_find(declaration->path, true, weights->path, sizeof weights->path);
    if (!status && !weights->path[0])
        status = error_set(WEFT_INPUT, "%s: there is no checkpoint in it", declaration->path);
    if (!status) status = reader_open(&weights->reader, weights->path);
    if (!status) status = check_checkpoint(weights, declaration);
    if (!status) status = state_config(weights->path, &config);
    if (!status) status = take_told(weights, declaration, &config);
    if (status) return status;
    ModelConfig shape = setup_model(&config, 1, 1);
    status = model_declare(&weights->model, &shape, 0, 1);
    weights->packing = (Packing){&packing_layouts[0], &packing_names[0], 1, 0, 0, 0, false, {0}};
    fill_packing(&weights->packing, &weights->ffn, config.model.layers);
    weights->shards = (KnownRowShards){&weights->reader, &weights->model};
    return status;
}

/* ---- both ---- */

int weights_open(Weights *weights, const WeightsDeclaration *declaration) {
    *weights = (Weights){.file.file.id = -1};
    if (files_is_directory(declaration->path)) return open_checkpoint(weights, declaration);
    if (strlen(declaration->path) >= sizeof weights->path)
        return error_set(WEFT_USAGE, "path too long: %s", declaration->path);
    memcpy(weights->path, declaration->path, strlen(declaration->path) + 1);
    return open_file(weights, declaration);
}

void weights_close(Weights *weights) {
    if (weights->is_checkpoint) {
        model_forget(&weights->model);
        reader_close(&weights->reader);
    } else if (weights->path[0]) {
        packing_close(&weights->file);
    }
    *weights = (Weights){.file.file.id = -1};
}

int weights_read(Weights *weights, int layer, PackingProjection projection, bool bias,
                 ParamPiece block, real *data) {
    if (!weights->is_checkpoint)
        return packing_read(&weights->file, layer, projection, bias, block, data);
    const Ffn *ffn = &weights->model.layer[layer].ffn;
    const int place[PACKING_PROJECTIONS][2] = {
        {ffn->gate, ffn->gate_bias}, {ffn->up, ffn->up_bias}, {ffn->down, ffn->down_bias}};
    int index = place[projection][bias];
    const char *name = index < 0 ? "" : weights->model.set.param[index].name;
    int tensor = catalog_find(&weights->reader.catalog, name);
    if (tensor < 0) return error_set(WEFT_INPUT, "%s: has no tensor %s", weights->path, name);
    return reader_block(&weights->reader, 0, tensor, block, data);
}

KnownRowPath weights_path(Weights *weights) {
    return weights->is_checkpoint ? known_row_shards(&weights->shards)
                                  : known_row_file(&weights->file);
}

json_t *weights_notes(const Weights *weights, const Packing *packing) {
    char parts[32];
    snprintf(parts, sizeof parts, "%d", packing->parts);
    json_t *notes = describe(&weights->ffn, weights->packing.layers);
    json_t *own = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "format", FORMAT, "layout",
                            packing->layout->name, "order", packing->layout->order_text, "names",
                            packing->names->name, "parts", parts, "dtype", REAL_NAME);
    if (notes && own && !json_object_update(notes, own)) {
        json_decref(own);
        return notes;
    }
    json_decref(own);
    json_decref(notes);
    return NULL;
}

int weights_check_same(const Weights *a, const Weights *b) {
    return compare_descriptions(describe(&a->ffn, a->packing.layers), a->path,
                                describe(&b->ffn, b->packing.layers), b->path);
}

bool weights_symmetric(const Weights *weights) {
    const Branches *branches = &weights->ffn.config.branches;
    bool plain = branches->gate_clamp == 0 && branches->linear_clamp == 0 &&
                 branches->linear_offset == 0 && !strcmp(branches->activation->name, "identity");
    return !strcmp(weights->ffn.kind->name, "dual") ||
           (!strcmp(weights->ffn.kind->name, "gated") && plain);
}
