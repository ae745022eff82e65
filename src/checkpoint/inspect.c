/* checkpoint_inspect: a checkpoint for people. */
#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Fields that are told in another form, or tell nothing. */
static const char *const not_blocks[] = {"format",  "version", "step",        "tokens", "grid",
                                         "tensors", "shards",  "fingerprint", "view",   "digest"};

static bool is_block(const char *key) {
    for (size_t i = 0; i < sizeof not_blocks / sizeof *not_blocks; i++)
        if (!strcmp(key, not_blocks[i])) return false;
    return true;
}

enum { LONGEST = 8, PATH = 256 }; /* lists of more numbers are counted */

static int lines_of(const char *text) {
    int lines = 0;
    for (; text && (text = strchr(text, '\n')); text++) lines++;
    return lines;
}

static int print_value(const char *path, const json_t *value) {
    size_t count = json_array_size(value);
    int lines = lines_of(json_string_value(value));
    if (count > LONGEST && !json_is_object(json_array_get(value, 0))) {
        log_print("%s = [%zu values]\n", path, count);
        return 0;
    }
    if (lines) { /* a config */
        log_print("%s = [%d lines]\n", path, lines);
        return 0;
    }
    char *text = json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY |
                                       JSON_REAL_PRECISION(15));
    if (!text) return error_set(WEFT_RUNTIME, "out of memory: %s", path);
    log_print("%s = %s\n", path, text);
    free(text);
    return 0;
}

/* "path.key", the key quoted where it isn't a plain name: nobody forges a line. */
static int add_key(const char *path, const char *key, char longer[PATH]) {
    const char *plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    json_t *quoted = strspn(key, plain) == strlen(key) ? NULL : json_string(key);
    char *text = quoted ? json_dumps(quoted, JSON_ENCODE_ANY) : NULL;
    int status = !quoted || text ? 0 : error_set(WEFT_RUNTIME, "out of memory: %s", path);
    snprintf(longer, PATH, "%s%s%s", path, path[0] ? "." : "", text ? text : key);
    free(text);
    json_decref(quoted);
    return status;
}

static int print_field(const char *path, const json_t *value);

static int print_object(const char *path, const json_t *object) {
    const char *key;
    json_t *value;
    int status = 0;
    if (json_object_size(object) == 0) return print_value(path, object);
    json_object_foreach((json_t *)object, key, value) {
        char deeper[PATH];
        if (status || (!path[0] && !is_block(key))) continue;
        status = add_key(path, key, deeper);
        if (!status) status = print_field(deeper, value);
    }
    return status;
}

/* One line a field: objects as paths, lists of objects one line an element. */
static int print_field(const char *path, const json_t *value) {
    if (json_is_object(value)) return print_object(path, value);
    if (!json_is_object(json_array_get(value, 0))) return print_value(path, value);
    size_t i;
    json_t *element;
    int status = 0;
    json_array_foreach((json_t *)value, i, element) {
        char deeper[PATH + 32];
        snprintf(deeper, sizeof deeper, "%s[%zu]", path, i);
        if (!status) status = print_value(deeper, element);
    }
    return status;
}

/* A token of an mlp is a row of its data. */
static const char *unit_of(const json_t *manifest) {
    const json_t *model = json_object_get(json_object_get(manifest, "function"), "model");
    const char *kind = json_string_value(json_object_get(model, "kind"));
    return kind && !strcmp(kind, "mlp") ? "rows" : "tokens";
}

static void print_piece(const CatalogTensor *whole, int role, const CatalogEntry *entry) {
    char file[CATALOG_FILE], digest[HASH_TEXT], at[PARAM_SHAPE], size[PARAM_SHAPE];
    catalog_file_name(entry->t, entry->d, file);
    hash_format(entry->digest, digest);
    param_shape_text(whole->rank, entry->piece.row, entry->piece.col, at);
    param_shape_text(whole->rank, entry->piece.rows, entry->piece.cols, size);
    log_print("    %s %-7s %s at %s size %s\n", file, catalog_roles[role].name, digest, at, size);
}

static void print_tensor(const Catalog *catalog, int tensor, bool pieces) {
    const CatalogTensor *whole = &catalog->tensor[tensor];
    char shape[PARAM_SHAPE];
    param_shape_text(whole->rank, whole->rows, whole->cols, shape);
    log_print("%s " REAL_NAME " %s", whole->name, shape);
    if (whole->axis < 0)
        log_print(" replicated\n");
    else
        log_print(" axis %d in %d shards\n", whole->axis, whole->shards);
    for (int role = 0; pieces && role < catalog->roles; role++) {
        const int64_t *first = &catalog->first[role * catalog->tensors + tensor];
        for (int64_t i = first[0]; i < first[1]; i++)
            print_piece(whole, role, &catalog->entry[catalog->by_tensor[i]]);
    }
}

static int64_t parameters(const Catalog *catalog) {
    int64_t sum = 0;
    for (int i = 0; i < catalog->tensors; i++)
        sum += catalog->tensor[i].rows * catalog->tensor[i].cols;
    return sum;
}

int checkpoint_inspect(const char *directory, bool pieces) {
    json_t *manifest;
    Catalog catalog;
    char fingerprint[HASH_TEXT];
    int status = manifest_open(directory, &manifest, &catalog);
    if (status) return status;
    log_print("checkpoint %s\nstep %" PRId64 ", %" PRId64 " %s, grid of %d tensor and %d data "
              "shards, %s\n",
              directory, manifest_step(manifest), manifest_tokens(manifest), unit_of(manifest),
              catalog.grid_tensor, catalog.grid_data,
              catalog.roles > 1 ? "with moments" : "values alone");
    status = print_object("", manifest);
    if (!status)
        log_print("%d tensors, %" PRId64 " parameters\n", catalog.tensors, parameters(&catalog));
    for (int i = 0; !status && i < catalog.tensors; i++) print_tensor(&catalog, i, pieces);
    hash_format(manifest_fingerprint(manifest), fingerprint);
    if (!status)
        log_print("fingerprint %s step %" PRId64 "\n", fingerprint, manifest_step(manifest));
    catalog_release(&catalog);
    json_decref(manifest);
    return status;
}
