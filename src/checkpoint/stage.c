#include "checkpoint/stage.h"

#include "base/error.h"
#include "base/fault.h"
#include "checkpoint/fingerprint.h"
#include "checkpoint/store.h"

#include <stdlib.h>
#include <string.h>

static bool writes(const CheckpointPlaces *places, int tensor_rank, int data_rank, int t, int d) {
    return axis_owner(&places->tensor_files, t) == tensor_rank &&
           axis_owner(&places->data_files, d) == data_rank;
}

static bool is_writer(const Stage *stage, int t, int d) {
    return writes(&stage->places, stage->tensor_rank, stage->data_rank, t, d);
}

static size_t piece_bytes(const CatalogEntry *entry) {
    return (size_t)catalog_piece_size(entry) * sizeof(real);
}

size_t stage_bytes(const Catalog *catalog, const CheckpointPlaces *places, int tensor_rank,
                   int data_rank) {
    size_t bytes = 0;
    for (int64_t i = 0; i < catalog->entries; i++) {
        const CatalogEntry *entry = &catalog->entry[i];
        if (writes(places, tensor_rank, data_rank, entry->t, entry->d)) bytes += piece_bytes(entry);
    }
    return bytes;
}

static int allocate(Stage *stage) {
    size_t entries = (size_t)stage->catalog.entries + 1;
    stage->bytes =
        stage_bytes(&stage->catalog, &stage->places, stage->tensor_rank, stage->data_rank);
    stage->staged = calloc(entries, sizeof *stage->staged);
    stage->digest = calloc(entries, sizeof *stage->digest);
    stage->move = calloc(entries, sizeof *stage->move);
    if (!stage->staged || !stage->digest || !stage->move)
        return error_set(WEFT_RUNTIME, "out of memory: list of checkpoint pieces");
    stage->memory = memory_allocate(stage->bytes, "the copy of the state that a save writes from");
    return stage->memory ? 0 : WEFT_RUNTIME;
}

/* Replicas along the data axis hold equal values, so all moves are within a tensor group. */
static void plan_moves(Stage *stage, const ParamSet *set) {
    real *next = stage->memory;
    for (int64_t i = 0; i < stage->catalog.entries; i++) {
        const CatalogEntry *entry = &stage->catalog.entry[i];
        const Param *param = &set->param[entry->tensor];
        if (axis_owner(&stage->places.data_files, entry->d) != stage->data_rank) continue;
        Piece move = {.size = piece_bytes(entry)};
        move.source = param->split == SPLIT_NONE ? 0 : axis_owner(&param->axis, entry->t);
        move.target = axis_owner(&stage->places.tensor_files, entry->t);
        if (move.source == stage->tensor_rank)
            move.from = param_piece_view(set, param, catalog_roles[entry->role].role, entry->t,
                                         entry->piece)
                            .data; /* whole rows of a shard, so contiguous */
        if (move.target == stage->tensor_rank) {
            move.to = stage->staged[i] = next;
            next += catalog_piece_size(entry);
        }
        stage->move[stage->moves++] = move;
    }
}

int stage_open(Stage *stage, const ParamSet *set, const CheckpointPlaces *places, int tensor_rank,
               int data_rank) {
    *stage = (Stage){.places = *places, .tensor_rank = tensor_rank, .data_rank = data_rank};
    int status = catalog_from_params(&stage->catalog, set, places->tensor_files.shards,
                                     places->data_files.shards);
    if (!status) status = allocate(stage);
    if (!status) plan_moves(stage, set);
    return status;
}

void stage_begin(Stage *stage, int64_t step) {
    stage->step = step;
    stage->elements = (Hash128){0, 0};
    memset(stage->digest, 0, (size_t)stage->catalog.entries * sizeof *stage->digest);
}

/* For tests: a bit that turns between memory and disk. */
static void flip_bit(const Stage *stage, real *data) {
    unsigned char *byte = (unsigned char *)data;
    if (fault_take_of("bitflip", PHASE_SAVE, stage->step - 1)) *byte ^= 16;
}

static int write_entry(Stage *stage, const Hdf5File *file, int64_t i) {
    const CatalogEntry *entry = &stage->catalog.entry[i];
    real *data = stage->staged[i];
    stage->digest[i] = hash_bytes(data, piece_bytes(entry));
    stage->elements = hash_add(stage->elements,
                               fingerprint_piece(&stage->catalog.tensor[entry->tensor], entry->role,
                                                 entry->piece, data, entry->piece.cols));
    flip_bit(stage, data);
    if (fault_take_of("enospc", PHASE_SAVE, stage->step - 1))
        return error_set(WEFT_RUNTIME, "%s: can't write (No space left on device, injected)",
                         file->path);
    return store_write(file, &stage->catalog, entry, data);
}

static int write_file(Stage *stage, const char *directory, int t, int d) {
    Hdf5File file;
    Range entries = catalog_file_entries(&stage->catalog, t, d);
    int status = store_create(&file, &stage->catalog, directory, t, d);
    for (int64_t i = entries.begin; !status && i < entries.end; i++)
        status = write_entry(stage, &file, i);
    if (!status) status = hdf5_finish(&file);
    hdf5_close(&file);
    return status;
}

int stage_write(Stage *stage, const char *directory) {
    if (fault_take_of("slow-disk", PHASE_SAVE, stage->step - 1)) fault_sleep("slow-disk");
    int status = fault_point_of(PHASE_WRITE, stage->step - 1);
    for (int t = 0; !status && t < stage->catalog.grid_tensor; t++)
        for (int d = 0; !status && d < stage->catalog.grid_data; d++)
            if (is_writer(stage, t, d)) status = write_file(stage, directory, t, d);
    return status;
}

void stage_close(Stage *stage) {
    catalog_release(&stage->catalog);
    free(stage->staged);
    free(stage->digest);
    free(stage->move);
    free(stage->memory);
    *stage = (Stage){0};
}
