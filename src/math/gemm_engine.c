#include "math/gemm_engine.h"

#include "base/memory.h"

#include <math.h>
#include <omp.h>

#ifdef WEFT_REAL64
#define FMA fma
#else
#define FMA fmaf
#endif

/* Of one side, what a thread packs for itself at a time, lines and depth: it stays in the second
 * cache level, as does its chunk of C with so many rows or columns of the other side. */
enum { OWN_LINES = 256, OWN_DEPTH = 3 * GEMM_BLOCK, CHUNK_ROWS = 256, CHUNK_COLS = 512 };

/* Of the other side, which all threads read: depth at which no part of C is gone through often, and
 * what there is memory for, a thread. */
enum { SHARED_DEPTH = 4 * GEMM_BLOCK, SHARED_SIZE = 2048 * SHARED_DEPTH };

/* Rows or columns of C that a micro-tile has. */
typedef struct {
    const GemmCall *call;
    int64_t at;
    int width;
} Panel;

/* The rows or the columns of a group, in panels. */
typedef struct {
    const GemmGroup *group;
    bool rows;
    int width;           /* of a panel */
    int64_t panels;      /* of all calls */
    Panel *panel;        /* of what is packed: [end - begin] */
    real *packed;        /* [end - begin][depth, width] */
    int64_t begin, end;  /* panels */
    int64_t from, depth; /* k */
} Side;

static int64_t size_of(const Side *side, const GemmCall *call) {
    return side->rows ? call->m : call->n;
}

/* Calls follow one another along this side; along the other they have the same. */
static int calls_of(const Side *side) {
    return side->rows == side->group->down ? side->group->count : 1;
}

static Side side_of(const GemmGroup *group, bool rows, const GemmKernel *kernel) {
    Side side = {.group = group, .rows = rows, .width = rows ? kernel->rows : kernel->cols};
    for (int i = 0; i < calls_of(&side); i++)
        side.panels += size_parts(size_of(&side, &group->call[i]), side.width);
    return side;
}

static Panel panel_of(const Side *side, const GemmCall *call, int64_t index) {
    int64_t at = index * side->width;
    return (Panel){call, at, (int)size_least(size_of(side, call) - at, side->width)};
}

/* Panel `index` of the side. */
static Panel find_panel(const Side *side, int64_t index) {
    const GemmCall *call = side->group->call;
    bool pairs = side->group->pairs && !side->rows;
    if (calls_of(side) == 1) return panel_of(side, call, index);
    for (;; call += pairs ? 2 : 1) {
        int64_t here = size_parts(size_of(side, call), side->width);
        if (pairs && index < 2 * here) return panel_of(side, call + index % 2, index / 2);
        if (!pairs && index < here) return panel_of(side, call, index);
        index -= pairs ? 2 * here : here;
    }
}

/* ---- packing ---- */

/* `count` elements of one call from the first panel on. */
static void pack_run(const GemmKernel *kernel, const Side *side, const Panel *first, int64_t count,
                     real *out) {
    const GemmCall *call = first->call;
    bool transposed = side->rows ? call->form != GEMM_TN : call->form == GEMM_NT;
    const real *x = side->rows ? call->a : call->b;
    int64_t ldx = side->rows ? call->lda : call->ldb, p = side->from;
    if (transposed)
        kernel->pack_rows(x + first->at * ldx + p, ldx, count, side->depth, side->width, out);
    else
        kernel->pack_cols(x + p * ldx + first->at, ldx, count, side->depth, side->width, out);
}

/* Panels [begin, end) of those to be packed. */
static void pack(const GemmKernel *kernel, const Side *side, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
        Panel *first = &side->panel[i];
        int64_t run = i, count = 0;
        do {
            side->panel[run] = find_panel(side, side->begin + run);
            if (side->panel[run].call != first->call || side->panel[run].at != first->at + count)
                break;
            count += side->panel[run++].width;
        } while (run < end);
        pack_run(kernel, side, first, count, side->packed + i * side->depth * side->width);
        i = run;
    }
}

/* ---- chunks of C ---- */

static void micro_tile(const GemmKernel *kernel, const GemmCall *call, const Panel *rows,
                       const Panel *cols, int64_t k, bool add, const real *a, const real *b,
                       const real *ahead) {
    real *c = call->c + rows->at * call->ldc + cols->at;
    if (cols->width == kernel->cols) {
        kernel->multiply(rows->width, k, a, b, call->alpha, add, c, call->ldc, ahead);
        return;
    }
    real sum[GEMM_MOST_ROWS * GEMM_MOST_COLS];
    kernel->multiply(rows->width, k, a, b, 1, false, sum, kernel->cols, ahead);
    for (int i = 0; i < rows->width; i++)
        for (int j = 0; j < cols->width; j++) {
            real *to = c + i * call->ldc + j, value = sum[i * kernel->cols + j];
            *to = add ? FMA(call->alpha, value, *to) : call->alpha * value;
        }
}

/* Where block `from` of k lies in panel i. */
static const real *packed_at(const Side *side, int64_t i, int64_t from) {
    return side->packed + (i * side->depth + from - side->from) * side->width;
}

/* A chunk of C: what is multiplied, and what of the shared side comes after it. */
typedef struct {
    const Side *rows, *cols, *shared;
    Range down, across, next;
    int64_t from, depth; /* k */
} Chunk;

/* The shared side comes from far: while a tile is made, its part of the block that is needed next
 * is on its way. */
static const real *ahead_of(const Chunk *chunk, int64_t x, int64_t y, int64_t p) {
    const Side *shared = chunk->shared;
    int64_t i = x - chunk->down.begin, j = y - chunk->across.begin;
    int64_t down = range_size(chunk->down), across = range_size(chunk->across);
    int64_t size = (int64_t)GEMM_BLOCK * shared->width;
    bool last = p + GEMM_BLOCK >= chunk->from + chunk->depth;
    Range here = shared->rows ? chunk->down : chunk->across, next = last ? chunk->next : here;
    int64_t from = last ? chunk->from : p + GEMM_BLOCK;
    if (shared->rows) return packed_at(shared, next.begin + i, from) + size * j / across;
    if (j + 1 < across) return packed_at(shared, y + 1, p) + size * i / down;
    return packed_at(shared, next.begin, from) + size * i / down;
}

static void multiply_chunk(const GemmTeam *team, const Chunk *chunk) {
    const Side *rows = chunk->rows, *cols = chunk->cols;
    int64_t end = chunk->from + chunk->depth;
    for (int64_t p = chunk->from; p < end; p += GEMM_BLOCK)
        for (int64_t y = chunk->across.begin; y < chunk->across.end; y++)
            for (int64_t x = chunk->down.begin; x < chunk->down.end; x++) {
                const Panel *row = &rows->panel[x], *col = &cols->panel[y];
                const GemmCall *call = rows->group->down ? row->call : col->call;
                micro_tile(team->kernel, call, row, col, size_least(end - p, GEMM_BLOCK),
                           call->add || p > 0, packed_at(rows, x, p), packed_at(cols, y, p),
                           ahead_of(chunk, x, y, p));
            }
}

/* Tells of what is done, one call's part of the chunk after another. */
static void tell(const GemmTeam *team, const Chunk *chunk) {
    const GemmList *list = team->list;
    const Side *rows = chunk->rows, *cols = chunk->cols, *side = rows->group->down ? rows : cols;
    Range along = side->rows ? chunk->down : chunk->across;
    int step = side->group->pairs ? 2 : 1;
    const Panel *row = &rows->panel[chunk->down.begin], *col = &cols->panel[chunk->across.begin];
    const Panel *last_row = &rows->panel[chunk->down.end - 1];
    const Panel *last_col = &cols->panel[chunk->across.end - step];
    for (int64_t i = along.begin; i < along.end;) {
        const Panel *first = &side->panel[i], *last = first;
        while ((i += step) < along.end && side->panel[i].call == first->call)
            last = &side->panel[i];
        if (side->rows) row = first, last_row = last;
        if (!side->rows) col = first, last_col = last;
        list->after(list->context, (int)(first->call - list->call),
                    (Range){row->at, last_row->at + last_row->width},
                    (Range){col->at, last_col->at + last_col->width});
    }
}

/* ---- the team ---- */

int64_t gemm_team_take(GemmTeam *team, int64_t *base, int64_t count) {
    int64_t piece = atomic_fetch_add_explicit(&team->taken, 1, memory_order_relaxed) - *base;
    if (piece < count) return piece;
    *base += count + team->threads; /* each thread is told so once */
    if (team->threads > 1) {
#pragma omp barrier
    }
    return -1;
}

/* Panels that go together. */
static int step_of(const Side *side) { return side->group->pairs && !side->rows ? 2 : 1; }

/* In how many pieces all threads share `count` panels: as many for each, and small enough to be
 * packed by one. */
static int64_t count_pieces(const GemmTeam *team, const Side *side, int64_t count) {
    int64_t most = OWN_LINES / (side->width * step_of(side)), groups = count / step_of(side);
    return size_least(groups, size_parts(groups, most * team->threads) * team->threads);
}

static Range find_piece(const Side *side, int64_t count, int64_t pieces, int64_t i) {
    int step = step_of(side);
    Range piece = shard_range(count / step, (int)pieces, (int)i);
    return (Range){piece.begin * step, piece.end * step};
}

/* Of what is packed of the shared side, part i of `parts`; none beyond. */
static Range shared_part(const Side *shared, int64_t parts, int64_t i) {
    if (i == parts) return (Range){0, 0};
    return find_piece(shared, shared->end - shared->begin, parts, i);
}

/* A piece of `own`, packed by this thread, against all that is packed of `shared`. */
static void multiply_piece(const GemmTeam *team, Side *own, const Side *shared) {
    const int64_t most = shared->rows ? CHUNK_ROWS : CHUNK_COLS, k = own->group->call->k;
    int64_t parts = size_parts((shared->end - shared->begin) * shared->width, most);
    int64_t end = shared->from + shared->depth;
    Chunk chunk = {own->rows ? own : shared, own->rows ? shared : own, .shared = shared};
    Range mine = {0, own->end - own->begin};
    for (own->from = shared->from; own->from < end; own->from += OWN_DEPTH) {
        own->depth = size_least(end - own->from, OWN_DEPTH);
        pack(team->kernel, own, 0, mine.end);
        chunk.from = own->from;
        chunk.depth = own->depth;
        for (int64_t i = 0; i < parts; i++) {
            Range part = shared_part(shared, parts, i);
            chunk.down = own->rows ? mine : part;
            chunk.across = own->rows ? part : mine;
            chunk.next = shared_part(shared, parts, i + 1);
            multiply_chunk(team, &chunk);
            if (own->from + own->depth == k && team->list && team->list->after) tell(team, &chunk);
        }
    }
}

/* A thread's own memory: packed lines, then their panels. */
static int64_t own_bytes(void) {
    return (int64_t)memory_aligned(OWN_LINES * OWN_DEPTH * sizeof(real) +
                                   OWN_LINES * sizeof(Panel));
}

static void lay_out(const GemmTeam *team, Side *own, Side *shared, int64_t panels, int64_t depth) {
    int thread = team->threads > 1 ? omp_get_thread_num() : 0; /* of the team */
    char *at = (char *)team->memory + thread * own_bytes();
    own->packed = (real *)(void *)at;
    own->panel = (Panel *)(void *)(own->packed + OWN_LINES * OWN_DEPTH);
    at = (char *)team->memory + team->threads * own_bytes();
    shared->packed = (real *)(void *)at;
    at += memory_aligned((size_t)(panels * shared->width * depth) * sizeof(real));
    shared->panel = (Panel *)(void *)at;
}

/* How much of the shared side is packed at a time: all of it if memory has room for that at
 * SHARED_DEPTH, deeper where there is more. */
static void share_memory(const GemmTeam *team, const Side *shared, int64_t k, int64_t *panels,
                         int64_t *depth) {
    int64_t room = (int64_t)team->bytes - team->threads * own_bytes() - MEMORY_ALIGN;
    int64_t lines = shared->panels * shared->width, panel = (int64_t)sizeof(Panel);
    int64_t most = (room / lines - panel) / (int64_t)sizeof(real) / GEMM_BLOCK * GEMM_BLOCK;
    *depth = size_least(k, most > SHARED_DEPTH ? most : SHARED_DEPTH);
    int64_t fit = room / ((*depth * (int64_t)sizeof(real) + panel) * shared->width);
    *panels = size_least(shared->panels, fit);
    if (step_of(shared) == 2) *panels -= *panels % 2;
}

/* Packs the shared side, by all threads, then goes through the other. */
static void run_packed(GemmTeam *team, int64_t *base, Side *own, Side *shared) {
    int64_t count = shared->end - shared->begin, pieces = count_pieces(team, shared, count), i;
    while ((i = gemm_team_take(team, base, pieces)) >= 0) {
        Range piece = find_piece(shared, count, pieces, i);
        pack(team->kernel, shared, piece.begin, piece.end);
    }
    pieces = count_pieces(team, own, own->panels);
    while ((i = gemm_team_take(team, base, pieces)) >= 0) {
        Range piece = find_piece(own, own->panels, pieces, i);
        own->begin = piece.begin;
        own->end = piece.end;
        multiply_piece(team, own, shared);
    }
}

void gemm_group_run(GemmTeam *team, const GemmGroup *group, int64_t *base) {
    Side rows = side_of(group, true, team->kernel), cols = side_of(group, false, team->kernel);
    bool few_rows = 4 * rows.panels * rows.width < cols.panels * cols.width;
    Side *shared = few_rows ? &rows : &cols, *own = few_rows ? &cols : &rows;
    int64_t k = group->call->k, panels, depth;
    share_memory(team, shared, k, &panels, &depth);
    lay_out(team, own, shared, panels, depth);
    for (shared->begin = 0; shared->begin < shared->panels; shared->begin = shared->end) {
        shared->end = size_least(shared->begin + panels, shared->panels);
        for (shared->from = 0; shared->from < k; shared->from += depth) {
            shared->depth = size_least(k - shared->from, depth);
            run_packed(team, base, own, shared);
        }
    }
}

size_t gemm_scratch(void) {
    return (size_t)own_bytes() +
           memory_aligned(SHARED_SIZE * sizeof(real) + SHARED_SIZE / SHARED_DEPTH * sizeof(Panel)) +
           2 * MEMORY_ALIGN;
}
