/* Where each channel lies, in words: the layouts' arithmetic against lists that are written out,
 * and the files against the arithmetic, read by HDF5 itself. */
#include "base/error.h"
#include "checkpoint/packing_file.h"
#include "support/checkpoint_pattern.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHANNELS = 5, COLUMNS = 3, LAYERS = 2 };

/* ---- the arithmetic ---- */

/* What the channel axis of each dataset of a layer holds, from first to last; groups and datasets
 * with their names' last words. Parts: two shards of 2 and 3 channels, three ranks of 1, 2 and 2.
 */
static const struct {
    const char *layout;
    int parts;
    bool gated, gate_bias, up_bias, down_bias;
    const char *lies;
} lists[] = {
    {"separate", 1, true, false, false, false,
     "gate_proj.weight g0 g1 g2 g3 g4; up_proj.weight u0 u1 u2 u3 u4; "
     "down_proj.weight d0 d1 d2 d3 d4; "},
    {"separate", 1, false, false, true, true,
     "up_proj.weight u0 u1 u2 u3 u4; up_proj.bias u0 u1 u2 u3 u4; "
     "down_proj.weight d0 d1 d2 d3 d4; down_proj.bias; "},
    {"packed_gate_up", 1, true, true, true, false,
     "gate_up_proj.weight g0 g1 g2 g3 g4 u0 u1 u2 u3 u4; "
     "gate_up_proj.bias g0 g1 g2 g3 g4 u0 u1 u2 u3 u4; down_proj.weight d0 d1 d2 d3 d4; "},
    {"packed_gate_up", 1, true, false, true, false,
     "gate_up_proj.weight g0 g1 g2 g3 g4 u0 u1 u2 u3 u4; "
     "gate_up_proj.bias u0 u1 u2 u3 u4; down_proj.weight d0 d1 d2 d3 d4; "},
    {"packed_up_gate", 1, true, true, true, false,
     "gate_up_proj.weight u0 u1 u2 u3 u4 g0 g1 g2 g3 g4; "
     "gate_up_proj.bias u0 u1 u2 u3 u4 g0 g1 g2 g3 g4; down_proj.weight d0 d1 d2 d3 d4; "},
    {"packed_interleaved", 1, true, true, false, false,
     "gate_up_proj.weight g0 u0 g1 u1 g2 u2 g3 u3 g4 u4; "
     "gate_up_proj.bias g0 g1 g2 g3 g4; down_proj.weight d0 d1 d2 d3 d4; "},
    {"packed_shard", 2, true, true, true, true,
     "gate_up_proj.weight g0 g1 u0 u1 g2 g3 g4 u2 u3 u4; "
     "gate_up_proj.bias g0 g1 u0 u1 g2 g3 g4 u2 u3 u4; "
     "down_proj.weight d0 d1 d2 d3 d4; down_proj.bias; "},
    {"packed_shard", 5, true, false, false, false,
     "gate_up_proj.weight g0 u0 g1 u1 g2 u2 g3 u3 g4 u4; down_proj.weight d0 d1 d2 d3 d4; "},
    {"packed_ranks", 3, true, false, true, true,
     "0: gate_up_proj.weight g0 u0; gate_up_proj.bias u0; down_proj.weight d0; down_proj.bias; "
     "1: gate_up_proj.weight g1 g2 u1 u2; gate_up_proj.bias u1 u2; down_proj.weight d1 d2; "
     "down_proj.bias; "
     "2: gate_up_proj.weight g3 g4 u3 u4; gate_up_proj.bias u3 u4; down_proj.weight d3 d4; "
     "down_proj.bias; "},
    {"packed_ranks", 2, false, false, false, false,
     "0: up_proj.weight u0 u1; down_proj.weight d0 d1; "
     "1: up_proj.weight u2 u3 u4; down_proj.weight d2 d3 d4; "},
    {"transposed", 1, true, false, false, false,
     "gate_proj.weight g0 g1 g2 g3 g4; up_proj.weight u0 u1 u2 u3 u4; "
     "down_proj.weight d0 d1 d2 d3 d4; "},
};
enum { LISTS = sizeof lists / sizeof lists[0] };

static Packing packing_of(int i) {
    Packing packing = {.layout = packing_layout_find(lists[i].layout),
                       .names = packing_names_find("hf"),
                       .parts = lists[i].parts,
                       .layers = LAYERS,
                       .d_model = COLUMNS,
                       .d_ff = CHANNELS,
                       .gated = lists[i].gated,
                       .bias = {lists[i].gate_bias, lists[i].up_bias, lists[i].down_bias}};
    ck_assert_msg(packing_check(&packing) == 0, "%s", error_message());
    return packing;
}

/* Writes down who lies at each place of a dataset's channel axis, or "?" for nobody. */
static void print_places(FILE *stream, const Packing *packing, int group, PackingSlot slot,
                         bool bias, int64_t places) {
    for (int64_t place = 0; place < places; place++) {
        char word[32] = "?";
        for (int p = 0; p < PACKING_PROJECTIONS; p++) {
            PackingProjection projection = (PackingProjection)p;
            for (int64_t c = 0; c < CHANNELS && packing_has(packing, projection, bias); c++) {
                PackingRun run = packing_run(packing, projection, bias, c);
                ck_assert(range_has(run.channels, c));
                if (run.group != group || run.slot != slot ||
                    run.first + (c - run.channels.begin) * run.stride != place)
                    continue;
                ck_assert_str_eq(word, "?");
                snprintf(word, sizeof word, "%c%d", packing_projections[p][0], (int)c);
            }
        }
        fprintf(stream, " %s", word);
    }
}

static char *where_all_lie(const Packing *packing) {
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    for (int group = 0; group < packing_groups(packing); group++) {
        if (packing->layout->cut == PACKING_RANKS) fprintf(stream, "%d: ", group);
        for (int slot = 0; slot < PACKING_SLOTS; slot++) {
            for (int bias = 0; bias < 2; bias++) {
                PackingDataset dataset;
                if (!packing_dataset(packing, 1, group, (PackingSlot)slot, bias, &dataset))
                    continue;
                const char *mlp = "model.layers.1.mlp.";
                ck_assert_int_eq(strncmp(dataset.name, mlp, strlen(mlp)), 0);
                fprintf(stream, "%s", dataset.name + strlen(mlp));
                if (!bias || slot != PACKING_SLOT_DOWN)
                    print_places(stream, packing, group, (PackingSlot)slot, bias,
                                 dataset.dims[dataset.channel_axis]);
                fprintf(stream, "; ");
            }
        }
    }
    fclose(stream);
    return text;
}

START_TEST(channels_lie_where_the_lists_say) {
    for (int i = 0; i < LISTS; i++) {
        Packing packing = packing_of(i);
        char *found = where_all_lie(&packing);
        ck_assert_str_eq(found, lists[i].lies);
        free(found);
    }
}
END_TEST

START_TEST(every_layout_is_in_the_lists) {
    for (const PackingLayout *row = packing_layouts; row->name; row++) {
        int found = 0;
        for (int i = 0; i < LISTS; i++) found += !strcmp(lists[i].layout, row->name);
        ck_assert_msg(found, "%s", row->name);
    }
}
END_TEST

/* ---- files ---- */

/* A value that says where it belongs: 1000 for a bias, then projection, layer, channel, column. */
static real value(int projection, bool bias, int layer, int64_t channel, int64_t column) {
    return (real)(bias * 100000 + projection * 10000 + layer * 1000 + channel * 10 + column);
}

static void write_all(PackingFile *file) {
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int p = 0; p < PACKING_PROJECTIONS; p++) {
            for (int bias = 0; bias < 2; bias++) {
                PackingProjection projection = (PackingProjection)p;
                real data[CHANNELS * COLUMNS];
                int64_t rows, cols;
                if (!packing_has(&file->packing, projection, bias)) continue;
                packing_shape(&file->packing, projection, bias, &rows, &cols);
                for (int64_t r = 0; r < rows; r++)
                    for (int64_t c = 0; c < cols; c++) {
                        bool down = p == PACKING_DOWN;
                        int64_t column = bias ? (down ? c : 0) : down ? r : c;
                        int64_t channel = bias ? (down ? 0 : c) : down ? c : r;
                        data[r * cols + c] = value(p, bias, layer, channel, column);
                    }
                ck_assert_int_eq(packing_write(file, layer, projection, bias,
                                               (ParamPiece){0, 0, rows, cols}, data),
                                 0);
            }
        }
    }
}

/* The dataset as HDF5 gives it, [dims[0], dims[1]]. */
static void read_whole(hid_t file, const char *name, const PackingDataset *dataset, real *data) {
    hsize_t dims[2] = {0, 1};
    hid_t id = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(id);
    ck_assert(id >= 0);
    ck_assert_int_eq(H5Sget_simple_extent_dims(space, dims, NULL), dataset->rank);
    ck_assert(dims[0] == (hsize_t)dataset->dims[0] && dims[1] == (hsize_t)dataset->dims[1]);
    ck_assert_int_eq(H5Dread(id, hdf5_memory_type(), H5S_ALL, H5S_ALL, H5P_DEFAULT, data), 0);
    H5Sclose(space);
    H5Dclose(id);
}

/* Compares a dataset with a word list "gate_proj.weight g0 g1 ...": its places in order. */
static void check_dataset(hid_t file, const char *group, const char *words, bool transposed) {
    char last[64], name[FILES_PATH];
    real data[2 * CHANNELS * COLUMNS];
    int used;
    sscanf(words, "%63s%n", last, &used);
    snprintf(name, sizeof name, "%s/model.layers.1.mlp.%s", group, last);
    bool bias = strstr(last, ".bias"), down = strstr(last, "down_");
    const char *rest = words + used;
    int places = 0;
    for (const char *c = rest; *c; c++) places += *c == ' ';
    int axis = down != transposed;
    PackingDataset dataset = {.rank = bias ? 1 : 2, .dims = {COLUMNS, COLUMNS}};
    if (bias) dataset.dims[1] = 1;
    if (!bias || !down) dataset.dims[bias ? 0 : axis] = places;
    read_whole(file, name, &dataset, data);
    for (int i = 0; i < places; i++, rest += 3) {
        int projection = rest[1] == 'g' ? 0 : rest[1] == 'u' ? 1 : 2, channel = rest[2] - '0';
        for (int column = 0; column < (bias ? 1 : COLUMNS); column++)
            ck_assert_double_eq((double)data[bias        ? i
                                             : axis == 0 ? i * COLUMNS + column
                                                         : column * places + i],
                                (double)value(projection, bias, 1, channel, column));
    }
    for (int column = 0; bias && down && column < COLUMNS; column++)
        ck_assert_double_eq((double)data[column], (double)value(2, true, 1, 0, column));
}

START_TEST(files_hold_what_the_lists_say) {
    char scratch[SCRATCH_PATH], path[FILES_PATH];
    json_t *notes = json_pack("{s:s}", "layout", "told");
    scratch_make(scratch);
    snprintf(path, sizeof path, "%s/x.h5", scratch);
    for (int i = 0; i < LISTS; i++) {
        Packing packing = packing_of(i);
        PackingFile file;
        ck_assert_int_eq(packing_create(&file, &packing, scratch, "x.h5", notes), 0);
        write_all(&file);
        ck_assert_int_eq(hdf5_finish(&file.file), 0);
        packing_close(&file);
        hid_t id = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
        char *lies = strdup(lists[i].lies), group[32] = "", *next = lies;
        for (char *end; (end = strstr(next, "; ")); next = end + 2) {
            *end = '\0';
            if (next[1] == ':') {
                snprintf(group, sizeof group, "rank-%03d", next[0] - '0');
                next += 3;
            }
            check_dataset(id, group, next, packing.layout->transposed);
        }
        H5Fclose(id);
        free(lies);
        unlink(path);
    }
    json_decref(notes);
    ck_assert_int_eq(files_remove_tree(scratch), 0);
}
END_TEST

/* Any block comes back as it was written whole. */
START_TEST(blocks_come_from_wherever_they_lie) {
    char scratch[SCRATCH_PATH], path[FILES_PATH];
    json_t *notes = json_object();
    scratch_make(scratch);
    snprintf(path, sizeof path, "%s/x.h5", scratch);
    for (int i = 0; i < LISTS; i++) {
        Packing packing = packing_of(i);
        PackingFile file;
        real data[CHANNELS * COLUMNS];
        ck_assert_int_eq(packing_create(&file, &packing, scratch, "x.h5", notes), 0);
        write_all(&file);
        ck_assert_int_eq(hdf5_finish(&file.file), 0);
        packing_close(&file);
        ck_assert_msg(packing_open(&file, &packing, path) == 0, "%s", error_message());
        for (int row = 0; row < COLUMNS; row++)
            for (int col = 0; col < CHANNELS; col++)
                for (int rows = 0; row + rows <= COLUMNS; rows++)
                    for (int cols = 0; col + cols <= CHANNELS; cols++) {
                        ParamPiece up = {col, row, cols, rows}, down = {row, col, rows, cols};
                        ck_assert_int_eq(packing_read(&file, 1, PACKING_UP, false, up, data), 0);
                        for (int j = 0; j < rows * cols; j++)
                            ck_assert_double_eq(
                                (double)data[j],
                                (double)value(1, false, 1, col + j / rows, row + j % rows));
                        ck_assert_int_eq(packing_read(&file, 1, PACKING_DOWN, false, down, data),
                                         0);
                        for (int j = 0; j < rows * cols; j++)
                            ck_assert_double_eq(
                                (double)data[j],
                                (double)value(2, false, 1, col + j % cols, row + j / cols));
                    }
        ck_assert_int_eq(packing_read(&file, 1, PACKING_UP, false,
                                      (ParamPiece){0, 0, 2 * CHANNELS, COLUMNS}, data),
                         WEFT_RUNTIME); /* [gate; up] is no tensor of anybody's */
        packing_close(&file);
        unlink(path);
    }
    json_decref(notes);
    ck_assert_int_eq(files_remove_tree(scratch), 0);
}
END_TEST

/* ---- refusals ---- */

START_TEST(impossible_packings_are_refused_by_name) {
    static const struct {
        const char *layout, *names;
        int parts;
        bool gated;
        int64_t d_ff;
        const char *text;
    } row[] = {
        {"packed_gate_up", "hf", 1, false, 5, "layout packed_gate_up: a dense FFN has no gate"},
        {"packed_up_gate", "hf", 1, false, 5, "layout packed_up_gate: a dense FFN has no gate"},
        {"packed_interleaved", "hf", 1, false, 5, "a dense FFN has no gate"},
        {"packed_shard", "hf", 2, false, 5, "layout packed_shard: a dense FFN has no gate"},
        {"separate", "gpt2", 1, true, 5, "names gpt2: there is none for gate of a gated FFN"},
        {"packed_gate_up", "gpt2", 1, true, 5, "names gpt2: there is none for gate with up"},
        {"transposed", "megatron", 1, true, 5, "names megatron: there is none for gate"},
        {"separate", "hf", 2, true, 5, "layout separate: isn't cut into parts"},
        {"packed_shard", "hf", 6, true, 5, "6 parts of 5 channels: from 1 to 5 are possible"},
        {"packed_ranks", "hf", 0, true, 5, "0 parts of 5 channels"},
        {"packed_ranks", "hf", 65, true, 100, "65 parts of 100 channels: from 1 to 64"},
        {"separate", "hf", 1, true, 0, "at least 1 of each is needed"},
        {"separate", "hf", 1, true, INT64_C(1) << 39, "too large"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Packing packing = {packing_layout_find(row[i].layout),
                           packing_names_find(row[i].names),
                           row[i].parts,
                           LAYERS,
                           COLUMNS,
                           row[i].d_ff,
                           row[i].gated,
                           {0}};
        ck_assert_int_eq(packing_check(&packing), WEFT_USAGE);
        ck_assert_msg(strstr(error_message(), row[i].text), "\"%s\" doesn't say \"%s\"",
                      error_message(), row[i].text);
    }
    ck_assert_ptr_null(packing_layout_find("packed"));
    ck_assert_ptr_null(packing_names_find("w1"));
}
END_TEST

int main(void) {
    return run_suite("packing",
                     TESTS(channels_lie_where_the_lists_say, every_layout_is_in_the_lists,
                           files_hold_what_the_lists_say, blocks_come_from_wherever_they_lie,
                           impossible_packings_are_refused_by_name));
}
