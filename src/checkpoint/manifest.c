#include "checkpoint/manifest.h"

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/fingerprint.h"
#include "checkpoint/publish.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT  "weft-checkpoint"
#define VERSION 1

static const size_t largest_manifest = (size_t)1 << 30;

/* ---- writing ---- */

static json_t *dims_json(const CatalogTensor *tensor, int64_t rows, int64_t cols) {
    int64_t dims[2];
    catalog_dims(tensor, rows, cols, dims);
    if (tensor->rank == 1) return json_pack("[I]", (json_int_t)dims[0]);
    return json_pack("[I, I]", (json_int_t)dims[0], (json_int_t)dims[1]);
}

static json_t *tensors_json(const Catalog *catalog) {
    json_t *list = json_array();
    for (int i = 0; i < catalog->tensors; i++) {
        const CatalogTensor *t = &catalog->tensor[i];
        json_t *item = json_pack("{s:s, s:o, s:i, s:i, s:s}", "name", t->name, "shape",
                                 dims_json(t, t->rows, t->cols), "axis", t->axis, "shards",
                                 t->shards, "dtype", REAL_NAME);
        if (json_array_append_new(list, item)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *shards_json(const Catalog *catalog) {
    json_t *list = json_array();
    for (int64_t i = 0; i < catalog->entries; i++) {
        const CatalogEntry *entry = &catalog->entry[i];
        const CatalogTensor *t = &catalog->tensor[entry->tensor];
        char file[CATALOG_FILE], dataset[CATALOG_DATASET], digest[HASH_TEXT];
        catalog_file_name(entry->t, entry->d, file);
        catalog_dataset(catalog, entry, dataset);
        hash_format(entry->digest, digest);
        json_t *item =
            json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:s}", "file", file, "dataset", dataset,
                      "role", catalog_roles[entry->role].name, "tensor", t->name, "offset",
                      dims_json(t, entry->piece.row, entry->piece.col), "count",
                      dims_json(t, entry->piece.rows, entry->piece.cols), "digest", digest);
        if (json_array_append_new(list, item)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* Copies the caller's blocks to the top level; none may take the place of another field. */
static int add_details(json_t *manifest, const json_t *details) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)details, key, value) {
        if (json_object_get(manifest, key) || !strcmp(key, "digest"))
            return error_set(WEFT_RUNTIME, "manifest: there are two fields %s", key);
        if (json_object_set(manifest, key, value))
            return error_set(WEFT_RUNTIME, "out of memory: manifest");
    }
    return 0;
}

static int seal_object(json_t *object) {
    Hash128 hash;
    char text[HASH_TEXT];
    json_t *content = json_copy(object);
    if (!content) return error_set(WEFT_RUNTIME, "out of memory: manifest");
    json_object_del(content, "digest");
    json_object_del(content, "origin");
    int status = fingerprint_json(content, &hash);
    json_decref(content);
    if (status) return status;
    hash_format(hash, text);
    if (json_object_set_new(object, "digest", json_string(text)))
        return error_set(WEFT_RUNTIME, "out of memory: manifest");
    return 0;
}

int manifest_seal(json_t *manifest) {
    int status = seal_object(json_object_get(manifest, "origin"));
    return status ? status : seal_object(manifest);
}

json_t *manifest_assemble(const Catalog *catalog, const CheckpointState *state,
                          Hash128 fingerprint) {
    char text[HASH_TEXT], view[HASH_TEXT];
    hash_format(fingerprint, text);
    hash_format(catalog->view_digest, view);
    json_t *origin = state->origin ? json_deep_copy(state->origin) : json_object();
    json_t *manifest = json_pack(
        "{s:s, s:i, s:I, s:I, s:{s:i, s:i}, s:O, s:o, s:o, s:{s:s}, s:s, s:o}", "format", FORMAT,
        "version", VERSION, "step", (json_int_t)state->step, "tokens", (json_int_t)state->tokens,
        "grid", "tensor", catalog->grid_tensor, "data", catalog->grid_data, "function",
        state->function, "tensors", tensors_json(catalog), "shards", shards_json(catalog), "view",
        "digest", view, "fingerprint", text, "origin", origin);
    if (!manifest) {
        error_set(WEFT_RUNTIME, "out of memory: manifest");
        return NULL;
    }
    if (add_details(manifest, state->details) || manifest_seal(manifest)) {
        json_decref(manifest);
        return NULL;
    }
    return manifest;
}

int manifest_write(const json_t *manifest, const char *directory) {
    char path[FILES_PATH];
    int status = files_join(path, sizeof path, directory, MANIFEST_FILE);
    if (status) return status;
    char *text = json_dumps(manifest, JSON_INDENT(1) | JSON_SORT_KEYS);
    if (!text) return error_set(WEFT_RUNTIME, "out of memory: %s", path);
    status = files_write(path, text, strlen(text));
    free(text);
    return status;
}

/* ---- reading ---- */

static const char *const type_names[] = {
    [JSON_OBJECT] = "an object",   [JSON_ARRAY] = "an array", [JSON_STRING] = "a text",
    [JSON_INTEGER] = "an integer", [JSON_REAL] = "a number",
};

/* A field of the wanted type, or NULL with the error set. */
static json_t *field(const json_t *object, const char *key, json_type type) {
    json_t *value = json_object_get(object, key);
    if (value && json_typeof(value) == type) return value;
    error_set(WEFT_INPUT, value ? "field %s isn't %s" : "field %s is missing (%s)", key,
              type_names[type]);
    return NULL;
}

static int integer(const json_t *object, const char *key, int64_t low, int64_t high,
                   int64_t *value) {
    const json_t *found = field(object, key, JSON_INTEGER);
    if (!found) return WEFT_INPUT;
    *value = json_integer_value(found);
    if (*value >= low && *value <= high) return 0;
    return error_set(WEFT_INPUT, "field %s is %lld, allowed are %lld to %lld", key,
                     (long long)*value, (long long)low, (long long)high);
}

static int small_integer(const json_t *object, const char *key, int low, int high, int *value) {
    int64_t wide = 0;
    int status = integer(object, key, low, high, &wide);
    *value = (int)wide;
    return status;
}

static int hash_field(const json_t *object, const char *key, Hash128 *hash) {
    const json_t *found = field(object, key, JSON_STRING);
    if (!found) return WEFT_INPUT;
    return hash_parse(json_string_value(found), hash) ? error_prefix(WEFT_INPUT, "field %s: ", key)
                                                      : 0;
}

/* An array of `rank` integers as (rows, cols) of a tensor; a vector's only number is its cols. */
static int dims_field(const json_t *object, const char *key, int rank, int64_t *rows,
                      int64_t *cols) {
    const json_t *list = field(object, key, JSON_ARRAY);
    if (!list) return WEFT_INPUT;
    if (json_array_size(list) != (size_t)rank)
        return error_set(WEFT_INPUT, "field %s doesn't have %d numbers", key, rank);
    for (int i = 0; i < rank; i++) {
        const json_t *number = json_array_get(list, (size_t)i);
        if (!json_is_integer(number) || json_integer_value(number) < 0)
            return error_set(WEFT_INPUT, "field %s: a number that isn't a natural one", key);
        *(i == rank - 1 ? cols : rows) = json_integer_value(number);
    }
    return 0;
}

static int check_seal(const json_t *object) {
    Hash128 wanted, found;
    json_t *content = json_copy((json_t *)object);
    if (!content) return error_set(WEFT_RUNTIME, "out of memory: manifest");
    json_object_del(content, "digest");
    json_object_del(content, "origin");
    int status = hash_field(object, "digest", &wanted);
    if (!status) status = fingerprint_json(content, &found);
    if (!status && !hash_equal(wanted, found))
        status = error_set(WEFT_INPUT, "damaged or edited: its own digest doesn't match");
    json_decref(content);
    return status;
}

static int read_tensor(Catalog *catalog, int i, const json_t *item) {
    CatalogTensor *tensor = &catalog->tensor[i];
    const json_t *name, *shape, *dtype;
    int64_t cells;
    if (!(name = field(item, "name", JSON_STRING)) || !(shape = field(item, "shape", JSON_ARRAY)) ||
        !(dtype = field(item, "dtype", JSON_STRING)))
        return WEFT_INPUT;
    size_t length = json_string_length(name);
    const char *text = json_string_value(name);
    if (length == 0 || length >= PARAM_NAME || strlen(text) != length || strchr(text, '/') ||
        !strcmp(text, ".") || catalog_find(catalog, text) >= 0)
        return error_set(WEFT_INPUT, "tensor %.100s: not a name, or there twice", text);
    if (strcmp(json_string_value(dtype), REAL_NAME))
        return error_set(WEFT_INPUT, "tensor %s: dtype is %.40s, this program's is " REAL_NAME,
                         text, json_string_value(dtype));
    tensor->rank = (int)json_array_size(shape);
    tensor->rows = tensor->cols = 1;
    if (tensor->rank != 1 && tensor->rank != 2)
        return error_set(WEFT_INPUT, "tensor %s: neither vector nor matrix", text);
    if (dims_field(item, "shape", tensor->rank, &tensor->rows, &tensor->cols) ||
        small_integer(item, "axis", -1, tensor->rank - 1, &tensor->axis) ||
        small_integer(item, "shards", 1, tensor->axis < 0 ? 1 : catalog->grid_tensor,
                      &tensor->shards))
        return error_prefix(WEFT_INPUT, "tensor %s: ", text);
    if (__builtin_mul_overflow(tensor->rows, tensor->cols, &cells) || cells <= 0 ||
        cells > INT64_MAX / 16)
        return error_set(WEFT_INPUT, "tensor %s: impossible shape", text);
    memcpy(tensor->name, text, length + 1);
    return 0;
}

static int role_find(const char *name) {
    for (int role = 0; role < CATALOG_ROLES; role++)
        if (!strcmp(catalog_roles[role].name, name)) return role;
    return -1;
}

static int read_shard(Catalog *catalog, int64_t i, const json_t *item) {
    CatalogEntry *entry = &catalog->entry[i];
    char expected[CATALOG_DATASET];
    const json_t *file, *role, *dataset, *tensor;
    if (!(file = field(item, "file", JSON_STRING)) || !(role = field(item, "role", JSON_STRING)) ||
        !(dataset = field(item, "dataset", JSON_STRING)) ||
        !(tensor = field(item, "tensor", JSON_STRING)))
        return WEFT_INPUT;
    if (!catalog_file_parse(json_string_value(file), &entry->t, &entry->d))
        return error_set(WEFT_INPUT, "%.100s is no name of a shard file", json_string_value(file));
    entry->role = role_find(json_string_value(role));
    entry->tensor = catalog_find(catalog, json_string_value(tensor));
    if (entry->role < 0 || entry->tensor < 0)
        return error_set(WEFT_INPUT, "there is no role %.40s or no tensor %.100s",
                         json_string_value(role), json_string_value(tensor));
    catalog_dataset(catalog, entry, expected);
    if (strcmp(json_string_value(dataset), expected))
        return error_set(WEFT_INPUT, "dataset is %.130s, expected %s", json_string_value(dataset),
                         expected);
    entry->piece.rows = 1;
    int rank = catalog->tensor[entry->tensor].rank;
    if (dims_field(item, "offset", rank, &entry->piece.row, &entry->piece.col) ||
        dims_field(item, "count", rank, &entry->piece.rows, &entry->piece.cols) ||
        hash_field(item, "digest", &entry->digest))
        return error_prefix(WEFT_INPUT, "%s in %s: ", expected, json_string_value(file));
    if (entry->role >= catalog->roles) catalog->roles = CATALOG_ROLES;
    return 0;
}

static int read_catalog(Catalog *catalog, const json_t *manifest) {
    const json_t *grid, *tensors, *shards, *view;
    if (!(grid = field(manifest, "grid", JSON_OBJECT)) ||
        !(tensors = field(manifest, "tensors", JSON_ARRAY)) ||
        !(shards = field(manifest, "shards", JSON_ARRAY)) ||
        !(view = field(manifest, "view", JSON_OBJECT)))
        return WEFT_INPUT;
    catalog->roles = 1;
    if (small_integer(grid, "tensor", 1, SHARD_MAX, &catalog->grid_tensor) ||
        small_integer(grid, "data", 1, SHARD_MAX, &catalog->grid_data))
        return error_prefix(WEFT_INPUT, "grid: ");
    if (hash_field(view, "digest", &catalog->view_digest))
        return error_prefix(WEFT_INPUT, "view: ");
    int status =
        catalog_allocate(catalog, (int)json_array_size(tensors), (int64_t)json_array_size(shards));
    for (int i = 0; !status && i < catalog->tensors; i++)
        status = read_tensor(catalog, i, json_array_get(tensors, (size_t)i));
    for (int64_t i = 0; !status && i < catalog->entries; i++)
        status = read_shard(catalog, i, json_array_get(shards, (size_t)i));
    return status ? status : catalog_complete(catalog);
}

static int check_manifest(const json_t *manifest, Catalog *catalog) {
    const json_t *format = field(manifest, "format", JSON_STRING);
    int64_t number;
    Hash128 hash;
    if (!format) return WEFT_INPUT;
    if (strcmp(json_string_value(format), FORMAT))
        return error_set(WEFT_INPUT, "format is \"%.40s\", expected \"" FORMAT "\"",
                         json_string_value(format));
    if (integer(manifest, "version", VERSION, VERSION, &number) || check_seal(manifest) ||
        integer(manifest, "step", 0, INT64_MAX, &number) ||
        integer(manifest, "tokens", 0, INT64_MAX, &number) ||
        !field(manifest, "function", JSON_OBJECT) || hash_field(manifest, "fingerprint", &hash))
        return WEFT_INPUT;
    const json_t *origin = field(manifest, "origin", JSON_OBJECT);
    if (!origin) return WEFT_INPUT;
    if (check_seal(origin)) return error_prefix(WEFT_INPUT, "origin: ");
    return read_catalog(catalog, manifest);
}

/* A published directory's name says its step: a copy under another's would pass for it. */
static int check_name(const char *directory, const json_t *manifest) {
    const char *slash = strrchr(directory, '/'), *name = slash ? slash + 1 : directory;
    int64_t step;
    if (!publish_step_parse(name, &step) || step == manifest_step(manifest)) return 0;
    return error_set(WEFT_INPUT, "is of step %" PRId64 ", the directory's name says another",
                     manifest_step(manifest));
}

int manifest_open(const char *directory, json_t **manifest, Catalog *catalog) {
    char path[FILES_PATH], *text = NULL;
    size_t size = 0;
    json_error_t where;
    *manifest = NULL;
    *catalog = (Catalog){0};
    int status = files_join(path, sizeof path, directory, MANIFEST_FILE);
    if (!status) status = files_read(path, largest_manifest, &text, &size);
    if (status) return status;
    *manifest = json_loadb(text, size, JSON_REJECT_DUPLICATES, &where);
    free(text);
    if (!*manifest) return error_set(WEFT_INPUT, "%s: line %d: %s", path, where.line, where.text);
    status = check_manifest(*manifest, catalog);
    if (!status) status = check_name(directory, *manifest);
    if (!status) return 0;
    json_decref(*manifest);
    *manifest = NULL;
    catalog_release(catalog);
    return error_prefix(status, "%s: ", path);
}

int checkpoint_manifest(const char *directory, json_t **manifest) {
    Catalog catalog;
    int status = manifest_open(directory, manifest, &catalog);
    catalog_release(&catalog);
    return status;
}

Hash128 manifest_fingerprint(const json_t *manifest) {
    Hash128 hash = {0, 0};
    hash_field(manifest, "fingerprint", &hash);
    return hash;
}

int64_t manifest_step(const json_t *manifest) {
    return json_integer_value(json_object_get(manifest, "step"));
}

int64_t manifest_tokens(const json_t *manifest) {
    return json_integer_value(json_object_get(manifest, "tokens"));
}
