#include "checkpoint/verify.h"

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/fingerprint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/proof_file.h"
#include "checkpoint/store.h"
#include "checkpoint/view.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names that may stand beside the shard files. */
static const struct {
    const char *name;
    bool required;
} other_files[] = {{MANIFEST_FILE, true}, {VIEW_FILE, true}, {PROOF_FILE, false}};
enum { OTHER_FILES = sizeof other_files / sizeof *other_files };

enum { BLOCK_ELEMENTS = 1 << 20 }; /* of a dataset that are read at once */

typedef enum { PRESENCE, DIGESTS, CONTENT, DEEP } Depth;

typedef struct {
    const char *directory;
    void (*tell)(void *context, const char *problem); /* NULL: nobody */
    void *context;
    Depth depth;
    VerifyReport report;
    int problems;
    char first[1024];
    json_t *manifest;
    Catalog catalog;
    Hash128 *part; /* of the fingerprint, as the shard files have it, by role and tensor */
    real *block;   /* BLOCK_ELEMENTS */
} Verify;

/* A run may remove a checkpoint that somebody reads, all at once. */
static bool has_gone(const Verify *verify) {
    return verify->manifest && !files_exists(verify->directory);
}

/* Notes the present error as a problem. */
static void note(Verify *verify) {
    if (has_gone(verify)) {
        if (verify->problems > 0) return;
        error_set(WEFT_INPUT, "%s: was removed while it was read, as its run does with old ones",
                  verify->directory);
    }
    if (verify->problems++ == 0)
        snprintf(verify->first, sizeof verify->first, "%s", error_message());
    if (verify->tell) verify->tell(verify->context, error_message());
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
    } else {
        verify->report.files++;
        verify->report.bytes += files_size(path);
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

/* Such as training leaves it. */
static const char *fault_of(int role, real value) {
    if (!isfinite(value)) return "isn't finite";
    return catalog_roles[role].role == PARAM_MOMENT2 && value < 0 ? "is negative" : NULL;
}

/* What was seen of one dataset. */
typedef struct {
    const Verify *verify;
    const CatalogEntry *entry;
    Hash128 elements; /* of the fingerprint */
    int64_t faults;   /* values that training doesn't leave */
    int64_t row, col; /* of the first one */
    real value;
} Sight;

static void look_at_values(Sight *sight, ParamPiece part, const real *data) {
    for (int64_t i = 0; i < part.rows * part.cols; i++) {
        if (!fault_of(sight->entry->role, data[i]) || sight->faults++ > 0) continue;
        sight->row = part.row + i / part.cols;
        sight->col = part.col + i % part.cols;
        sight->value = data[i];
    }
}

static void look(void *context, ParamPiece part, const real *data) {
    Sight *sight = context;
    if (sight->verify->depth == DIGESTS) return;
    const CatalogEntry *entry = sight->entry;
    const CatalogTensor *tensor = &sight->verify->catalog.tensor[entry->tensor];
    sight->elements =
        hash_add(sight->elements, fingerprint_piece(tensor, entry->role, part, data, part.cols));
    if (sight->verify->depth == DEEP) look_at_values(sight, part, data);
}

static void note_values(Verify *verify, const Hdf5File *file, const Sight *sight) {
    char dataset[CATALOG_DATASET], place[64];
    const CatalogEntry *entry = sight->entry;
    catalog_dataset(&verify->catalog, entry, dataset);
    if (verify->catalog.tensor[entry->tensor].rank == 2)
        snprintf(place, sizeof place, "[%" PRId64 ", %" PRId64 "]", sight->row, sight->col);
    else
        snprintf(place, sizeof place, "[%" PRId64 "]", sight->col);
    error_set(WEFT_INPUT,
              "%s: dataset %s: cell %s of the tensor %s: %.9g (such are %" PRId64 " of the %" PRId64
              " here)",
              file->path, dataset, place, fault_of(entry->role, sight->value), (double)sight->value,
              sight->faults, catalog_piece_size(entry));
    note(verify);
}

/* One dataset, and its part of the fingerprint. */
static void check_dataset(Verify *verify, const Hdf5File *file, const CatalogEntry *entry) {
    const Catalog *catalog = &verify->catalog;
    Hash128 *part = &verify->part[entry->role * catalog->tensors + entry->tensor];
    Sight sight = {.verify = verify, .entry = entry};
    if (store_scan(file, catalog, entry, verify->block, BLOCK_ELEMENTS, look, &sight)) {
        note(verify);
        return;
    }
    *part = hash_add(*part, sight.elements);
    if (sight.faults > 0) note_values(verify, file, &sight);
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
    for (int64_t i = entries.begin; i < entries.end; i++)
        check_dataset(verify, &file, &catalog->entry[i]);
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

static void check_view_digest(Verify *verify) {
    Hdf5File file = {.id = -1};
    if (view_open(&file, &verify->catalog, verify->directory)) note(verify);
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
    error_set(WEFT_INPUT, "%s/" MANIFEST_FILE ": fingerprint is %s, function and data give %s",
              verify->directory, wanted, found);
    note(verify);
}

static int open_verify(Verify *verify) {
    int status = manifest_open(verify->directory, &verify->manifest, &verify->catalog);
    if (status) return status;
    const Catalog *catalog = &verify->catalog;
    verify->part = calloc((size_t)catalog->roles * (size_t)catalog->tensors + 1, sizeof(Hash128));
    if (!verify->part) return error_set(WEFT_RUNTIME, "out of memory: verification");
    if (verify->depth == PRESENCE) return 0;
    verify->block = memory_allocate(BLOCK_ELEMENTS * sizeof(real), "a block of the checkpoint");
    return verify->block ? 0 : WEFT_RUNTIME;
}

static void check_content(Verify *verify) {
    for (int t = 0; t < verify->catalog.grid_tensor; t++)
        for (int d = 0; d < verify->catalog.grid_data; d++) check_shard_file(verify, t, d);
    if (verify->depth == DIGESTS) {
        check_view_digest(verify);
        return;
    }
    if (verify->problems == 0) check_view(verify);
    if (verify->problems == 0) check_fingerprint(verify);
}

static void check_proof(Verify *verify) {
    verify->report.proof = proof_file_exists(verify->directory);
    if (verify->report.proof) require(verify, PROOF_FILE);
    if (proof_file_check(verify->directory, verify->manifest)) note(verify);
}

static void count(const Catalog *catalog, VerifyReport *report) {
    report->tensors = catalog->tensors;
    report->roles = catalog->roles;
    report->datasets = catalog->entries;
    for (int i = 0; i < catalog->tensors; i++)
        report->cells += catalog->tensor[i].rows * catalog->tensor[i].cols * catalog->roles;
}

static int run(Verify *verify, VerifyReport *report) {
    if (open_verify(verify)) {
        note(verify);
    } else {
        check_files(verify);
        if (verify->depth >= DIGESTS) check_content(verify);
        if (verify->depth == DEEP) check_proof(verify);
        count(&verify->catalog, &verify->report);
    }
    if (report) *report = verify->report;
    free(verify->block);
    free(verify->part);
    json_decref(verify->manifest);
    catalog_release(&verify->catalog);
    return verify->problems ? error_set(WEFT_CHECK, "%s", verify->first) : 0;
}

static void say(void *context, const char *problem) {
    (void)context;
    log_error("%s", problem);
}

static int run_to(Depth depth, const char *directory, bool heard, VerifyReport *report) {
    Verify verify = {.directory = directory, .depth = depth, .tell = heard ? say : NULL};
    return run(&verify, report);
}

int verify_directory(const char *directory, bool heard) {
    return run_to(CONTENT, directory, heard, NULL);
}

int verify_digests(const char *directory) { return run_to(DIGESTS, directory, false, NULL); }

int verify_deep(const char *directory, bool heard, VerifyReport *report) {
    return run_to(DEEP, directory, heard, report);
}

int verify_presence(const char *directory) { return run_to(PRESENCE, directory, false, NULL); }

int verify_files(const char *directory, void (*tell)(void *context, const char *problem),
                 void *context) {
    Verify verify = {.directory = directory, .depth = PRESENCE, .tell = tell, .context = context};
    run(&verify, NULL);
    return verify.problems;
}

int checkpoint_verify(const char *directory) { return verify_directory(directory, true); }
