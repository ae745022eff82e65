/* What a checkpoint consists of: its tensors, and the pieces of them that lie as datasets in the
 * shard files. Made from a parameter set when saving, from a manifest when reading; everything else
 * here iterates it. No I/O, no MPI.
 *
 * Entries stand in one order, strictly ascending: by file (t, then d), role, tensor. A file holds
 * at most one piece of a tensor and role, so the order names each dataset once. */
#ifndef WEFT_CHECKPOINT_CATALOG_H
#define WEFT_CHECKPOINT_CATALOG_H

#include "base/hash.h"
#include "param/param.h"

#define CATALOG_FILE    40                /* "shard-t000-d000.h5" */
#define CATALOG_DATASET (PARAM_NAME + 16) /* "moment1/NAME" */

enum { CATALOG_ROLES = 3 };
typedef struct {
    const char *name;
    ParamRole role;
} CatalogRole;
extern const CatalogRole catalog_roles[CATALOG_ROLES]; /* value, moment1, moment2 */

typedef struct {
    char name[PARAM_NAME];
    int rank;           /* 1: vector [cols]; 2: matrix [rows, cols] */
    int64_t rows, cols; /* rows = 1 for a vector */
    int axis;           /* the dimension that is cut into shards; -1: replicated */
    int shards;
} CatalogTensor;

typedef struct {
    int t, d;         /* the file */
    int role, tensor; /* indices of catalog_roles and Catalog.tensor */
    ParamPiece piece;
    Hash128 digest; /* XXH3-128 of the piece's bytes, row-major */
} CatalogEntry;

typedef struct {
    int grid_tensor, grid_data;
    int roles; /* 1: values alone; CATALOG_ROLES: with moments */
    int tensors;
    int64_t entries;
    CatalogTensor *tensor;
    CatalogEntry *entry;
    Hash128 view_digest; /* XXH3-128 of the view's file; set by its writer */
    int64_t *by_tensor;  /* the entries' indices by role, tensor, row, column */
    int64_t *first; /* role r's pieces of tensor i: by_tensor[first[k] .. first[k + 1]), k = r *
                       tensors + i */
} Catalog;

/* The pieces of the set's tensors on a logical grid; moments when the set has them. Digests are
 * zero. 0 or WEFT_RUNTIME. */
int catalog_from_params(Catalog *catalog, const ParamSet *set, int grid_tensor, int grid_data);

/* The same for a set that may have no memory: `roles` are 1 or CATALOG_ROLES. */
int catalog_from_shapes(Catalog *catalog, const ParamSet *set, int roles, int grid_tensor,
                        int grid_data);

/* Room for a catalog that the caller fills: tensors and entries zeroed. 0 or WEFT_RUNTIME. */
int catalog_allocate(Catalog *catalog, int tensors, int64_t entries);

/* After filling: order, bounds, and that the pieces cover each cell of each tensor exactly once. 0,
 * or WEFT_INPUT naming the tensor or dataset; makes by_tensor and first. */
int catalog_complete(Catalog *catalog);

void catalog_release(Catalog *catalog);

int catalog_find(const Catalog *catalog, const char *tensor); /* -1 when there is none */

void catalog_file_name(int t, int d, char name[CATALOG_FILE]);
/* Takes the name apart; false when it isn't exactly what catalog_file_name writes. */
bool catalog_file_parse(const char *name, int *t, int *d);
void catalog_dataset(const Catalog *catalog, const CatalogEntry *entry, char name[CATALOG_DATASET]);

/* Entries of file (t, d): a run of Catalog.entry. */
Range catalog_file_entries(const Catalog *catalog, int t, int d);

/* Walks the pieces of a role and tensor that have cells in common with a block, by ascending row,
 * then column:
 *
 *     CatalogWalk walk = catalog_walk(catalog, role, tensor, block);
 *     while ((entry = catalog_walk_next(&walk))) ... walk.common ... */
typedef struct {
    const Catalog *catalog;
    ParamPiece block, common; /* common: of the block and the present piece */
    int64_t next, end;        /* in by_tensor */
} CatalogWalk;
CatalogWalk catalog_walk(const Catalog *catalog, int role, int tensor, ParamPiece block);
const CatalogEntry *catalog_walk_next(CatalogWalk *walk);

/* What the directory takes on disk, nearly: the arrays, and what HDF5 and the manifest say of each.
 */
int64_t catalog_disk_bytes(const Catalog *catalog);

static inline int64_t catalog_piece_size(const CatalogEntry *entry) {
    return entry->piece.rows * entry->piece.cols;
}

/* Sizes as the tensor's dimensions: rank numbers, [rows, cols] or [cols]. */
static inline void catalog_dims(const CatalogTensor *tensor, int64_t rows, int64_t cols,
                                int64_t dims[2]) {
    dims[0] = tensor->rank == 2 ? rows : cols;
    dims[1] = cols;
}

#endif
