#include "checkpoint/diff.h"

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/compare.h"
#include "checkpoint/fingerprint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { A, B, SIDES };
static const char *const side_name[SIDES] = {"A", "B"};

enum {
    BLOCK = 1 << 20,                    /* elements that are read at once */
    DIGITS = sizeof(real) == 8 ? 17 : 9 /* tell every value from its neighbours */
};

/* Not state, or told in another form. */
static const char *const apart[] = {"function",    "step",   "tokens", "tensors", "shards", "view",
                                    "fingerprint", "digest", "origin", "format",  "version"};

static json_t *rest_of(const json_t *manifest) {
    json_t *rest = json_copy((json_t *)manifest);
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++) json_object_del(rest, apart[i]);
    return rest;
}

/* Layout, machine and clock; the config is text of many lines. */
static json_t *origin_of(const json_t *manifest) {
    json_t *origin = json_copy(json_object_get(manifest, "origin"));
    json_object_del(origin, "config");
    json_object_del(origin, "digest");
    return origin;
}

static json_t *function_of(const json_t *manifest) {
    return json_incref(json_object_get(manifest, "function"));
}

static json_t *position_of(const json_t *manifest) {
    return json_pack("{s:O, s:O}", "step", json_object_get(manifest, "step"), "tokens",
                     json_object_get(manifest, "tokens"));
}

static const struct {
    const char *name, *differs;
    json_t *(*take)(const json_t *manifest);
    bool counts, always;
} blocks[] = {
    {"function", "function differs", function_of, true, true},
    {"position", "position differs", position_of, true, true},
    {"rest", "differs, but is no part of the state", rest_of, false, true},
    {"origin", "origin", origin_of, false, false}, /* with --verbose */
};
enum { BLOCKS = sizeof blocks / sizeof *blocks };

typedef struct {
    const DiffOptions *options;
    Reader reader[SIDES];
    real *block[SIDES];
    Hash128 fingerprint[SIDES];     /* of what has been read */
    int width;                      /* of the longest name of a tensor */
    int64_t elements;               /* compared */
    int arrays, inexact, different; /* of all: equal by the tolerance alone; not equal */
    bool header;                    /* of the table has been printed */
    bool block_differs[BLOCKS];
} Diff;

/* ---- tensors ---- */

static int read_side(Diff *diff, int side, int role, int tensor, ParamPiece block) {
    const CatalogTensor *whole = &diff->reader[side].catalog.tensor[tensor];
    int status = reader_block(&diff->reader[side], role, tensor, block, diff->block[side]);
    if (status) return status;
    Hash128 hash = fingerprint_piece(whole, role, block, diff->block[side], block.cols);
    diff->fingerprint[side] = hash_add(diff->fingerprint[side], hash);
    return 0;
}

/* Reads a tensor, given by its index on each side (-1: not on this side), and compares what both
 * have. */
static int walk(Diff *diff, int role, const int tensor[SIDES], Comparison *comparison) {
    int any = tensor[A] >= 0 ? A : B, status = 0;
    const CatalogTensor *whole = &diff->reader[any].catalog.tensor[tensor[any]];
    int64_t rows = reader_rows_at_once(whole, BLOCK);
    int64_t cols = whole->cols < BLOCK ? whole->cols : BLOCK;
    *comparison = (Comparison){0};
    for (int64_t row = 0; row < whole->rows; row += rows) {
        for (int64_t col = 0; !status && col < whole->cols; col += cols) {
            ParamPiece block = {row, col, rows < whole->rows - row ? rows : whole->rows - row,
                                cols < whole->cols - col ? cols : whole->cols - col};
            for (int side = A; !status && side < SIDES; side++)
                if (tensor[side] >= 0) status = read_side(diff, side, role, tensor[side], block);
            if (!status && tensor[A] >= 0 && tensor[B] >= 0)
                compare_block(comparison, block, diff->block[A], diff->block[B]);
        }
    }
    return status;
}

static void print_head(Diff *diff) {
    if (diff->header) return;
    diff->header = true;
    log_print("%-8s %-*s %10s %10s %10s %10s %10s  first difference: A, B\n", "role", diff->width,
              "tensor", "elements", "differing", "absolute", "relative", "ulps");
}

static void print_row(Diff *diff, int role, const CatalogTensor *tensor, const Comparison *c) {
    print_head(diff);
    log_print("%-8s %-*s %10" PRId64 " %10" PRId64, catalog_roles[role].name, diff->width,
              tensor->name, c->elements, c->differing);
    if (c->differing > c->nans)
        log_print(" %10.3g %10.3g %10" PRIu64, c->absolute, c->relative, c->ulps);
    else
        log_print(" %10s %10s %10s", "-", "-", "-");
    if (c->differing > 0) {
        if (tensor->rank == 2)
            log_print("  [%" PRId64 ", %" PRId64 "]", c->row, c->col);
        else
            log_print("  [%" PRId64 "]", c->col);
        log_print(": %.*g, %.*g", DIGITS, (double)c->a, DIGITS, (double)c->b);
    }
    if (c->nans > 0) log_print("; %" PRId64 " with NaN", c->nans);
    if (c->differing > 0 && compare_within(c, diff->options->tolerance))
        log_print("; within the tolerance");
    log_print("\n");
}

/* A line for a tensor that can't be compared. */
static void print_reason(Diff *diff, int role, const char *tensor, const char *reason) {
    print_head(diff);
    log_print("%-8s %-*s %s\n", catalog_roles[role].name, diff->width, tensor, reason);
    diff->arrays++;
    diff->different++;
}

static bool same_shape(const CatalogTensor *a, const CatalogTensor *b) {
    return a->rank == b->rank && a->rows == b->rows && a->cols == b->cols;
}

/* Of one side alone, or of another shape there: read for the fingerprint. */
static int tell_apart(Diff *diff, int role, const int tensor[SIDES]) {
    char reason[200], shape[SIDES][PARAM_SHAPE] = {"", ""};
    const char *name = NULL;
    int status = 0;
    for (int side = B; !status && side >= A; side--) {
        int alone[SIDES] = {-1, -1};
        Comparison unused;
        if (tensor[side] < 0) continue;
        const CatalogTensor *whole = &diff->reader[side].catalog.tensor[tensor[side]];
        name = whole->name;
        param_shape_text(whole->rank, whole->rows, whole->cols, shape[side]);
        alone[side] = tensor[side];
        status = walk(diff, role, alone, &unused);
    }
    if (status) return status;
    if (shape[A][0] && shape[B][0])
        snprintf(reason, sizeof reason, "other shapes: A %s, B %s", shape[A], shape[B]);
    else
        snprintf(reason, sizeof reason, "only %s has it", side_name[shape[A][0] ? A : B]);
    print_reason(diff, role, name, reason);
    return 0;
}

static int compare_tensor(Diff *diff, int role, const int tensor[SIDES], int *equal) {
    const CatalogTensor *a = &diff->reader[A].catalog.tensor[tensor[A]];
    const CatalogTensor *b = &diff->reader[B].catalog.tensor[tensor[B]];
    Comparison comparison;
    if (!same_shape(a, b)) return tell_apart(diff, role, tensor);
    int status = walk(diff, role, tensor, &comparison);
    if (status) return status;
    bool exact = comparison.differing == 0;
    bool within = compare_within(&comparison, diff->options->tolerance);
    diff->arrays++;
    diff->elements += comparison.elements;
    *equal += exact;
    diff->inexact += within && !exact;
    diff->different += !within;
    if (!exact || diff->options->verbose) print_row(diff, role, a, &comparison);
    return 0;
}

/* Its index on each side; -1 where the side lacks the tensor or the role. */
static void find_both(const Diff *diff, int role, const char *name, int tensor[SIDES]) {
    for (int side = A; side < SIDES; side++) {
        const Catalog *catalog = &diff->reader[side].catalog;
        tensor[side] = role < catalog->roles ? catalog_find(catalog, name) : -1;
    }
}

static int compare_role(Diff *diff, int role) {
    int equal = 0, status = 0;
    for (int side = A; side < SIDES; side++) {
        const Catalog *catalog = &diff->reader[side].catalog;
        for (int i = 0; !status && role < catalog->roles && i < catalog->tensors; i++) {
            int tensor[SIDES];
            find_both(diff, role, catalog->tensor[i].name, tensor);
            if (tensor[A] < 0 || tensor[B] < 0)
                status = tell_apart(diff, role, tensor);
            else if (side == A)
                status = compare_tensor(diff, role, tensor, &equal);
        }
    }
    if (!status && equal > 0) log_print("%-8s %d tensors equal\n", catalog_roles[role].name, equal);
    return status;
}

/* ---- manifests ---- */

static void print_indented(const char *text) {
    for (const char *line = text; *line;) {
        int length = (int)strcspn(line, "\n");
        log_print("  %.*s\n", length, line);
        line += length + (line[length] == '\n');
    }
}

static int compare_block_of(Diff *diff, int i) {
    json_t *block[SIDES] = {blocks[i].take(diff->reader[A].manifest),
                            blocks[i].take(diff->reader[B].manifest)};
    int status = 0;
    char *differences = NULL;
    if (!block[A] || !block[B])
        status = error_set(WEFT_RUNTIME, "out of memory: manifests");
    else
        differences =
            checkpoint_differences_between(block[A], side_name[A], block[B], side_name[B]);
    if (differences) {
        log_print("%s:\n", blocks[i].differs);
        print_indented(differences);
        diff->block_differs[i] = blocks[i].counts;
    } else if (!status && blocks[i].counts) {
        log_print("%-8s equal\n", blocks[i].name);
    }
    free(differences);
    json_decref(block[A]);
    json_decref(block[B]);
    return status;
}

/* ---- the whole ---- */

static void print_side(const Diff *diff, int side) {
    const Reader *reader = &diff->reader[side];
    char fingerprint[HASH_TEXT];
    hash_format(manifest_fingerprint(reader->manifest), fingerprint);
    log_print("%s: %s\n   step %" PRId64 ", %" PRId64 " tokens, grid %d x %d, fingerprint %s\n",
              side_name[side], reader->directory, manifest_step(reader->manifest),
              manifest_tokens(reader->manifest), reader->catalog.grid_tensor,
              reader->catalog.grid_data, fingerprint);
}

/* What was compared is what the manifest's fingerprint is of. */
static int check_fingerprint(Diff *diff, int side) {
    const Reader *reader = &diff->reader[side];
    Hash128 hash;
    int status = fingerprint_identity(
        &reader->catalog, json_object_get(reader->manifest, "function"),
        manifest_step(reader->manifest), manifest_tokens(reader->manifest), &hash);
    if (status) return status;
    hash = hash_add(hash, diff->fingerprint[side]);
    if (hash_equal(hash, manifest_fingerprint(reader->manifest))) return 0;
    return error_set(WEFT_INPUT,
                     "%s: is damaged: its data have another fingerprint than its manifest; weft "
                     "verify tells where",
                     reader->directory);
}

static int print_verdict(const Diff *diff) {
    bool differ = diff->different > 0;
    for (int i = 0; i < BLOCKS; i++) differ |= diff->block_differs[i];
    bool same = hash_equal(manifest_fingerprint(diff->reader[A].manifest),
                           manifest_fingerprint(diff->reader[B].manifest));
    log_print("fingerprint %s\n", same ? "equal" : "differs");
    if (!differ) {
        log_print("equal: %d arrays, %" PRId64 " elements", diff->arrays, diff->elements);
        if (diff->inexact > 0)
            log_print("; %d of the arrays by the tolerance of %g of their largest magnitude",
                      diff->inexact, diff->options->tolerance);
        log_print("\n");
        return 0;
    }
    log_print("different:");
    if (diff->different > 0) log_print(" %d of %d arrays", diff->different, diff->arrays);
    for (int i = 0, named = diff->different > 0; i < BLOCKS; i++)
        if (diff->block_differs[i]) log_print("%s %s", named++ ? "," : "", blocks[i].name);
    log_print("\n");
    return error_set(WEFT_CHECK, "%s and %s differ", diff->reader[A].directory,
                     diff->reader[B].directory);
}

/* The table's column for names, which is as wide as it must be. */
static void fit_names(Diff *diff, const Catalog *catalog) {
    for (int i = 0; i < catalog->tensors; i++) {
        int length = (int)strlen(catalog->tensor[i].name);
        if (length > diff->width) diff->width = length;
    }
}

static int open_sides(Diff *diff, const char *const directory[SIDES]) {
    int status = 0;
    for (int side = A; !status && side < SIDES; side++) {
        status = reader_open(&diff->reader[side], directory[side]);
        if (status) break;
        fit_names(diff, &diff->reader[side].catalog);
        diff->block[side] = memory_allocate(BLOCK * sizeof(real), "a block of values");
        if (!diff->block[side]) status = WEFT_RUNTIME;
    }
    return status;
}

int checkpoint_diff(const char *a, const char *b, const DiffOptions *options) {
    const char *directory[SIDES] = {a, b};
    Diff *diff = calloc(1, sizeof *diff);
    if (!diff) return error_set(WEFT_RUNTIME, "out of memory: diff");
    diff->options = options;
    int status = open_sides(diff, directory);
    for (int side = A; !status && side < SIDES; side++) print_side(diff, side);
    for (int role = 0; !status && role < CATALOG_ROLES; role++) status = compare_role(diff, role);
    for (int i = 0; !status && i < BLOCKS; i++)
        if (blocks[i].always || options->verbose) status = compare_block_of(diff, i);
    for (int side = A; !status && side < SIDES; side++) status = check_fingerprint(diff, side);
    if (!status) status = print_verdict(diff);
    for (int side = A; side < SIDES; side++) {
        reader_close(&diff->reader[side]);
        free(diff->block[side]);
    }
    free(diff);
    return status;
}
