#include "checkpoint/reshard.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/fingerprint.h"
#include "checkpoint/view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- before any file ---- */

static int match_tensor(Reshard *job, int i) {
    const Catalog *source = &job->source->catalog;
    const CatalogTensor *tensor = &job->target->tensor[i];
    int found = job->from[i] = catalog_find(source, tensor->name);
    if (found < 0)
        return error_set(WEFT_INPUT, "%s: tensor %s of its config's model is missing",
                         job->source->directory, tensor->name);
    const CatalogTensor *old = &source->tensor[found];
    if (old->rank == tensor->rank && old->rows == tensor->rows && old->cols == tensor->cols)
        return 0;
    return error_set(WEFT_INPUT,
                     "%s: tensor %s is [%" PRId64 ", %" PRId64 "], its config's model has "
                     "[%" PRId64 ", %" PRId64 "]",
                     job->source->directory, tensor->name, old->rows, old->cols, tensor->rows,
                     tensor->cols);
}

int reshard_match(Reshard *job) {
    const Catalog *source = &job->source->catalog, *target = job->target;
    int status = 0;
    job->from = calloc((size_t)target->tensors + 1, sizeof *job->from);
    if (!job->from) return error_set(WEFT_RUNTIME, "out of memory: list of tensors");
    for (int i = 0; !status && i < target->tensors; i++) status = match_tensor(job, i);
    for (int i = 0; !status && i < source->tensors; i++)
        if (catalog_find(target, source->tensor[i].name) < 0)
            status = error_set(WEFT_INPUT, "%s: tensor %s isn't in its config's model",
                               job->source->directory, source->tensor[i].name);
    return status;
}

int64_t reshard_bytes(const Reshard *job) {
    int64_t cells = 0;
    for (int64_t i = 0; i < job->target->entries; i++)
        cells += catalog_piece_size(&job->target->entry[i]);
    return cells * (int64_t)sizeof(real);
}

/* Room for a block: at least one row of any tensor, and no more than the largest has. */
static int64_t block_elements(const Reshard *job) {
    int64_t widest = 0, largest = 0;
    for (int i = 0; i < job->target->tensors; i++) {
        const CatalogTensor *tensor = &job->target->tensor[i];
        if (tensor->cols > widest) widest = tensor->cols;
        if (tensor->rows * tensor->cols > largest) largest = tensor->rows * tensor->cols;
    }
    if (largest <= job->elements) return largest;
    return widest > job->elements ? widest : job->elements;
}

size_t reshard_memory(const Reshard *job) { return 2 * (size_t)block_elements(job) * sizeof(real); }

static void print_entry(const Reshard *job, const CatalogEntry *entry) {
    char dataset[CATALOG_DATASET], file[CATALOG_FILE];
    const CatalogEntry *old;
    const ParamPiece *piece = &entry->piece;
    CatalogWalk walk =
        catalog_walk(&job->source->catalog, entry->role, job->from[entry->tensor], *piece);
    catalog_dataset(job->target, entry, dataset);
    log_print("  %s\n", dataset);
    while ((old = catalog_walk_next(&walk))) {
        const ParamPiece *part = &walk.common;
        catalog_file_name(old->t, old->d, file);
        log_print("    rows [%" PRId64 ", %" PRId64 ") cols [%" PRId64 ", %" PRId64 ")  from %s "
                  "at [%" PRId64 ", %" PRId64 "]  to [%" PRId64 ", %" PRId64 "]\n",
                  part->row, part->row + part->rows, part->col, part->col + part->cols, file,
                  part->row - old->piece.row, part->col - old->piece.col, part->row - piece->row,
                  part->col - piece->col);
    }
}

void reshard_print(const Reshard *job) {
    char file[CATALOG_FILE];
    const Catalog *target = job->target;
    for (int t = 0; t < target->grid_tensor; t++) {
        for (int d = 0; d < target->grid_data; d++) {
            catalog_file_name(t, d, file);
            log_print("%s\n", file);
            Range entries = catalog_file_entries(target, t, d);
            for (int64_t i = entries.begin; i < entries.end; i++)
                print_entry(job, &target->entry[i]);
        }
    }
}

/* ---- writing ---- */

/* The files (t, d) for t in [first, first + count), and where in them the writing is. */
typedef struct {
    int first, count, d;
    Hdf5File file[RESHARD_FILES];
    int64_t next[RESHARD_FILES], end[RESHARD_FILES]; /* entries that are still to be written */
} Group;

/* Pieces, each of another file, that have the same rows and follow one another in columns. */
typedef struct {
    int count;
    CatalogEntry *entry[RESHARD_FILES];
    StoreRows rows[RESHARD_FILES];
    HashStream *digest[RESHARD_FILES];
    ParamPiece whole;
} Band;

typedef struct {
    const Reshard *job;
    const char *directory;
    real *block, *packed; /* rows of a band; rows of one of its pieces */
    int64_t room;         /* elements of each */
    int64_t written, total;
    Hash128 elements;
} Writing;

/* Rows [row, row + rows) of the band's piece i, out of the block that has them for all pieces. */
static const real *pack(Writing *writing, const Band *band, int i, int64_t rows) {
    const ParamPiece *piece = &band->entry[i]->piece;
    if (band->count == 1) return writing->block;
    const real *from = writing->block + (piece->col - band->whole.col);
    for (int64_t r = 0; r < rows; r++)
        memcpy(writing->packed + r * piece->cols, from + r * band->whole.cols,
               (size_t)piece->cols * sizeof(real));
    return writing->packed;
}

static int append(Writing *writing, Band *band, int i, int64_t row, int64_t rows) {
    const CatalogEntry *entry = band->entry[i];
    ParamPiece part = {row, entry->piece.col, rows, entry->piece.cols};
    const real *data = pack(writing, band, i, rows);
    size_t bytes = (size_t)(part.rows * part.cols) * sizeof(real);
    hash_stream_add(band->digest[i], data, bytes);
    writing->elements =
        hash_add(writing->elements, fingerprint_piece(&writing->job->target->tensor[entry->tensor],
                                                      entry->role, part, data, part.cols));
    writing->written += (int64_t)bytes;
    return store_rows_append(&band->rows[i], data, rows);
}

static int copy_rows(Writing *writing, Band *band) {
    const Reshard *job = writing->job;
    int role = band->entry[0]->role, tensor = job->from[band->entry[0]->tensor], status = 0;
    int64_t at_once = writing->room / band->whole.cols, end = band->whole.row + band->whole.rows;
    for (int64_t row = band->whole.row; !status && row < end; row += at_once) {
        int64_t rows = end - row < at_once ? end - row : at_once;
        ParamPiece block = {row, band->whole.col, rows, band->whole.cols};
        status = reader_block(job->source, role, tensor, block, writing->block);
        for (int i = 0; !status && i < band->count; i++)
            status = append(writing, band, i, row, rows);
        if (!status && job->progress) job->progress(job->context, writing->written, writing->total);
    }
    return status;
}

static int write_band(Writing *writing, Group *group, Band *band) {
    int status = 0, begun = 0;
    for (; !status && begun < band->count; begun++) {
        const CatalogEntry *entry = band->entry[begun];
        status = store_rows_begin(&band->rows[begun], &group->file[entry->t - group->first],
                                  writing->job->target, entry);
        band->digest[begun] = hash_stream_begin();
        if (!status && !band->digest[begun]) status = WEFT_RUNTIME;
    }
    if (!status) status = copy_rows(writing, band);
    for (int i = 0; i < begun; i++) {
        band->entry[i]->digest = hash_stream_end(band->digest[i]);
        int ended = store_rows_end(&band->rows[i]);
        if (!status) status = ended;
    }
    return status;
}

/* The next piece of file i, if it is one of this role and tensor; NULL otherwise. */
static CatalogEntry *take_entry(const Writing *writing, Group *group, int i, int role, int tensor) {
    if (group->next[i] == group->end[i]) return NULL;
    CatalogEntry *entry = &writing->job->target->entry[group->next[i]];
    if (entry->role != role || entry->tensor != tensor) return NULL;
    group->next[i]++;
    return entry;
}

/* Whether a piece continues the band to the right. */
static bool follows(const Band *band, const CatalogEntry *entry) {
    return entry->piece.row == band->whole.row && entry->piece.rows == band->whole.rows &&
           entry->piece.col == band->whole.col + band->whole.cols;
}

/* All pieces of a role and tensor in the group's files: at once as far as they lie side by side. */
static int write_tensor(Writing *writing, Group *group, int role, int tensor) {
    Band band = {0};
    int status = 0;
    for (int i = 0; !status && i < group->count; i++) {
        CatalogEntry *entry = take_entry(writing, group, i, role, tensor);
        if (!entry) continue;
        if (band.count > 0 && follows(&band, entry)) {
            band.whole.cols += entry->piece.cols;
        } else {
            if (band.count > 0) status = write_band(writing, group, &band);
            band = (Band){.whole = entry->piece};
        }
        band.entry[band.count++] = entry;
    }
    if (!status && band.count > 0) status = write_band(writing, group, &band);
    return status;
}

static int open_group(const Writing *writing, Group *group) {
    const Catalog *target = writing->job->target;
    int status = 0;
    for (int i = 0; i < group->count; i++) group->file[i].id = -1;
    for (int i = 0; !status && i < group->count; i++) {
        int t = group->first + i;
        Range entries = catalog_file_entries(target, t, group->d);
        group->next[i] = entries.begin;
        group->end[i] = entries.end;
        status = store_create(&group->file[i], target, writing->directory, t, group->d);
    }
    return status;
}

static int write_group(Writing *writing, int first, int d) {
    const Catalog *target = writing->job->target;
    int left = target->grid_tensor - first;
    Group group = {.first = first, .count = left < RESHARD_FILES ? left : RESHARD_FILES, .d = d};
    int status = open_group(writing, &group);
    for (int role = 0; !status && role < target->roles; role++)
        for (int tensor = 0; !status && tensor < target->tensors; tensor++)
            status = write_tensor(writing, &group, role, tensor);
    if (!status) status = fault_point(PHASE_SAVE);
    for (int i = 0; i < group.count; i++) {
        if (!status) status = hdf5_finish(&group.file[i]);
        hdf5_close(&group.file[i]);
    }
    return status;
}

int reshard_write(const Reshard *job, const char *directory, Hash128 *elements) {
    Catalog *target = job->target;
    Writing writing = {.job = job,
                       .directory = directory,
                       .room = block_elements(job),
                       .total = reshard_bytes(job)};
    writing.block = memory_allocate(reshard_memory(job), "blocks of a reshard");
    if (!writing.block) return WEFT_RUNTIME;
    writing.packed = writing.block + writing.room;
    int status = 0;
    for (int d = 0; !status && d < target->grid_data; d++)
        for (int t = 0; !status && t < target->grid_tensor; t += RESHARD_FILES)
            status = write_group(&writing, t, d);
    if (!status) status = view_write(target, directory);
    *elements = writing.elements;
    free(writing.block);
    return status;
}
