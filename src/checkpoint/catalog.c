#include "checkpoint/catalog.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const CatalogRole catalog_roles[CATALOG_ROLES] = {
    {"value", PARAM_VALUE},
    {"moment1", PARAM_MOMENT1},
    {"moment2", PARAM_MOMENT2},
};

int catalog_allocate(Catalog *catalog, int tensors, int64_t entries) {
    catalog->tensors = tensors;
    catalog->entries = entries;
    catalog->tensor = calloc((size_t)tensors + 1, sizeof *catalog->tensor);
    catalog->entry = calloc((size_t)entries + 1, sizeof *catalog->entry);
    catalog->by_tensor = calloc((size_t)entries + 1, sizeof *catalog->by_tensor);
    catalog->first = calloc((size_t)tensors * CATALOG_ROLES + 1, sizeof *catalog->first);
    if (catalog->tensor && catalog->entry && catalog->by_tensor && catalog->first) return 0;
    return error_set(WEFT_RUNTIME, "out of memory: list of %" PRId64 " checkpoint pieces", entries);
}

void catalog_release(Catalog *catalog) {
    free(catalog->tensor);
    free(catalog->entry);
    free(catalog->by_tensor);
    free(catalog->first);
    *catalog = (Catalog){0};
}

static void describe(CatalogTensor *tensor, const Param *param) {
    *tensor = (CatalogTensor){.rank = param->rank, .rows = param->rows, .cols = param->cols};
    memcpy(tensor->name, param->name, sizeof tensor->name);
    tensor->shards = param->shards;
    tensor->axis = param->split == SPLIT_NONE                       ? -1
                   : param->split == SPLIT_COLS && param->rank == 2 ? 1
                                                                    : 0;
}

/* Appends the nonempty pieces of file (t, d). */
static void add_file(Catalog *catalog, const ParamSet *set, int t, int d) {
    for (int role = 0; role < catalog->roles; role++) {
        for (int i = 0; i < set->count; i++) {
            if (t >= set->param[i].shards) continue;
            ParamPiece piece = param_piece(&set->param[i], t, catalog->grid_data, d);
            if (piece.rows * piece.cols == 0) continue;
            catalog->entry[catalog->entries++] =
                (CatalogEntry){.t = t, .d = d, .role = role, .tensor = i, .piece = piece};
        }
    }
}

int catalog_from_shapes(Catalog *catalog, const ParamSet *set, int roles, int grid_tensor,
                        int grid_data) {
    int64_t most = 0;
    *catalog = (Catalog){.grid_tensor = grid_tensor, .grid_data = grid_data, .roles = roles};
    for (int i = 0; i < set->count; i++) most += (int64_t)set->param[i].shards * grid_data * roles;
    int status = catalog_allocate(catalog, set->count, most);
    if (status) goto done;
    for (int i = 0; i < set->count; i++) describe(&catalog->tensor[i], &set->param[i]);
    catalog->entries = 0;
    for (int t = 0; t < grid_tensor; t++)
        for (int d = 0; d < grid_data; d++) add_file(catalog, set, t, d);
    status = catalog_complete(catalog);
done:
    if (status) catalog_release(catalog);
    return status;
}

int catalog_from_params(Catalog *catalog, const ParamSet *set, int grid_tensor, int grid_data) {
    int roles = set->arena[PARAM_MOMENT1] ? CATALOG_ROLES : 1;
    return catalog_from_shapes(catalog, set, roles, grid_tensor, grid_data);
}

static int compare(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int compare_files(const CatalogEntry *a, const CatalogEntry *b) {
    return a->t != b->t ? compare(a->t, b->t) : compare(a->d, b->d);
}

static int compare_places(const CatalogEntry *a, const CatalogEntry *b) {
    int order = compare_files(a, b);
    if (!order) order = compare(a->role, b->role);
    return order ? order : compare(a->tensor, b->tensor);
}

static int compare_by_tensor(const void *left, const void *right, void *entries) {
    const CatalogEntry *a = (const CatalogEntry *)entries + *(const int64_t *)left;
    const CatalogEntry *b = (const CatalogEntry *)entries + *(const int64_t *)right;
    int order = compare(a->role, b->role);
    if (!order) order = compare(a->tensor, b->tensor);
    if (!order) order = compare(a->piece.row, b->piece.row);
    return order ? order : compare(a->piece.col, b->piece.col);
}

static bool inside(int64_t offset, int64_t count, int64_t size) {
    return count > 0 && offset >= 0 && count <= size && offset <= size - count;
}

static int check_entry(const Catalog *catalog, const CatalogEntry *entry) {
    char file[CATALOG_FILE], dataset[CATALOG_DATASET];
    const CatalogTensor *tensor = &catalog->tensor[entry->tensor];
    const ParamPiece *piece = &entry->piece;
    catalog_file_name(entry->t, entry->d, file);
    catalog_dataset(catalog, entry, dataset);
    if (entry->t >= tensor->shards || entry->d >= catalog->grid_data)
        return error_set(WEFT_INPUT, "%s in %s: the tensor has %d shards, %d pieces each", dataset,
                         file, tensor->shards, catalog->grid_data);
    if (!inside(piece->row, piece->rows, tensor->rows) ||
        !inside(piece->col, piece->cols, tensor->cols))
        return error_set(WEFT_INPUT, "%s in %s: reaches outside of the tensor", dataset, file);
    if (entry > catalog->entry && compare_places(entry - 1, entry) >= 0)
        return error_set(WEFT_INPUT, "%s in %s: out of order or listed twice", dataset, file);
    return 0;
}

/* Pieces come by ascending row, then column: a piece can only meet those that begin before it ends.
 */
static int check_coverage(const Catalog *catalog, int role, int tensor) {
    const CatalogTensor *whole = &catalog->tensor[tensor];
    const int64_t *first = &catalog->first[role * catalog->tensors + tensor];
    int64_t cells = 0;
    for (int64_t i = first[0]; i < first[1]; i++) {
        const ParamPiece *a = &catalog->entry[catalog->by_tensor[i]].piece;
        cells += a->rows * a->cols;
        for (int64_t j = i + 1; j < first[1]; j++) {
            const ParamPiece *b = &catalog->entry[catalog->by_tensor[j]].piece;
            if (b->row >= a->row + a->rows) break;
            if (b->col < a->col + a->cols && a->col < b->col + b->cols)
                return error_set(
                    WEFT_INPUT, "tensor %s, %s: cell [%" PRId64 ", %" PRId64 "] lies in two pieces",
                    whole->name, catalog_roles[role].name, b->row,
                    a->col > b->col ? a->col : b->col);
        }
    }
    if (cells == whole->rows * whole->cols) return 0;
    return error_set(WEFT_INPUT, "tensor %s, %s: pieces cover %" PRId64 " of %" PRId64 " cells",
                     whole->name, catalog_roles[role].name, cells, whole->rows * whole->cols);
}

int catalog_complete(Catalog *catalog) {
    int groups = catalog->roles * catalog->tensors;
    for (int64_t i = 0; i < catalog->entries; i++) {
        if (check_entry(catalog, &catalog->entry[i])) return WEFT_INPUT;
        catalog->by_tensor[i] = i;
        const CatalogEntry *entry = &catalog->entry[i];
        catalog->first[entry->role * catalog->tensors + entry->tensor + 1]++;
    }
    qsort_r(catalog->by_tensor, (size_t)catalog->entries, sizeof *catalog->by_tensor,
            compare_by_tensor, catalog->entry);
    for (int k = 0; k < groups; k++) catalog->first[k + 1] += catalog->first[k];
    for (int role = 0; role < catalog->roles; role++)
        for (int tensor = 0; tensor < catalog->tensors; tensor++)
            if (check_coverage(catalog, role, tensor)) return WEFT_INPUT;
    return 0;
}

int catalog_find(const Catalog *catalog, const char *tensor) {
    for (int i = 0; i < catalog->tensors; i++)
        if (!strcmp(catalog->tensor[i].name, tensor)) return i;
    return -1;
}

void catalog_file_name(int t, int d, char name[CATALOG_FILE]) {
    snprintf(name, CATALOG_FILE, "shard-t%03d-d%03d.h5", t, d);
}

bool catalog_file_parse(const char *name, int *t, int *d) {
    char again[CATALOG_FILE];
    if (sscanf(name, "shard-t%3d-d%3d.h5", t, d) != 2 || *t < 0 || *d < 0) return false;
    catalog_file_name(*t, *d, again);
    return !strcmp(name, again);
}

void catalog_dataset(const Catalog *catalog, const CatalogEntry *entry,
                     char name[CATALOG_DATASET]) {
    snprintf(name, CATALOG_DATASET, "%s/%s", catalog_roles[entry->role].name,
             catalog->tensor[entry->tensor].name);
}

/* The first entry that does not lie before file (t, d). */
static int64_t lower_bound(const Catalog *catalog, int t, int d) {
    CatalogEntry wanted = {.t = t, .d = d};
    int64_t low = 0, high = catalog->entries;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (compare_files(&catalog->entry[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

Range catalog_file_entries(const Catalog *catalog, int t, int d) {
    return (Range){lower_bound(catalog, t, d), lower_bound(catalog, t, d + 1)};
}

CatalogWalk catalog_walk(const Catalog *catalog, int role, int tensor, ParamPiece block) {
    const int64_t *first = &catalog->first[role * catalog->tensors + tensor];
    return (CatalogWalk){.catalog = catalog, .block = block, .next = first[0], .end = first[1]};
}

/* What [a, a + a_size) and [b, b + b_size) have in common: *size may come out negative. */
static int64_t meet(int64_t a, int64_t a_size, int64_t b, int64_t b_size, int64_t *size) {
    int64_t begin = a > b ? a : b, a_end = a + a_size, b_end = b + b_size;
    *size = (a_end < b_end ? a_end : b_end) - begin;
    return begin;
}

const CatalogEntry *catalog_walk_next(CatalogWalk *walk) {
    const ParamPiece *block = &walk->block;
    ParamPiece *common = &walk->common;
    while (walk->next < walk->end) {
        const Catalog *catalog = walk->catalog;
        const CatalogEntry *entry = &catalog->entry[catalog->by_tensor[walk->next++]];
        const ParamPiece *piece = &entry->piece;
        if (piece->row >= block->row + block->rows) break;
        common->row = meet(piece->row, piece->rows, block->row, block->rows, &common->rows);
        common->col = meet(piece->col, piece->cols, block->col, block->cols, &common->cols);
        if (common->rows > 0 && common->cols > 0) return entry;
    }
    walk->next = walk->end;
    return NULL;
}

int64_t catalog_disk_bytes(const Catalog *catalog) {
    const int64_t said_of_piece = 1000, said_of_file = 2048;
    int64_t bytes = (int64_t)catalog->grid_tensor * catalog->grid_data * said_of_file;
    for (int64_t i = 0; i < catalog->entries; i++)
        bytes += catalog_piece_size(&catalog->entry[i]) * (int64_t)sizeof(real) + said_of_piece;
    return bytes;
}
