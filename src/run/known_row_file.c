#include "run/known_row_file.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_ELEMENTS = 1 << 20 }; /* of a dataset that are read at once, unless a row has more */

/* One layer, and the memory of a row in it: by channel the preactivations of both branches, and
 * what down takes. */
typedef struct {
    const PackingFile *file;
    const Packing *packing;
    int layer;
    real *block;
    int64_t room;
    double *output;             /* [2F]: of one product */
    double *gate, *up, *addend; /* [F], [F], [2F] */
    real *hidden;               /* [3F]: gate, up, their product */
} Row;

/* ---- products ---- */

typedef struct {
    const real *in;
    double *out;
    bool transposed;
} Product;

/* out += rows of W times in; of a transposed W, out += in's elements times its rows. Term after
 * term in the same order. */
static void multiply(void *context, Range rows, int64_t cols, const real *data) {
    const Product *product = context;
    for (int64_t r = rows.begin; r < rows.end; r++, data += cols) {
        for (int64_t c = 0; c < cols; c++) {
            int64_t out = product->transposed ? c : r, in = product->transposed ? r : c;
            product->out[out] = fma((double)data[c], (double)product->in[in], product->out[out]);
        }
    }
}

static void take_vector(void *context, Range rows, int64_t cols, const real *data) {
    double *out = context;
    (void)rows;
    for (int64_t c = 0; c < cols; c++) out[c] = (double)data[c];
}

static int scan(const Row *row, int group, PackingSlot slot, bool bias, PackingVisit *visit,
                void *context) {
    return packing_scan(row->file, row->layer, group, slot, bias, row->block, row->room, visit,
                        context);
}

/* ---- the orders ---- */

/* Copies what one part of n channels has of both branches out of `from`; a branch that is NULL
 * isn't in it. Returns what follows in `from`. */
typedef const double *TakePart(int64_t n, const double *from, double *gate, double *up);

static const double *take(int64_t n, const double *from, double *branch) {
    if (!branch) return from;
    memcpy(branch, from, (size_t)n * sizeof *branch);
    return from + n;
}

static const double *take_gate_first(int64_t n, const double *from, double *gate, double *up) {
    return take(n, take(n, from, gate), up);
}

static const double *take_up_first(int64_t n, const double *from, double *gate, double *up) {
    return take(n, take(n, from, up), gate);
}

static const double *take_in_turn(int64_t n, const double *from, double *gate, double *up) {
    for (int64_t c = 0; c < n; c++) {
        if (gate) gate[c] = *from++;
        if (up) up[c] = *from++;
    }
    return from;
}

static TakePart *const take_part[] = {
    [PACKING_APART] = take_gate_first,
    [PACKING_GATE_FIRST] = take_gate_first,
    [PACKING_UP_FIRST] = take_up_first,
    [PACKING_IN_TURN] = take_in_turn,
};

/* Takes `from`, what a dataset of `group` gave, apart: the branches' channels of its part, or of
 * all parts. */
static void take_apart(const Row *row, int group, const double *from, double *gate, double *up) {
    const Packing *packing = row->packing;
    bool whole = packing->layout->cut == PACKING_WHOLE,
         ranks = packing->layout->cut == PACKING_RANKS;
    int first = ranks ? group : 0, end = ranks ? group + 1 : whole ? 1 : packing->parts;
    for (int part = first; part < end; part++) {
        Range channels = whole ? (Range){0, packing->d_ff} : packing_part(packing, part);
        from = take_part[packing->layout->order](range_size(channels), from,
                                                 gate ? gate + channels.begin : NULL,
                                                 up ? up + channels.begin : NULL);
    }
}

/* ---- one layer ---- */

/* Which branches a dataset holds. */
typedef struct {
    PackingSlot slot;
    bool gate, up;
} Holds;

/* The dataset's branches: + = its product with x, or its biases, both by channel. */
static int project(const Row *row, int group, Holds holds, bool bias, const real *x) {
    const Packing *packing = row->packing;
    bool gate = holds.gate && (!bias || packing->bias[PACKING_GATE]);
    bool up = holds.up && (!bias || packing->bias[PACKING_UP]);
    if (!gate && !up) return 0;
    for (int64_t i = 0; i < 2 * packing->d_ff; i++) row->output[i] = 0;
    for (int64_t i = 0; i < 2 * packing->d_ff; i++) row->addend[i] = 0;
    Product product = {x, row->output, packing->layout->transposed};
    int status = bias ? scan(row, group, holds.slot, true, take_vector, row->output)
                      : scan(row, group, holds.slot, false, multiply, &product);
    if (status) return status;
    double *added_gate = row->addend, *added_up = row->addend + packing->d_ff;
    take_apart(row, group, row->output, gate ? added_gate : NULL, up ? added_up : NULL);
    for (int64_t c = 0; c < packing->d_ff; c++) row->gate[c] += added_gate[c];
    for (int64_t c = 0; c < packing->d_ff; c++) row->up[c] += added_up[c];
    return 0;
}

static int project_all(const Row *row, const real *x) {
    const Packing *packing = row->packing;
    bool packed = packing->gated && packing->layout->order != PACKING_APART;
    const Holds holds[] = {{PACKING_SLOT_FIRST, packing->gated, packed},
                           {PACKING_SLOT_UP, false, !packed}};
    int status = 0;
    for (int group = 0; group < packing_groups(packing); group++)
        for (int bias = 0; bias < 2; bias++)
            for (int i = 0; !status && i < 2; i++) status = project(row, group, holds[i], bias, x);
    return status;
}

static void activate(const Row *row, const Ffn *ffn) {
    int64_t channels = row->packing->d_ff;
    real *gate = row->hidden, *up = gate + channels, *hidden = up + channels;
    for (int64_t c = 0; c < channels; c++) gate[c] = (real)row->gate[c];
    for (int64_t c = 0; c < channels; c++) up[c] = (real)row->up[c];
    FfnSaved saved = {0};
    saved.gate.shard[0] = tensor_view(gate, 1, channels);
    saved.up.shard[0] = tensor_view(up, 1, channels);
    saved.hidden.shard[0] = tensor_view(hidden, 1, channels);
    ffn->kind->activate(ffn, (Range){0, 1}, (Range){0, channels}, 0, &saved);
}

/* y = what the ranks' columns of down add up to, and its bias once. */
static int multiply_down(const Row *row, double *y) {
    const Packing *packing = row->packing;
    const real *hidden = row->hidden + 2 * packing->d_ff;
    int status = 0;
    for (int64_t i = 0; i < packing->d_model; i++) y[i] = 0;
    for (int group = 0; !status && group < packing_groups(packing); group++) {
        bool ranks = packing->layout->cut == PACKING_RANKS;
        int64_t first = ranks ? packing_part(packing, group).begin : 0;
        Product product = {hidden + first, y, packing->layout->transposed};
        status = scan(row, group, PACKING_SLOT_DOWN, false, multiply, &product);
    }
    if (status || !packing->bias[PACKING_DOWN]) return status;
    double *bias = memory_allocate((size_t)packing->d_model * sizeof *bias, "a bias");
    if (!bias) return WEFT_RUNTIME;
    status = scan(row, 0, PACKING_SLOT_DOWN, true, take_vector, bias);
    for (int64_t i = 0; !status && i < packing->d_model; i++) y[i] += bias[i];
    free(bias);
    return status;
}

/* Room for a block: a whole dataset, unless that is large; at least a row of any. */
static int64_t room_for(const Packing *packing) {
    int64_t channels = 2 * packing->d_ff, largest = channels * packing->d_model;
    int64_t widest = channels > packing->d_model ? channels : packing->d_model;
    int64_t room = largest < BLOCK_ELEMENTS ? largest : BLOCK_ELEMENTS;
    return room > widest ? room : widest;
}

static int output(void *context, int layer, const Ffn *ffn, const real *x, double *y) {
    const PackingFile *file = context;
    const Packing *packing = &file->packing;
    size_t channels = (size_t)packing->d_ff;
    Row row = {.file = file, .packing = packing, .layer = layer, .room = room_for(packing)};
    row.block = memory_allocate((size_t)row.room * sizeof(real), "a block of a weight");
    row.hidden = memory_allocate(3 * channels * sizeof(real), "the known row");
    row.output = memory_allocate(6 * channels * sizeof(double), "the known row");
    int status = row.block && row.hidden && row.output ? 0 : WEFT_RUNTIME;
    if (!status) {
        row.gate = row.output + 2 * channels;
        row.up = row.gate + channels;
        row.addend = row.up + channels;
        status = project_all(&row, x);
    }
    if (!status) {
        activate(&row, ffn);
        status = multiply_down(&row, y);
    }
    free(row.block);
    free(row.hidden);
    free(row.output);
    return status;
}

KnownRowPath known_row_file(PackingFile *file) {
    return (KnownRowPath){file->file.path, output, file};
}
