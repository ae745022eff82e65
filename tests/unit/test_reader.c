/* Blocks by global coordinates, whatever the grid; and the integers behind tensors and pieces that
 * no 32-bit number can count. */
#include "base/error.h"
#include "checkpoint/fingerprint.h"
#include "checkpoint/reader.h"
#include "support/checkpoint_pattern.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static SerialRun run;
static Reader reader;

/* ---- blocks ---- */

static void check_block(int role, int tensor, ParamPiece block) {
    enum { BEYOND = 3 };
    const CatalogTensor *whole = &reader.catalog.tensor[tensor];
    int64_t cells = block.rows * block.cols;
    real *data = malloc((size_t)(cells + BEYOND) * sizeof *data);
    for (int64_t i = 0; i < cells + BEYOND; i++) data[i] = -1;
    ck_assert_msg(reader_block(&reader, role, tensor, block, data) == 0, "%s", error_message());
    for (int64_t i = 0; i < cells; i++) {
        int64_t row = block.row + i / block.cols, col = block.col + i % block.cols;
        ck_assert_double_eq(
            data[i], pattern_value(tensor, catalog_roles[role].role, row * whole->cols + col));
    }
    for (int64_t i = cells; i < cells + BEYOND; i++) ck_assert_double_eq(data[i], -1);
    free(data);
}

/* Ranges of one dimension: from every third place on, some sizes and up to the end. */
static int ranges_of(int64_t size, Range range[64]) {
    static const int64_t sizes[] = {1, 2, 5};
    int count = 0;
    for (int64_t begin = 0; begin < size; begin += 3) {
        for (int i = 0; i < 3; i++)
            if (begin + sizes[i] < size) range[count++] = (Range){begin, begin + sizes[i]};
        range[count++] = (Range){begin, size};
    }
    return count;
}

static void check_tensor(int role, int tensor) {
    Range rows[64], cols[64];
    int row_ranges = ranges_of(reader.catalog.tensor[tensor].rows, rows);
    int col_ranges = ranges_of(reader.catalog.tensor[tensor].cols, cols);
    for (int r = 0; r < row_ranges; r++)
        for (int c = 0; c < col_ranges; c++)
            check_block(role, tensor,
                        (ParamPiece){rows[r].begin, cols[c].begin, range_size(rows[r]),
                                     range_size(cols[c])});
}

START_TEST(blocks_of_any_grid_are_those_of_the_whole_tensors) {
    static const int grids[][2] = {{8, 3}, {1, 1}, {3, 2}, {7, 5}, {31, 1}};
    char path[FILES_PATH];
    serial_begin(&run);
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        PatternModel saved;
        pattern_open(&saved, &run.grid, grids[i][0], grids[i][1]);
        pattern_fill(&saved);
        saved.state.step = (int64_t)i;
        ck_assert_int_eq(checkpoint_save(&run.grid, &saved.set, &saved.state, run.run_dir), 0);
        pattern_close(&saved);
        serial_path(&run, (int64_t)i, "", path);
        ck_assert_int_eq(reader_open(&reader, path), 0);
        for (int role = 0; role < reader.catalog.roles; role++)
            for (int t = 0; t < reader.catalog.tensors; t++) check_tensor(role, t);
        reader_close(&reader);
    }
    serial_end(&run);
}
END_TEST

START_TEST(empty_blocks_read_nothing_and_blocks_outside_are_refused) {
    char path[FILES_PATH];
    real data[200];
    serial_begin(&run);
    serial_save(&run, 12, 0);
    serial_path(&run, 12, "", path);
    ck_assert_int_eq(reader_open(&reader, path), 0);
    int gate = catalog_find(&reader.catalog, PATTERN_GATE); /* [11, 8] */
    check_block(0, gate, (ParamPiece){11, 0, 0, 8});
    check_block(0, gate, (ParamPiece){3, 8, 5, 0});
    static const ParamPiece outside[] = {
        {0, 0, 12, 8}, {0, 0, 11, 9}, {11, 0, 1, 8},        {0, 8, 1, 1},
        {-1, 0, 2, 8}, {0, -1, 1, 2}, {INT64_MAX, 0, 1, 1}, {0, 0, -1, 8},
    };
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        ck_assert_int_eq(reader_block(&reader, 0, gate, outside[i], data), WEFT_RUNTIME);
        ck_assert_ptr_nonnull(strstr(error_message(), "tensor " PATTERN_GATE ": block ["));
    }
    ck_assert_int_eq(reader_block(&reader, 3, gate, (ParamPiece){0, 0, 1, 1}, data), WEFT_RUNTIME);
    ck_assert_int_eq(reader_block(&reader, 0, 9, (ParamPiece){0, 0, 1, 1}, data), WEFT_RUNTIME);
    reader_close(&reader);
    serial_end(&run);
}
END_TEST

/* A piece's cells as store_scan shows them, one after another. */
typedef struct {
    const CatalogEntry *entry;
    int64_t seen, most;
} Scan;

static void see(void *context, ParamPiece part, const real *data) {
    Scan *scan = context;
    const ParamPiece *piece = &scan->entry->piece;
    int64_t cols = reader.catalog.tensor[scan->entry->tensor].cols, count = part.rows * part.cols;
    for (int64_t i = 0; i < count; i++, scan->seen++) {
        int64_t row = part.row + i / part.cols, col = part.col + i % part.cols;
        ck_assert_int_eq((row - piece->row) * piece->cols + col - piece->col, scan->seen);
        ck_assert_double_eq(data[i],
                            pattern_value(scan->entry->tensor,
                                          catalog_roles[scan->entry->role].role, row * cols + col));
    }
    if (count > scan->most) scan->most = count;
}

START_TEST(scans_show_each_cell_once_in_any_room) {
    static const int64_t rooms[] = {1, 3, 8, 20, 1000};
    char path[FILES_PATH];
    real block[1000];
    serial_begin(&run);
    serial_save(&run, 12, 0);
    serial_path(&run, 12, "", path);
    ck_assert_int_eq(reader_open(&reader, path), 0);
    for (int64_t i = 0; i < reader.catalog.entries; i++) {
        Hdf5File file;
        CatalogEntry *entry = &reader.catalog.entry[i];
        ck_assert_int_eq(store_open(&file, path, entry->t, entry->d), 0);
        for (int r = 0; r < 5; r++) {
            Scan scan = {.entry = entry};
            ck_assert_int_eq(store_scan(&file, &reader.catalog, entry, block, rooms[r], see, &scan),
                             0);
            ck_assert_int_eq(scan.seen, catalog_piece_size(entry));
            ck_assert_int_le(scan.most, rooms[r]);
        }
        entry->digest.low ^= 1;
        Scan scan = {.entry = entry};
        ck_assert_int_eq(store_scan(&file, &reader.catalog, entry, block, 20, see, &scan),
                         WEFT_INPUT);
        ck_assert_ptr_nonnull(strstr(error_message(), "damaged: digest is"));
        hdf5_close(&file);
    }
    reader_close(&reader);
    serial_end(&run);
}
END_TEST

/* ---- files ---- */

static void file_path(const char *file, char path[FILES_PATH]) {
    serial_path(&run, 12, file, path);
}

/* All of gate: its shards lie in files t = 0 .. 7. */
static int read_gate(void) {
    static real data[11 * 8];
    char path[FILES_PATH];
    file_path("", path);
    ck_assert_int_eq(reader_open(&reader, path), 0);
    int gate = catalog_find(&reader.catalog, PATTERN_GATE);
    int status = reader_block(&reader, 0, gate, (ParamPiece){0, 0, 11, 8}, data);
    reader_close(&reader);
    return status;
}

static void check_refusal(const char *file, const char *text) {
    ck_assert_int_eq(read_gate(), WEFT_INPUT);
    ck_assert_msg(strstr(error_message(), file) && strstr(error_message(), text),
                  "\"%s\" doesn't say \"%s\" and \"%s\"", error_message(), file, text);
}

START_TEST(missing_and_wrong_files_are_named) {
    char path[FILES_PATH], other[FILES_PATH], aside[FILES_PATH];
    serial_begin(&run);
    serial_save(&run, 12, 0);
    ck_assert_int_eq(read_gate(), 0);
    file_path("shard-t004-d002.h5", path);
    file_path("shard-t005-d002.h5", other);
    file_path("aside.h5", aside);

    ck_assert_int_eq(rename(path, aside), 0);
    check_refusal("shard-t004-d002.h5", "can't open (No such file");
    ck_assert_int_eq(link(other, path), 0); /* another shard's pieces, of the same shape */
    check_refusal("shard-t004-d002.h5: dataset value/" PATTERN_GATE, "attribute offset");
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(rename(aside, path), 0);
    ck_assert_int_eq(read_gate(), 0);
    ck_assert_int_eq(truncate(path, 3000), 0);
    check_refusal("shard-t004-d002.h5", "can't open");
    ck_assert_int_eq(truncate(path, 0), 0);
    check_refusal("shard-t004-d002.h5", "can't open");
    serial_end(&run);
}
END_TEST

START_TEST(what_was_never_open_can_be_closed) {
    serial_begin(&run);
    reader = (Reader){0};
    reader_close(&reader);
    ck_assert_int_eq(reader_open(&reader, run.run_dir), WEFT_INPUT);
    ck_assert_ptr_nonnull(strstr(error_message(), "manifest.json"));
    reader_close(&reader);
    reader_close(&reader);
    serial_end(&run);
}
END_TEST

/* A tensor in more files than stay open, read by columns so that each row needs all of them. */
START_TEST(more_files_than_stay_open) {
    enum { ROWS = 4, COLS = 130, SHARDS = 64, DATA = 2 };
    Grid grid;
    ParamSet set;
    int index;
    char run_dir[SCRATCH_PATH], path[FILES_PATH];
    AxisLayout axis = axis_layout(COLS, SHARDS, 1);
    json_t *function = json_object();
    CheckpointState state = {
        .grid_tensor = SHARDS,
        .grid_data = DATA,
        .function = function,
        .places = {axis_layout(SHARDS, SHARDS, 1), axis_layout(DATA, DATA, 1)}};
    grid_serial(&grid);
    scratch_make(run_dir);
    params_init(&set, 0, 1);
    ck_assert_int_eq(params_declare(&set,
                                    &(ParamSpec){"wide.weight", 2, ROWS, COLS, SPLIT_COLS, &axis, 1,
                                                 .decay = true},
                                    &index),
                     0);
    ck_assert_int_eq(params_allocate(&set, false), 0);
    for (int s = 0; s < SHARDS; s++) {
        Tensor shard = param_shard(&set, &set.param[0], PARAM_VALUE, s);
        for (int64_t r = 0; r < shard.rows; r++)
            for (int64_t c = 0; c < shard.cols; c++)
                tensor_row(shard, r)[c] = (real)(r * COLS + param_first_col(&set.param[0], s) + c);
    }
    ck_assert_msg(checkpoint_save(&grid, &set, &state, run_dir) == 0, "%s", error_message());
    snprintf(path, sizeof path, "%s/step-00000000", run_dir);
    ck_assert_int_eq(reader_open(&reader, path), 0);
    ck_assert_int_lt(READER_FILES, SHARDS * DATA);
    for (int again = 0; again < 2; again++) {
        real data[ROWS * COLS];
        ck_assert_int_eq(reader_block(&reader, 0, 0, (ParamPiece){0, 0, ROWS, COLS}, data), 0);
        for (int i = 0; i < ROWS * COLS; i++) ck_assert_double_eq(data[i], i);
    }
    reader_close(&reader);
    params_release(&set);
    json_decref(function);
    ck_assert_int_eq(files_remove_tree(run_dir), 0);
}
END_TEST

/* ---- integers ---- */

static const int64_t huge_rows = 70001, huge_cols = 65537; /* 4.6e9 elements, 18 GB in float */

START_TEST(shards_of_huge_axes_follow_one_another) {
    static const int64_t sizes[] = {INT64_C(1) << 31, (INT64_C(1) << 33) + 7, INT64_C(1) << 40};
    for (int i = 0; i < 3; i++) {
        for (int shards = 1; shards <= SHARD_MAX; shards++) {
            int64_t next = 0;
            for (int s = 0; s < shards; s++) {
                Range range = shard_range(sizes[i], shards, s);
                ck_assert_int_eq(range.begin, next);
                ck_assert_int_ge(range_size(range), sizes[i] / shards);
                ck_assert_int_le(range_size(range), sizes[i] / shards + 1);
                next = range.end;
            }
            ck_assert_int_eq(next, sizes[i]);
        }
    }
}
END_TEST

/* One huge matrix cut by rows, one by columns, and a huge vector. */
static void declare_huge(ParamSet *set, int grid_tensor) {
    int index;
    AxisLayout rows = axis_layout(huge_rows, grid_tensor, 1);
    AxisLayout cols = axis_layout(huge_cols, grid_tensor, 1);
    AxisLayout cells = axis_layout(huge_rows * huge_cols, grid_tensor, 1);
    const ParamSpec specs[] = {
        {.name = "rows",
         .rank = 2,
         .rows = huge_rows,
         .cols = huge_cols,
         .split = SPLIT_ROWS,
         .axis = &rows,
         .unit_size = 1},
        {.name = "cols",
         .rank = 2,
         .rows = huge_rows,
         .cols = huge_cols,
         .split = SPLIT_COLS,
         .axis = &cols,
         .unit_size = 1},
        {.name = "vector",
         .rank = 1,
         .rows = 1,
         .cols = huge_rows * huge_cols,
         .split = SPLIT_COLS,
         .axis = &cells,
         .unit_size = 1},
    };
    params_init(set, 0, 1);
    for (int i = 0; i < 3; i++) ck_assert_int_eq(params_declare(set, &specs[i], &index), 0);
}

START_TEST(pieces_of_huge_tensors_cover_each_cell_once) {
    static const int grids[][2] = {{1, 1}, {1, 3}, {2, 1}, {7, 5}, {64, 64}};
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
        ParamSet set;
        Catalog catalog;
        int64_t largest = 0, cells[3] = {0};
        declare_huge(&set, grids[g][0]);
        ck_assert_int_gt(set.elements, 3 * (INT64_C(1) << 32));
        /* catalog_complete in it checks bounds and coverage */
        ck_assert_msg(catalog_from_shapes(&catalog, &set, 1, grids[g][0], grids[g][1]) == 0, "%s",
                      error_message());
        for (int64_t i = 0; i < catalog.entries; i++) {
            int64_t size = catalog_piece_size(&catalog.entry[i]);
            cells[catalog.entry[i].tensor] += size;
            if (size > largest) largest = size;
        }
        for (int i = 0; i < 3; i++) ck_assert_int_eq(cells[i], huge_rows * huge_cols);
        if (grids[g][0] * grids[g][1] == 1) {
            ck_assert_int_eq(largest, huge_rows * huge_cols);
            ck_assert_int_gt(largest * (int64_t)sizeof(real), INT64_C(1) << 34);
        }
        catalog_release(&catalog);
        params_release(&set);
    }
}
END_TEST

START_TEST(blocks_of_huge_tensors_meet_the_right_pieces) {
    ParamSet set;
    Catalog catalog;
    declare_huge(&set, 2);
    ck_assert_int_eq(catalog_from_shapes(&catalog, &set, 1, 2, 1), 0);
    /* the last two cells of the first and the first of the second piece */
    int64_t middle = shard_range(huge_rows * huge_cols, 2, 1).begin;
    ck_assert_int_gt(middle, INT64_C(1) << 31);
    CatalogWalk walk = catalog_walk(&catalog, 0, 2, (ParamPiece){0, middle - 2, 1, 3});
    const CatalogEntry *entry = catalog_walk_next(&walk);
    ck_assert_ptr_nonnull(entry);
    ck_assert_int_eq(entry->t, 0);
    ck_assert_int_eq(walk.common.col, middle - 2);
    ck_assert_int_eq(walk.common.cols, 2);
    entry = catalog_walk_next(&walk);
    ck_assert_ptr_nonnull(entry);
    ck_assert_int_eq(entry->t, 1);
    ck_assert_int_eq(walk.common.col, middle);
    ck_assert_int_eq(walk.common.cols, 1);
    ck_assert_ptr_null(catalog_walk_next(&walk));
    ck_assert_ptr_null(catalog_walk_next(&walk));
    catalog_release(&catalog);
    params_release(&set);
}
END_TEST

START_TEST(rows_at_once_are_never_none_and_never_too_many) {
    CatalogTensor tensor = {.rank = 2, .rows = huge_rows, .cols = huge_cols};
    ck_assert_int_eq(reader_rows_at_once(&tensor, INT64_C(1) << 24), 255);
    ck_assert_int_eq(reader_rows_at_once(&tensor, 1), 1);
    ck_assert_int_eq(reader_rows_at_once(&tensor, INT64_MAX), huge_rows);
    tensor = (CatalogTensor){.rank = 1, .rows = 1, .cols = INT64_C(1) << 40};
    ck_assert_int_eq(reader_rows_at_once(&tensor, INT64_C(1) << 24), 1);
}
END_TEST

START_TEST(fingerprints_tell_cells_above_2_to_the_31_and_32_apart) {
    CatalogTensor tensor = {.name = "rows", .rank = 2, .rows = huge_rows, .cols = huge_cols};
    real data[2][3] = {{1, 2, 3}, {4, 5, 6}};
    Hash128 name = hash_text("value/rows");
    int64_t row = (INT64_C(1) << 32) / huge_cols + 1, first = row * huge_cols + 7;
    Hash128 found = fingerprint_piece(&tensor, 0, (ParamPiece){row, 7, 2, 3}, &data[0][0], 3);
    Hash128 wanted = hash_add(hash_elements(name, first, data[0], 3, sizeof(real)),
                              hash_elements(name, first + huge_cols, data[1], 3, sizeof(real)));
    ck_assert(hash_equal(found, wanted));
    for (int bits = 31; bits <= 32; bits++) {
        int64_t mask = (INT64_C(1) << bits) - 1;
        Hash128 cut =
            hash_add(hash_elements(name, first & mask, data[0], 3, sizeof(real)),
                     hash_elements(name, (first + huge_cols) & mask, data[1], 3, sizeof(real)));
        ck_assert(!hash_equal(found, cut));
    }
}
END_TEST

int main(void) {
    return run_suite("reader",
                     TESTS(blocks_of_any_grid_are_those_of_the_whole_tensors,
                           empty_blocks_read_nothing_and_blocks_outside_are_refused,
                           scans_show_each_cell_once_in_any_room, missing_and_wrong_files_are_named,
                           what_was_never_open_can_be_closed, more_files_than_stay_open,
                           shards_of_huge_axes_follow_one_another,
                           pieces_of_huge_tensors_cover_each_cell_once,
                           blocks_of_huge_tensors_meet_the_right_pieces,
                           rows_at_once_are_never_none_and_never_too_many,
                           fingerprints_tell_cells_above_2_to_the_31_and_32_apart));
}
