#include "checkpoint/verify.h"

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/fingerprint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/store.h"
#include "checkpoint/view.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names that may stand beside the shard files. */
static const struct {
    const char *name;
    bool required;
} other_files[] = {{MANIFEST_FILE, true}, {VIEW_FILE, true}, {"proof.json", false}};
enum { OTHER_FILES = sizeof other_files / sizeof *other_files };

typedef struct {
    const char *directory;
    bool heard;
    int problems;
    char first[1024];
    json_t *manifest;
    Catalog catalog;
    Hash128 *part; /* of the fingerprint, as the shard files have it, by role and tensor */
    real *piece;   /* room for the largest */
} Verify;

/* Notes the present error as a problem. */
static void note(Verify *verify) {
    if (verify->problems++ == 0)
        snprintf(verify->first, sizeof verify->first, "%s", error_message());
    if (verify->heard) log_error("%s", error_message());
}

static bool is_known(const Verify *verify, const char *name) {
    int t, d;
    for (int i = 0; i < OTHER_FILES; i++)
        if (!strcmp(name, other_files[i].name)) return true;
    return catalog_file_parse(name, &t, &d) && t < verify->catalog.grid_tensor &&
           d < verify->catalog.grid_data;
}

static void require(Verify *verify, const char *name) {
    char path[FILES_PATH];
    if (files_join(path, sizeof path, verify->directory, name)) {
        note(verify);
    } else if (!files_is_regular(path)) {
        error_set(WEFT_INPUT, "%s: %s", path,
                  files_exists(path) ? "is no regular file" : "file is missing");
        note(verify);
    }
}

static void check_files(Verify *verify) {
    char name[CATALOG_FILE];
    FileNames names = {0};
    if (files_list(verify->directory, &names)) note(verify);
    for (int i = 0; i < names.count; i++) {
        if (is_known(verify, names.name[i])) continue;
        error_set(WEFT_INPUT, "%s/%s: file is extra", verify->directory, names.name[i]);
        note(verify);
    }
    files_names_release(&names);
    for (int i = 0; i < OTHER_FILES; i++)
        if (other_files[i].required) require(verify, other_files[i].name);
    for (int t = 0; t < verify->catalog.grid_tensor; t++) {
        for (int d = 0; d < verify->catalog.grid_data; d++) {
            catalog_file_name(t, d, name);
            require(verify, name);
        }
    }
}

static void check_shard_file(Verify *verify, int t, int d) {
    char name[CATALOG_FILE], path[FILES_PATH];
    const Catalog *catalog = &verify->catalog;
    Hdf5File file;
    catalog_file_name(t, d, name);
    if (!files_join(path, sizeof path, verify->directory, name) && !files_exists(path))
        return; /* noted already */
    if (store_open(&file, verify->directory, t, d)) {
        note(verify);
        return;
    }
    if (store_check_names(&file, catalog, t, d)) note(verify);
    Range entries = catalog_file_entries(catalog, t, d);
    for (int64_t i = entries.begin; i < entries.end; i++) {
        const CatalogEntry *entry = &catalog->entry[i];
        Hash128 *part = &verify->part[entry->role * catalog->tensors + entry->tensor];
        if (store_read(&file, catalog, entry, verify->piece))
            note(verify);
        else
            *part =
                hash_add(*part, fingerprint_piece(&catalog->tensor[entry->tensor], entry->role,
                                                  entry->piece, verify->piece, entry->piece.cols));
    }
    hdf5_close(&file);
}

/* The view's sources, and that reading through it finds what the shard files hold. Only when those
 * are good: else what it shows says nothing about the view. */
static void check_view(Verify *verify) {
    const Catalog *catalog = &verify->catalog;
    Hdf5File file;
    if (view_open(&file, catalog, verify->directory)) {
        note(verify);
        return;
    }
    if (view_check_names(&file, catalog)) note(verify);
    for (int role = 0; role < catalog->roles; role++) {
        for (int tensor = 0; tensor < catalog->tensors; tensor++) {
            Hash128 hash, wanted = verify->part[role * catalog->tensors + tensor];
            if (view_check(&file, catalog, role, tensor, &hash)) {
                note(verify);
            } else if (!hash_equal(hash, wanted)) {
                error_set(WEFT_INPUT, "%s: %s of %s: the view shows other values than the shards",
                          file.path, catalog_roles[role].name, catalog->tensor[tensor].name);
                note(verify);
            }
        }
    }
    hdf5_close(&file);
}

static void check_fingerprint(Verify *verify) {
    char found[HASH_TEXT], wanted[HASH_TEXT];
    Hash128 hash;
    if (fingerprint_identity(&verify->catalog, json_object_get(verify->manifest, "function"),
                             manifest_step(verify->manifest), manifest_tokens(verify->manifest),
                             &hash)) {
        note(verify);
        return;
    }
    for (int i = 0; i < verify->catalog.roles * verify->catalog.tensors; i++)
        hash = hash_add(hash, verify->part[i]);
    if (hash_equal(hash, manifest_fingerprint(verify->manifest))) return;
    hash_format(hash, found);
    hash_format(manifest_fingerprint(verify->manifest), wanted);
    error_set(WEFT_INPUT, "%s/" MANIFEST_FILE ": fingerprint is %s, the data have %s",
              verify->directory, wanted, found);
    note(verify);
}

static int open_verify(Verify *verify) {
    int status = manifest_open(verify->directory, &verify->manifest, &verify->catalog);
    if (status) return status;
    const Catalog *catalog = &verify->catalog;
    verify->part = calloc((size_t)catalog->roles * (size_t)catalog->tensors + 1, sizeof(Hash128));
    if (!verify->part) return error_set(WEFT_RUNTIME, "out of memory: verification");
    verify->piece =
        memory_allocate((size_t)store_largest_piece(catalog, verify->directory) * sizeof(real),
                        "the largest piece of the checkpoint");
    return verify->piece ? 0 : WEFT_RUNTIME;
}

static void check_content(Verify *verify) {
    for (int t = 0; t < verify->catalog.grid_tensor; t++)
        for (int d = 0; d < verify->catalog.grid_data; d++) check_shard_file(verify, t, d);
    if (verify->problems == 0) check_view(verify);
    if (verify->problems == 0) check_fingerprint(verify);
}

static int run(const char *directory, bool heard, bool content) {
    Verify verify = {.directory = directory, .heard = heard};
    if (open_verify(&verify)) {
        note(&verify);
    } else {
        check_files(&verify);
        if (content) check_content(&verify);
    }
    free(verify.piece);
    free(verify.part);
    json_decref(verify.manifest);
    catalog_release(&verify.catalog);
    return verify.problems ? error_set(WEFT_CHECK, "%s", verify.first) : 0;
}

int verify_directory(const char *directory, bool heard) { return run(directory, heard, true); }

int verify_presence(const char *directory, bool heard) { return run(directory, heard, false); }

int checkpoint_verify(const char *directory) { return verify_directory(directory, true); }
