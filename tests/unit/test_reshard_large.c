/* A checkpoint with a dataset above 2 GiB, made by a reshard that may not use 1 GB of memory. The
 * source is sparse: zeros but for some blocks, which are marked. */
#include "base/clock.h"
#include "base/error.h"
#include "checkpoint/fingerprint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/reader.h"
#include "checkpoint/view.h"
#include "run/reshard.h"
#include "support/checkpoint_pattern.h"
#include "support/model_checkpoint.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEP "step-00000003"

#ifdef __has_feature /* clang's way to tell; gcc defines __SANITIZE_ADDRESS__ */
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

enum { BLOCK_ROWS = 16384, MARKED_EVERY = 57 };
static const int64_t disk_needed = INT64_C(15000000000), memory_limit = INT64_C(1000000000);
static const char *const settings[] = {
    "model.vocab=8500000", /* x 64 in float: 2.2 GB */
    "model.d_model=64",    "model.layers=1", "grid.tensor=3", "grid.data=1", NULL,
};

/* What a cell holds, by its place in the whole tensor. Of every MARKED_EVERY blocks one isn't zero.
 */
static bool is_marked(int64_t row) { return row / BLOCK_ROWS % MARKED_EVERY == 0; }

static real cell(int64_t row, int64_t col) {
    return is_marked(row) ? (real)((row * 64 + col) % 9973) / 9973 - (real)0.5 : 0;
}

static void fill(real *block, ParamPiece part) {
    memset(block, 0, (size_t)(part.rows * part.cols) * sizeof *block);
    if (!is_marked(part.row)) return;
    for (int64_t i = 0; i < part.rows * part.cols; i++)
        block[i] = cell(part.row + i / part.cols, part.col + i % part.cols);
}

static real *new_block(const CatalogTensor *tensor) {
    real *block = malloc((size_t)(BLOCK_ROWS * tensor->cols) * sizeof *block);
    ck_assert_ptr_nonnull(block);
    return block;
}

/* Writes a piece of the source; only marked blocks go to the disk. */
static Hash128 write_piece(const Hdf5File *file, const Catalog *catalog, CatalogEntry *entry) {
    StoreRows rows;
    Hash128 elements = {0, 0};
    const CatalogTensor *tensor = &catalog->tensor[entry->tensor];
    const ParamPiece *piece = &entry->piece;
    real *block = new_block(tensor);
    HashStream *digest = hash_stream_begin();
    ck_assert_int_eq(store_rows_begin(&rows, file, catalog, entry), 0);
    for (int64_t row = piece->row; row < piece->row + piece->rows;) {
        int64_t end = (row / BLOCK_ROWS + 1) * BLOCK_ROWS;
        if (end > piece->row + piece->rows) end = piece->row + piece->rows;
        ParamPiece part = {row, piece->col, end - row, piece->cols};
        fill(block, part);
        hash_stream_add(digest, block, (size_t)(part.rows * part.cols) * sizeof *block);
        elements =
            hash_add(elements, fingerprint_piece(tensor, entry->role, part, block, part.cols));
        rows.written = row - piece->row;
        if (is_marked(row) || end == piece->row + piece->rows)
            ck_assert_int_eq(store_rows_append(&rows, block, part.rows), 0);
        row = end;
    }
    ck_assert_int_eq(store_rows_end(&rows), 0);
    entry->digest = hash_stream_end(digest);
    free(block);
    return elements;
}

static void write_source(const ModelCheckpoint *made, const char *directory) {
    Catalog catalog;
    Hash128 fingerprint;
    ck_assert_int_eq(catalog_from_shapes(&catalog, &made->model.set, 1, 3, 1), 0);
    ck_assert_int_eq(files_make_directories(directory), 0);
    ck_assert_int_eq(fingerprint_identity(&catalog, made->function, made->state.step,
                                          made->state.tokens, &fingerprint),
                     0);
    for (int t = 0; t < 3; t++) {
        Hdf5File file;
        Range entries = catalog_file_entries(&catalog, t, 0);
        ck_assert_int_eq(store_create(&file, &catalog, directory, t, 0), 0);
        for (int64_t i = entries.begin; i < entries.end; i++)
            fingerprint = hash_add(fingerprint, write_piece(&file, &catalog, &catalog.entry[i]));
        ck_assert_int_eq(hdf5_finish(&file), 0);
    }
    ck_assert_int_eq(view_write(&catalog, directory), 0);
    json_t *manifest = manifest_assemble(&catalog, &made->state, fingerprint);
    ck_assert_int_eq(manifest_write(manifest, directory), 0);
    json_decref(manifest);
    catalog_release(&catalog);
}

/* No block above the limit can be had: a sanitizer takes its shadow memory first. */
static void limit_memory(void) {
#ifndef __SANITIZE_ADDRESS__
    struct rlimit limit = {(rlim_t)memory_limit, (rlim_t)memory_limit};
    if (setrlimit(RLIMIT_AS, &limit)) _exit(99);
#endif
}

/* In a process of its own, whose memory is limited and told. */
static int64_t peak_of_reshard(const char *from, const char *to) {
    struct rusage usage;
    int code;
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        limit_memory();
        int status = reshard_directory(&(ReshardRequest){.from = from, .out = to, .tensor = 1});
        if (status) fprintf(stderr, "%s\n", error_message());
        _exit(-status);
    }
    ck_assert_int_eq(wait4(child, &code, 0, &usage), child);
    ck_assert(WIFEXITED(code));
    ck_assert_int_eq(WEXITSTATUS(code), 0);
    return (int64_t)usage.ru_maxrss * 1024;
}

/* Blocks around the places where 32-bit offsets would turn over, and at the end. */
static void check_cells(const char *directory) {
    Reader reader;
    ck_assert_int_eq(reader_open(&reader, directory), 0);
    int tensor = catalog_find(&reader.catalog, "model.embed_tokens.weight");
    const CatalogTensor *whole = &reader.catalog.tensor[tensor];
    ck_assert_int_gt(whole->rows * whole->cols * (int64_t)sizeof(real), INT64_C(1) << 31);
    ck_assert_int_eq(reader.catalog.first[tensor + 1] - reader.catalog.first[tensor], 1);
    real *block = new_block(whole);
    int64_t edge = (INT64_C(1) << 31) / (int64_t)sizeof(real) / whole->cols;
    int64_t marked = whole->rows / BLOCK_ROWS / MARKED_EVERY * MARKED_EVERY * BLOCK_ROWS;
    int64_t places[] = {0, edge - 3, marked - 3, whole->rows - 6};
    ck_assert_int_gt(marked, edge);
    for (int i = 0; i < 4; i++) {
        ParamPiece part = {places[i], 5, 6, 40};
        ck_assert_int_eq(reader_block(&reader, 0, tensor, part, block), 0);
        for (int64_t j = 0; j < part.rows * part.cols; j++)
            ck_assert_double_eq(block[j], cell(part.row + j / part.cols, part.col + j % part.cols));
    }
    free(block);
    reader_close(&reader);
}

START_TEST(a_dataset_above_2_gib_in_less_than_1_gb) {
    ModelCheckpoint made;
    char scratch[SCRATCH_PATH], from[FILES_PATH], to[FILES_PATH], step[FILES_PATH];
    double start = clock_seconds();
    scratch_make(scratch);
    if (files_free_space(scratch) < disk_needed) {
        printf("skipped: %s has less than %.0f GB free\n", scratch, (double)disk_needed / 1e9);
        ck_assert_int_eq(files_remove_tree(scratch), 0);
        return;
    }
    model_checkpoint_declare(&made, settings);
    snprintf(from, sizeof from, "%s/source/" STEP, scratch);
    snprintf(to, sizeof to, "%s/new", scratch);
    write_source(&made, from);
    model_checkpoint_close(&made);
    double written = clock_seconds();
    int64_t peak = peak_of_reshard(from, to);
    double moved = clock_seconds();
    ck_assert_int_eq(files_join(step, sizeof step, to, STEP), 0);
    ck_assert_msg(checkpoint_verify(step) == 0, "%s", error_message());
    check_cells(step);
    ck_assert_int_eq(files_remove_tree(scratch), 0);
    printf("source %.1f s, reshard %.1f s with %.0f MB of memory, verify and removal %.1f s\n",
           written - start, moved - written, (double)peak / 1e6, clock_seconds() - moved);
    ck_assert_int_lt(peak, memory_limit);
}
END_TEST

int main(void) {
    return run_suite("reshard_large", TESTS(a_dataset_above_2_gib_in_less_than_1_gb));
}
