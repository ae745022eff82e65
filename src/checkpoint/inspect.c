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

static int print_blocks(const json_t *manifest) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)manifest, key, value) {
        if (!is_block(key)) continue;
        char *text = json_dumps(value, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_ENCODE_ANY);
        if (!text) return error_set(WEFT_RUNTIME, "out of memory: %s", key);
        log_print("%s %s\n", key, text);
        free(text);
    }
    return 0;
}

static void print_pair(const CatalogTensor *tensor, const char *before, int64_t rows,
                       int64_t cols) {
    if (tensor->rank == 1)
        log_print("%s[%" PRId64 "]", before, cols);
    else
        log_print("%s[%" PRId64 ", %" PRId64 "]", before, rows, cols);
}

static void print_tensor(const Catalog *catalog, int tensor) {
    const CatalogTensor *whole = &catalog->tensor[tensor];
    log_print("%s " REAL_NAME, whole->name);
    print_pair(whole, " ", whole->rows, whole->cols);
    if (whole->axis < 0)
        log_print(" replicated\n");
    else
        log_print(" axis %d in %d shards\n", whole->axis, whole->shards);
    for (int role = 0; role < catalog->roles; role++) {
        const int64_t *first = &catalog->first[role * catalog->tensors + tensor];
        for (int64_t i = first[0]; i < first[1]; i++) {
            const CatalogEntry *entry = &catalog->entry[catalog->by_tensor[i]];
            char file[CATALOG_FILE], digest[HASH_TEXT];
            catalog_file_name(entry->t, entry->d, file);
            hash_format(entry->digest, digest);
            log_print("    %s %-7s %s", file, catalog_roles[role].name, digest);
            print_pair(whole, " at ", entry->piece.row, entry->piece.col);
            print_pair(whole, " size ", entry->piece.rows, entry->piece.cols);
            log_print("\n");
        }
    }
}

int checkpoint_inspect(const char *directory) {
    json_t *manifest;
    Catalog catalog;
    char fingerprint[HASH_TEXT];
    int status = manifest_open(directory, &manifest, &catalog);
    if (status) return status;
    log_print("checkpoint %s\nstep %" PRId64 ", %" PRId64 " tokens, grid of %d tensor and %d data "
              "shards, %s\n",
              directory, manifest_step(manifest), manifest_tokens(manifest), catalog.grid_tensor,
              catalog.grid_data, catalog.roles > 1 ? "with moments" : "values alone");
    status = print_blocks(manifest);
    for (int i = 0; !status && i < catalog.tensors; i++) print_tensor(&catalog, i);
    hash_format(manifest_fingerprint(manifest), fingerprint);
    if (!status)
        log_print("fingerprint %s step %" PRId64 "\n", fingerprint, manifest_step(manifest));
    catalog_release(&catalog);
    json_decref(manifest);
    return status;
}
