#include "run/known_row.h"

#include "base/error.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { BLOCK_ELEMENTS = 1 << 20 }; /* of a weight that are read at once, unless a row has more */
static const uint64_t known_key = UINT64_C(0x6b6e6f776e20726f);
static const double tolerance = 1e-10; /* of the largest output */

/* What shard s of a tensor has in its files: piece d of them in the file (s, d), one under another
 * (of a vector: one beside another). */
typedef struct {
    int tensor; /* of the catalog */
    int pieces;
    const CatalogEntry *piece[SHARD_MAX];
    int64_t rows, cols;
} Local;

typedef struct {
    Reader *reader;
    const Ffn *ffn;
    int shard;
    real *block;
    int64_t room;
} Row;

static int misfit(const Row *row, const Local *local, int64_t rows, int64_t cols) {
    return error_set(WEFT_CHECK,
                     "%s: shard %d of %s is [%" PRId64 ", %" PRId64 "], its neighbours in the FFN "
                     "make it [%" PRId64 ", %" PRId64 "]",
                     row->reader->directory, row->shard,
                     row->reader->catalog.tensor[local->tensor].name, local->rows, local->cols,
                     rows, cols);
}

static int find_local(const Row *row, int index, Local *local) {
    const Catalog *catalog = &row->reader->catalog;
    const Param *param = &row->ffn->set->param[index];
    const CatalogEntry *by_file[SHARD_MAX] = {NULL};
    *local = (Local){.tensor = catalog_find(catalog, param->name)};
    const CatalogTensor *whole = &catalog->tensor[local->tensor];
    if (local->tensor < 0 || whole->rows != param->rows || whole->cols != param->cols)
        return error_set(WEFT_CHECK, "%s: tensor %s is missing or of another shape",
                         row->reader->directory, param->name);
    const int64_t *first = &catalog->first[local->tensor];
    for (int64_t i = first[0]; i < first[1]; i++) {
        const CatalogEntry *entry = &catalog->entry[catalog->by_tensor[i]];
        if (entry->t == row->shard) by_file[entry->d] = entry;
    }
    bool vector = whole->rank == 1;
    for (int d = 0; d < catalog->grid_data; d++) {
        if (!by_file[d]) continue;
        const ParamPiece *piece = &by_file[d]->piece;
        if (!vector && local->pieces > 0 && piece->cols != local->cols)
            return error_set(WEFT_CHECK, "%s: shard %d of %s has pieces of other widths",
                             row->reader->directory, row->shard, param->name);
        local->rows = vector ? 1 : local->rows + piece->rows;
        local->cols = vector ? local->cols + piece->cols : piece->cols;
        local->piece[local->pieces++] = by_file[d];
    }
    return 0;
}

static double dot(int64_t n, const real *a, const real *b, double sum) {
    for (int64_t i = 0; i < n; i++) sum = fma((double)a[i], (double)b[i], sum);
    return sum;
}

/* out[r] += the local row r times `in` [local.cols], term after term. */
static int multiply(const Row *row, const Local *local, const real *in, double *out) {
    int64_t at_once = row->room / local->cols;
    for (int p = 0; p < local->pieces; p++) {
        ParamPiece part = local->piece[p]->piece;
        int64_t end = part.row + part.rows;
        for (; part.row < end; part.row += at_once) {
            part.rows = end - part.row < at_once ? end - part.row : at_once;
            int status = reader_block(row->reader, 0, local->tensor, part, row->block);
            if (status) return status;
            for (int64_t r = 0; r < part.rows; r++, out++)
                *out = dot(part.cols, row->block + r * part.cols, in, *out);
        }
    }
    return 0;
}

/* out += the local part of a bias. */
static int add_bias(const Row *row, int param, int64_t size, double *out) {
    Local local;
    int status = find_local(row, param, &local);
    if (!status && local.cols != size) status = misfit(row, &local, 1, size);
    for (int p = 0; !status && p < local.pieces; p++) {
        const ParamPiece *piece = &local.piece[p]->piece;
        status = reader_block(row->reader, 0, local.tensor, *piece, row->block);
        for (int64_t i = 0; !status && i < piece->cols; i++) *out++ += (double)row->block[i];
    }
    return status;
}

/* One branch's preactivations of this shard, as the kind takes them: [1, channels]. */
static int project(const Row *row, int weight, int bias, const real *x, int64_t channels,
                   Tensor *preactivations, double *sums) {
    Local local;
    int64_t d_model = row->ffn->config.d_model;
    int status = find_local(row, weight, &local);
    if (!status && (local.rows != channels || local.cols != d_model))
        status = misfit(row, &local, channels, d_model);
    if (status) return status;
    for (int64_t i = 0; i < channels; i++) sums[i] = 0;
    status = multiply(row, &local, x, sums);
    if (!status && bias >= 0) status = add_bias(row, bias, channels, sums);
    for (int64_t i = 0; i < channels; i++) preactivations->data[i] = (real)sums[i];
    return status;
}

/* y += this shard's part. `memory`: room for three rows of its channels, and as many sums. */
static int add_shard(const Row *row, const Local *down, const real *x, real *memory, double *sums,
                     double *y) {
    const Ffn *ffn = row->ffn;
    int64_t channels = down->cols;
    FfnSaved saved = {0};
    struct {
        int weight, bias;
        Sharded *preactivations;
    } branch[] = {{ffn->gate, ffn->gate_bias, &saved.gate}, {ffn->up, ffn->up_bias, &saved.up}};
    if (down->rows != ffn->config.d_model)
        return misfit(row, down, ffn->config.d_model, down->cols);
    for (int b = 0; b < 2; b++) {
        Tensor *z = &branch[b].preactivations->shard[row->shard];
        if (branch[b].weight < 0) continue;
        *z = tensor_view(memory + b * channels, 1, channels);
        int status = project(row, branch[b].weight, branch[b].bias, x, channels, z, sums);
        if (status) return status;
    }
    Tensor hidden = tensor_view(memory + 2 * channels, 1, channels);
    saved.hidden.shard[row->shard] = hidden;
    ffn->kind->activate(ffn, (Range){0, 1}, (Range){0, channels}, row->shard, &saved);
    return multiply(row, down, hidden.data, y);
}

static int next_shard(Row *row, const real *x, double *y) {
    Local down;
    int status = find_local(row, row->ffn->down, &down);
    if (status || down.pieces == 0) return status;
    real *memory = memory_allocate(3 * (size_t)down.cols * sizeof *memory, "the known row");
    double *sums = memory_allocate((size_t)down.cols * sizeof *sums, "the known row");
    status = memory && sums ? add_shard(row, &down, x, memory, sums, y) : WEFT_RUNTIME;
    free(memory);
    free(sums);
    return status;
}

/* Room for a block: a whole weight, unless that is large; at least a row of any. */
static int64_t room_for(const Ffn *ffn) {
    int64_t d_ff = ffn->config.d_ff, d_model = ffn->config.d_model, largest = d_ff * d_model;
    int64_t widest = d_ff > d_model ? d_ff : d_model;
    int64_t room = largest < BLOCK_ELEMENTS ? largest : BLOCK_ELEMENTS;
    return room > widest ? room : widest;
}

int known_row_output(Reader *reader, const Ffn *ffn, const real *x, double *y) {
    Row row = {.reader = reader, .ffn = ffn, .room = room_for(ffn)};
    row.block = memory_allocate((size_t)row.room * sizeof(real), "a block of a weight");
    int status = row.block ? 0 : WEFT_RUNTIME;
    for (int64_t i = 0; i < ffn->config.d_model; i++) y[i] = 0;
    for (; !status && row.shard < reader->catalog.grid_tensor; row.shard++)
        status = next_shard(&row, x, y);
    row.shard = 0; /* where what is replicated lies */
    if (!status && ffn->down_bias >= 0)
        status = add_bias(&row, ffn->down_bias, ffn->config.d_model, y);
    free(row.block);
    return status;
}

static int compare_outputs(const KnownRowPath *a, const KnownRowPath *b, int64_t d_model, int layer,
                           const double *left, const double *right) {
    int64_t worst = -1;
    double largest = 0, most = 0;
    for (int64_t i = 0; i < d_model; i++)
        if (fabs(left[i]) > largest) largest = fabs(left[i]);
    for (int64_t i = 0; i < d_model; i++) {
        double difference = fabs(left[i] - right[i]);
        if (left[i] == right[i] || (isnan(left[i]) && isnan(right[i]))) continue;
        if (difference <= tolerance * largest || (worst >= 0 && !(difference > most))) continue;
        worst = i;
        most = difference;
    }
    if (worst < 0) return 0;
    return error_set(
        WEFT_CHECK,
        "the FFN of layer %d takes a known row to %.17g in channel %" PRId64
        " by the weights as they lie in %s, and to %.17g by those in %s: they are not the "
        "same function; is their layout, activation or bias declared wrongly?",
        layer, left[worst], worst, a->where, right[worst], b->where);
}

/* `memory`: x, and the outputs of both. */
static int compare_layer(const KnownRowPath *a, const KnownRowPath *b, const Ffn *ffn, int layer,
                         double *memory) {
    int64_t d_model = ffn->config.d_model;
    double *left = memory, *right = memory + d_model;
    real *x = (real *)(memory + 2 * d_model);
    PhiloxStream stream = {known_key, PHILOX_INIT, (uint32_t)layer, 0, 0};
    philox_normals(&stream, 0, (Range){0, d_model}, left);
    for (int64_t i = 0; i < d_model; i++) x[i] = (real)left[i];
    int status = a->output(a->context, layer, ffn, x, left);
    if (!status) status = b->output(b->context, layer, ffn, x, right);
    if (!status) return compare_outputs(a, b, d_model, layer, left, right);
    return status == WEFT_CHECK
               ? error_prefix(status, "a known row through the FFN of layer %d: ", layer)
               : status;
}

int known_row_compare_paths(const KnownRowPath *a, const KnownRowPath *b, const Ffn *ffn,
                            int layers) {
    int chosen[] = {0, layers / 2, layers - 1}, status = 0;
    double *memory =
        memory_allocate(3 * (size_t)ffn->config.d_model * sizeof *memory, "the known row");
    if (!memory) return WEFT_RUNTIME;
    for (int i = 0; !status && i < 3; i++)
        if (i == 0 || chosen[i] > chosen[i - 1])
            status = compare_layer(a, b, ffn, chosen[i], memory);
    free(memory);
    return status;
}

static int shards_output(void *context, int layer, const Ffn *ffn, const real *x, double *y) {
    const KnownRowShards *shards = context;
    Ffn own = shards->model->layer[layer].ffn; /* which knows its tensors */
    own.kind = ffn->kind;
    own.config.branches = ffn->config.branches;
    return known_row_output(shards->reader, &own, x, y);
}

KnownRowPath known_row_shards(KnownRowShards *shards) {
    return (KnownRowPath){shards->reader->directory, shards_output, shards};
}

int known_row_compare(Reader *a, Reader *b, const Model *model) {
    KnownRowShards left = {a, model}, right = {b, model};
    KnownRowPath path[] = {known_row_shards(&left), known_row_shards(&right)};
    return known_row_compare_paths(&path[0], &path[1], &model->layer[0].ffn,
                                   (int)model->config.layers);
}
