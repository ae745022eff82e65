#include "checkpoint/packing_file.h"

#include "base/error.h"
#include "base/library_lock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_NAME = 2 * PACKING_NAME };

/* A dataset's path from the root. */
static void full_name(const Packing *packing, int group, const PackingDataset *dataset,
                      char name[PATH_NAME]) {
    char place[PACKING_NAME];
    packing_group_name(packing, group, place);
    bool root = !strcmp(place, "/");
    snprintf(name, PATH_NAME, "%s%s%s", root ? "" : place, root ? "" : "/", dataset->name);
}

/* ---- all datasets of a file ---- */

typedef int EachDataset(const PackingFile *file, int layer, int group,
                        const PackingDataset *dataset, void *context);

static int each_of_group(const PackingFile *file, int group, EachDataset *each, void *context) {
    PackingDataset dataset;
    int status = 0;
    for (int layer = 0; layer < file->packing.layers; layer++)
        for (int slot = 0; slot < PACKING_SLOTS; slot++)
            for (int bias = 0; !status && bias < 2; bias++)
                if (packing_dataset(&file->packing, layer, group, (PackingSlot)slot, bias,
                                    &dataset))
                    status = each(file, layer, group, &dataset, context);
    return status;
}

static int create_one(const PackingFile *file, int layer, int group, const PackingDataset *dataset,
                      void *context) {
    LIBRARY_SECTION;
    char name[PATH_NAME];
    (void)layer, (void)context;
    full_name(&file->packing, group, dataset, name);
    hid_t id = hdf5_create_dataset(&file->file, name, dataset->rank, dataset->dims);
    if (id < 0) return hdf5_error(&file->file, name, "can't create");
    hdf5_drop(id);
    return 0;
}

static int64_t dataset_size(const PackingDataset *dataset) {
    return dataset->dims[0] * dataset->dims[1];
}

static const char *yes(bool value) { return value ? "true" : "false"; }

/* Adds to what is wrong what the declaration says: it, not the file, decides. */
static int undeclared(const PackingFile *file) {
    const Packing *p = &file->packing;
    char message[ERROR_SIZE];
    snprintf(message, sizeof message, "%s", error_message());
    return error_set(WEFT_INPUT,
                     "%s; declared are layout %s, names %s, model.layers = %" PRId64
                     ", model.d_model = %" PRId64 ", ffn.d_ff = %" PRId64 ", ffn.gate_bias = %s, "
                     "ffn.up_bias = %s, ffn.down_bias = %s",
                     message, p->layout->name, p->names->name, p->layers, p->d_model, p->d_ff,
                     yes(p->bias[PACKING_GATE]), yes(p->bias[PACKING_UP]),
                     yes(p->bias[PACKING_DOWN]));
}

static int check_one(const PackingFile *file, int layer, int group, const PackingDataset *dataset,
                     void *context) {
    LIBRARY_SECTION;
    char name[PATH_NAME];
    (void)layer, (void)context;
    full_name(&file->packing, group, dataset, name);
    hid_t id = H5Dopen2(file->file.id, name, H5P_DEFAULT);
    if (id < 0) return hdf5_error(&file->file, name, "can't open");
    int status = hdf5_check_shape(&file->file, id, name, dataset->rank, dataset->dims);
    if (status)
        status = undeclared(file);
    else
        status = hdf5_check_storage(&file->file, id, name,
                                    (hsize_t)dataset_size(dataset) * sizeof(real));
    hdf5_drop(id);
    return status;
}

/* ---- names ---- */

typedef struct {
    char (*name)[PACKING_NAME];
    const char **list;
    int count;
} Names;

static int add_name(const PackingFile *file, int layer, int group, const PackingDataset *dataset,
                    void *context) {
    Names *names = context;
    (void)file, (void)layer, (void)group;
    memcpy(names->name[names->count], dataset->name, PACKING_NAME);
    names->list[names->count] = names->name[names->count];
    names->count++;
    return 0;
}

static int check_group_names(const PackingFile *file, int group, Names *names) {
    char place[PACKING_NAME];
    packing_group_name(&file->packing, group, place);
    names->count = 0;
    each_of_group(file, group, add_name, names);
    int status = hdf5_check_names(&file->file, place, names->list, names->count);
    return status == WEFT_INPUT ? undeclared(file) : status;
}

static int check_names(const PackingFile *file) {
    int groups = packing_groups(&file->packing), status = 0;
    size_t most = (size_t)file->packing.layers * PACKING_SLOTS * 2 + SHARD_MAX;
    Names names = {.name = malloc(most * sizeof *names.name),
                   .list = malloc(most * sizeof *names.list)};
    if (!names.name || !names.list)
        status = error_set(WEFT_RUNTIME, "out of memory: names in %s", file->file.path);
    if (!status && file->packing.layout->cut == PACKING_RANKS) {
        for (int g = 0; g < groups; g++) {
            packing_group_name(&file->packing, g, names.name[g]);
            names.list[g] = names.name[g];
        }
        status = hdf5_check_names(&file->file, "/", names.list, groups);
    }
    for (int g = 0; !status && g < groups; g++) status = check_group_names(file, g, &names);
    free(names.name);
    free(names.list);
    return status;
}

/* ---- blocks ---- */

/* A selection in a dataset, and where its elements are in memory: a matrix [rows, cols] of which
 * they take `count` at `at`. */
typedef struct {
    hsize_t start[2], stride[2], count[2];
    hsize_t memory[2], at[2], size[2];
} Slab;

static bool select_slab(hid_t space, hid_t memory, const Slab *slab) {
    return space >= 0 && memory >= 0 &&
           H5Sselect_hyperslab(space, H5S_SELECT_SET, slab->start, slab->stride, slab->count,
                               NULL) >= 0 &&
           H5Sselect_hyperslab(memory, H5S_SELECT_SET, slab->at, NULL, slab->size, NULL) >= 0;
}

/* From `out` into the file, or from the file to `in`: one of them is NULL. */
static int move_slab(const PackingFile *file, int group, const PackingDataset *dataset,
                     const Slab *slab, real *in, const real *out) {
    LIBRARY_SECTION;
    char name[PATH_NAME];
    full_name(&file->packing, group, dataset, name);
    hid_t id = H5Dopen2(file->file.id, name, H5P_DEFAULT);
    if (id < 0) return hdf5_error(&file->file, name, "can't open");
    hid_t space = H5Dget_space(id), memory = H5Screate_simple(2, slab->memory, NULL);
    hid_t type = hdf5_memory_type();
    bool good = select_slab(space, memory, slab) &&
                (in ? H5Dread(id, type, memory, space, H5P_DEFAULT, in)
                    : H5Dwrite(id, type, memory, space, H5P_DEFAULT, out)) >= 0;
    int status = good ? 0 : hdf5_error(&file->file, name, in ? "can't read" : "can't write");
    hdf5_drop(memory);
    hdf5_drop(space);
    hdf5_drop(id);
    return status;
}

/* to [cols, rows] = from [rows, cols] transposed; rows of each lie ld_to and ld_from apart. */
static void transpose(const real *from, int64_t ld_from, int64_t rows, int64_t cols, real *to,
                      int64_t ld_to) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) to[c * ld_to + r] = from[r * ld_from + c];
}

/* A block of a projection on its way to or from a file. */
typedef struct {
    PackingFile *file;
    int layer;
    PackingProjection projection;
    bool bias;
    ParamPiece block;
    real *in;
    const real *out;
} Move;

static real *take_aside(PackingFile *file, int64_t elements) {
    if (elements <= file->room) return file->aside;
    free(file->aside);
    file->aside = memory_allocate((size_t)elements * sizeof *file->aside, "a transposed block");
    file->room = file->aside ? elements : 0;
    return file->aside;
}

/* The part of the block that lies in one run: channels [begin, end). Of a weight the block's other
 * dimension is columns; which dimension is which differs between file and memory when the layout is
 * transposed. */
static int move_run(const Move *move, const PackingRun *run, Range channels,
                    const PackingDataset *dataset) {
    bool down = move->projection == PACKING_DOWN, turned = move->file->packing.layout->transposed;
    const ParamPiece *block = &move->block;
    int along = move->bias ? 0 : dataset->channel_axis; /* in the file */
    int64_t n = range_size(channels), columns = down ? block->rows : block->cols;
    Slab slab = {.stride = {1, 1}, .count = {1, 1}};
    slab.start[along] =
        (hsize_t)(run->first + (channels.begin - run->channels.begin) * run->stride);
    slab.stride[along] = (hsize_t)run->stride;
    slab.count[along] = (hsize_t)n;
    if (!move->bias) {
        slab.start[!along] = (hsize_t)(down ? block->row : block->col);
        slab.count[!along] = (hsize_t)columns;
    }
    int in_memory = move->bias || down; /* the memory's dimension of channels */
    int64_t skipped = channels.begin - (in_memory ? block->col : block->row);
    int64_t place = skipped * (in_memory ? 1 : block->cols);
    if (move->bias || !turned) {
        slab.memory[0] = (hsize_t)block->rows;
        slab.memory[1] = (hsize_t)block->cols;
        slab.at[in_memory] = (hsize_t)skipped;
        slab.size[in_memory] = (hsize_t)n;
        slab.size[!in_memory] = (hsize_t)(move->bias ? 1 : columns);
        return move_slab(move->file, run->group, dataset, &slab, move->in, move->out);
    }
    int64_t rows = down ? columns : n, cols = down ? n : columns; /* of this part, in memory */
    real *aside = take_aside(move->file, rows * cols);
    if (!aside) return WEFT_RUNTIME;
    slab.memory[0] = slab.size[0] = (hsize_t)cols;
    slab.memory[1] = slab.size[1] = (hsize_t)rows;
    if (move->out) transpose(move->out + place, block->cols, rows, cols, aside, rows);
    int status = move_slab(move->file, run->group, dataset, &slab, move->in ? aside : NULL,
                           move->in ? NULL : aside);
    if (!status && move->in) transpose(aside, rows, cols, rows, move->in + place, block->cols);
    return status;
}

/* down's bias has no channels; every group holds it. */
static int move_down_bias(const Move *move, int group) {
    PackingDataset dataset;
    hsize_t n = (hsize_t)move->block.cols;
    Slab slab = {.start = {(hsize_t)move->block.col},
                 .stride = {1, 1},
                 .count = {n, 1},
                 .memory = {1, n},
                 .size = {1, n}};
    packing_dataset(&move->file->packing, move->layer, group, PACKING_SLOT_DOWN, true, &dataset);
    return move_slab(move->file, group, &dataset, &slab, move->in, move->out);
}

static int check_block(const Move *move) {
    int64_t rows, cols;
    const ParamPiece *b = &move->block;
    const Packing *packing = &move->file->packing;
    packing_shape(packing, move->projection, move->bias, &rows, &cols);
    if (packing_has(packing, move->projection, move->bias) && move->layer >= 0 &&
        move->layer < packing->layers && b->row >= 0 && b->rows >= 0 && b->row + b->rows <= rows &&
        b->col >= 0 && b->cols >= 0 && b->col + b->cols <= cols)
        return 0;
    return error_set(WEFT_RUNTIME,
                     "%s: layer %d has no block [%" PRId64 ", %" PRId64 "] of [%" PRId64
                     ", %" PRId64 "] in %s of %s",
                     move->file->file.path, move->layer, b->row, b->col, b->rows, b->cols,
                     move->bias ? "the bias" : "the weight", packing_projections[move->projection]);
}

static int move_block(const Move *move) {
    PackingDataset dataset;
    const Packing *packing = &move->file->packing;
    const ParamPiece *block = &move->block;
    int status = check_block(move);
    if (status || block->rows == 0 || block->cols == 0) return status;
    if (move->bias && move->projection == PACKING_DOWN) {
        int groups = move->in ? 1 : packing_groups(packing);
        for (int g = 0; !status && g < groups; g++) status = move_down_bias(move, g);
        return status;
    }
    bool by_cols = move->bias || move->projection == PACKING_DOWN;
    Range channels = by_cols ? (Range){block->col, block->col + block->cols}
                             : (Range){block->row, block->row + block->rows};
    while (!status && channels.begin < channels.end) {
        PackingRun run = packing_run(packing, move->projection, move->bias, channels.begin);
        Range part = {channels.begin,
                      channels.end < run.channels.end ? channels.end : run.channels.end};
        packing_dataset(packing, move->layer, run.group, run.slot, move->bias, &dataset);
        status = move_run(move, &run, part, &dataset);
        channels.begin = part.end;
    }
    return status;
}

int packing_read(PackingFile *file, int layer, PackingProjection projection, bool bias,
                 ParamPiece block, real *data) {
    return move_block(&(Move){file, layer, projection, bias, block, .in = data});
}

int packing_write(PackingFile *file, int layer, PackingProjection projection, bool bias,
                  ParamPiece block, const real *data) {
    return move_block(&(Move){file, layer, projection, bias, block, .out = data});
}

int packing_scan(const PackingFile *file, int layer, int group, PackingSlot slot, bool bias,
                 real *block, int64_t room, PackingVisit *visit, void *context) {
    PackingDataset dataset;
    packing_dataset(&file->packing, layer, group, slot, bias, &dataset);
    int64_t rows = bias ? 1 : dataset.dims[0], cols = bias ? dataset.dims[0] : dataset.dims[1];
    int64_t at_once = room / cols;
    int status = 0;
    for (int64_t row = 0; !status && row < rows; row += at_once) {
        int64_t count = rows - row < at_once ? rows - row : at_once;
        hsize_t n = (hsize_t)count, width = (hsize_t)cols;
        Slab slab = {.start = {bias ? 0 : (hsize_t)row},
                     .stride = {1, 1},
                     .count = {bias ? width : n, width},
                     .memory = {n, width},
                     .size = {n, width}};
        status = move_slab(file, group, &dataset, &slab, block, NULL);
        if (!status) visit(context, (Range){row, row + count}, cols, block);
    }
    return status;
}

/* ---- files ---- */

int packing_create(PackingFile *file, const Packing *packing, const char *directory,
                   const char *name, const json_t *notes) {
    char group[PACKING_NAME];
    int groups = packing_groups(packing), links = (int)packing->layers * PACKING_SLOTS * 2;
    *file = (PackingFile){.packing = *packing, .file.id = -1};
    int status = packing_check(packing);
    if (!status) status = hdf5_create(&file->file, directory, name, groups > 1 ? groups : links);
    if (!status) status = packing_write_notes(&file->file, notes);
    for (int g = 0; !status && g < groups; g++) {
        packing_group_name(packing, g, group);
        if (packing->layout->cut == PACKING_RANKS)
            status = hdf5_make_group(&file->file, group, links);
        if (!status) status = each_of_group(file, g, create_one, NULL);
    }
    return status;
}

/* Every rank of a row-parallel product has the same bias. */
static int check_down_bias(PackingFile *file, int layer, real *memory) {
    int64_t d_model = file->packing.d_model;
    Move move = {file, layer, PACKING_DOWN, true, {0, 0, 1, d_model}, .in = memory};
    int groups = packing_groups(&file->packing), status = move_down_bias(&move, 0);
    move.in = memory + d_model;
    for (int g = 1; !status && g < groups; g++) {
        status = move_down_bias(&move, g);
        if (!status && memcmp(memory, move.in, (size_t)d_model * sizeof *memory))
            status = error_set(WEFT_INPUT,
                               "%s: layer %d: down's bias of rank %d isn't that of rank 0: a "
                               "row-parallel bias is added once and is the same on all ranks",
                               file->file.path, layer, g);
    }
    return status;
}

static int check_down_biases(PackingFile *file) {
    if (packing_groups(&file->packing) == 1 || !file->packing.bias[PACKING_DOWN]) return 0;
    real *memory =
        memory_allocate(2 * (size_t)file->packing.d_model * sizeof *memory, "biases of down");
    int status = memory ? 0 : WEFT_RUNTIME;
    for (int l = 0; !status && l < file->packing.layers; l++)
        status = check_down_bias(file, l, memory);
    free(memory);
    return status;
}

int packing_open(PackingFile *file, const Packing *packing, const char *path) {
    *file = (PackingFile){.packing = *packing, .file.id = -1};
    int groups = packing_groups(packing), status = packing_check(packing);
    if (!status) status = hdf5_open(&file->file, "", path);
    if (!status) status = check_names(file);
    for (int g = 0; !status && g < groups; g++) status = each_of_group(file, g, check_one, NULL);
    return status ? status : check_down_biases(file);
}

void packing_close(PackingFile *file) {
    hdf5_close(&file->file);
    free(file->aside);
    file->aside = NULL;
    file->room = 0;
}
