#include "math/gemm_engine.h"

#include "base/memory.h"

#include <math.h>
#include <omp.h>

#ifdef WEFT_REAL64
#define FMA fma
#else
#define FMA fmaf
#endif

/* Of C, a chunk; what is packed at a time by one thread; of k, what is packed at once. */
enum { CHUNK_ROWS = 240, CHUNK_COLS = 768, BATCH = 256, DEPTH = 2 * GEMM_BLOCK };

/* Of all that is packed: rows and columns together. */
enum { SCRATCH_LINES = 4096 };

enum { CACHE_LINE = 64 / sizeof(real) };

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
    int width;      /* of a panel */
    int64_t panels; /* of all calls */
    Panel *panel;   /* of what is packed: [end - begin] */
    real *packed;   /* [end - begin][depth, width] */
    int64_t begin, end;
} Side;

static int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }
static int64_t parts_of(int64_t size, int64_t part) { return (size + part - 1) / part; }

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
        side.panels += parts_of(size_of(&side, &group->call[i]), side.width);
    return side;
}

static Panel panel_of(const Side *side, const GemmCall *call, int64_t index) {
    int64_t at = index * side->width;
    return (Panel){call, at, (int)least(size_of(side, call) - at, side->width)};
}

/* Panel `index` of the side. */
static Panel find_panel(const Side *side, int64_t index) {
    const GemmCall *call = side->group->call;
    bool pairs = side->group->pairs && !side->rows;
    if (calls_of(side) == 1) return panel_of(side, call, index);
    for (;; call += pairs ? 2 : 1) {
        int64_t here = parts_of(size_of(side, call), side->width);
        if (pairs && index < 2 * here) return panel_of(side, call + index % 2, index / 2);
        if (!pairs && index < here) return panel_of(side, call, index);
        index -= pairs ? 2 * here : here;
    }
}

/* ---- packing ---- */

/* `count` elements of one call from the first panel on. */
static void pack_run(const GemmKernel *kernel, const Side *side, const Panel *first, int64_t count,
                     int64_t p, int64_t depth, real *out) {
    const GemmCall *call = first->call;
    bool transposed = side->rows ? call->form != GEMM_TN : call->form == GEMM_NT;
    const real *x = side->rows ? call->a : call->b;
    int64_t ldx = side->rows ? call->lda : call->ldb;
    if (transposed)
        kernel->pack_rows(x + first->at * ldx + p, ldx, count, depth, side->width, out);
    else
        kernel->pack_cols(x + p * ldx + first->at, ldx, count, depth, side->width, out);
}

/* Panels [begin, end) of those to be packed, from k = p on. */
static void pack(const GemmKernel *kernel, const Side *side, int64_t begin, int64_t end, int64_t p,
                 int64_t depth) {
    for (int64_t i = begin; i < end;) {
        Panel *first = &side->panel[i];
        int64_t run = i, count = 0;
        do {
            side->panel[run] = find_panel(side, side->begin + run);
            if (side->panel[run].call != first->call || side->panel[run].at != first->at + count)
                break;
            count += side->panel[run++].width;
        } while (run < end);
        pack_run(kernel, side, first, count, p, depth, side->packed + i * depth * side->width);
        i = run;
    }
}

/* ---- chunks of C ---- */

static void micro_tile(const GemmKernel *kernel, const GemmCall *call, const Panel *rows,
                       const Panel *cols, int64_t k, bool add, const real *a, const real *b) {
    real *c = call->c + rows->at * call->ldc + cols->at;
    for (int i = 0; i < rows->width; i++)
        for (int j = 0; j < cols->width; j += CACHE_LINE)
            __builtin_prefetch(c + i * call->ldc + j, 1, 2);
    if (cols->width == kernel->cols) {
        kernel->multiply(rows->width, k, a, b, call->alpha, add, c, call->ldc);
        return;
    }
    real sum[GEMM_MOST_ROWS * GEMM_MOST_COLS];
    kernel->multiply(rows->width, k, a, b, 1, false, sum, kernel->cols);
    for (int i = 0; i < rows->width; i++)
        for (int j = 0; j < cols->width; j++) {
            real *to = c + i * call->ldc + j, value = sum[i * kernel->cols + j];
            *to = add ? FMA(call->alpha, value, *to) : call->alpha * value;
        }
}

/* k from p on, `depth` of it. */
static void multiply_chunk(const GemmTeam *team, const Side *rows, const Side *cols, Range down,
                           Range across, int64_t p, int64_t depth) {
    for (int64_t begin = 0; begin < depth; begin += GEMM_BLOCK) {
        int64_t k = least(depth - begin, GEMM_BLOCK);
        for (int64_t y = across.begin; y < across.end; y++)
            for (int64_t x = down.begin; x < down.end; x++) {
                const Panel *row = &rows->panel[x], *col = &cols->panel[y];
                const GemmCall *call = rows->group->down ? row->call : col->call;
                micro_tile(team->kernel, call, row, col, k, call->add || p + begin > 0,
                           rows->packed + (x * depth + begin) * rows->width,
                           cols->packed + (y * depth + begin) * cols->width);
            }
    }
}

/* Tells of what is done, one call's part of the chunk after another. */
static void tell(const GemmTeam *team, const Side *rows, const Side *cols, Range down,
                 Range across) {
    const GemmList *list = team->list;
    const Side *side = rows->group->down ? rows : cols;
    Range along = rows->group->down ? down : across;
    int step = side->group->pairs ? 2 : 1;
    const Panel *row = &rows->panel[down.begin], *col = &cols->panel[across.begin];
    const Panel *last_row = &rows->panel[down.end - 1];
    const Panel *last_col = &cols->panel[across.end - step];
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

/* The next of `count` pieces, or -1; all threads meet before the next round. */
static int64_t take(GemmTeam *team, int64_t *base, int64_t count) {
    int64_t piece = atomic_fetch_add_explicit(&team->taken, 1, memory_order_relaxed) - *base;
    if (piece < count) return piece;
    *base += count + team->threads; /* each thread is told so once */
    if (team->threads > 1) {
#pragma omp barrier
    }
    return -1;
}

static int64_t batches(const Side *side) {
    return parts_of(side->end - side->begin, BATCH / side->width);
}

static void pack_batch(const GemmTeam *team, const Side *side, int64_t i, int64_t p,
                       int64_t depth) {
    int64_t size = BATCH / side->width;
    pack(team->kernel, side, i * size, least((i + 1) * size, side->end - side->begin), p, depth);
}

/* How many chunks down and across: enough for all threads to have several. */
static void cut(const GemmTeam *team, const Side *rows, const Side *cols, int64_t *down,
                int64_t *across) {
    enum { CHUNKS_A_THREAD = 6 };
    int64_t high = rows->end - rows->begin;
    int64_t wide = (cols->end - cols->begin) / (rows->group->pairs ? 2 : 1);
    *down = parts_of(high * rows->width, CHUNK_ROWS);
    *across = parts_of((cols->end - cols->begin) * cols->width, CHUNK_COLS);
    if (team->threads == 1) return;
    while (*down * *across < CHUNKS_A_THREAD * team->threads && *down < high) ++*down;
    while (*down * *across < CHUNKS_A_THREAD * team->threads && *across < wide) ++*across;
}

/* All chunks of what is packed. */
static void multiply_packed(GemmTeam *team, int64_t *base, const Side *rows, const Side *cols,
                            int64_t p, int64_t depth) {
    int64_t down, across, i;
    int step = rows->group->pairs ? 2 : 1;
    bool done = p + depth == rows->group->call->k && team->list && team->list->after;
    cut(team, rows, cols, &down, &across);
    while ((i = take(team, base, down * across)) >= 0) {
        Range y = shard_range((cols->end - cols->begin) / step, across, i % across);
        Range high = shard_range(rows->end - rows->begin, down, i / across);
        Range wide = {y.begin * step, y.end * step};
        multiply_chunk(team, rows, cols, high, wide, p, depth);
        if (done) tell(team, rows, cols, high, wide);
    }
}

/* Panels of rows and of columns that fit into memory at once: all of one side if that leaves as
 * much for the other. */
static void share_memory(const GemmTeam *team, const Side *rows, const Side *cols, int64_t depth,
                         int64_t *high, int64_t *wide) {
    int64_t line = depth * (int64_t)sizeof(real) + (int64_t)sizeof(Panel);
    int64_t lines = ((int64_t)team->bytes - 2 * MEMORY_ALIGN) / line;
    int64_t m = rows->panels * rows->width, n = cols->panels * cols->width;
    int64_t most = m + n <= lines ? m : m <= lines / 2 ? m : n <= lines / 2 ? lines - n : lines / 2;
    *high = least(rows->panels, most / rows->width);
    *wide = least(cols->panels, (lines - *high * rows->width) / cols->width);
    if (rows->group->pairs) *wide -= *wide % 2;
}

static void lay_out(const GemmTeam *team, Side *rows, Side *cols, int64_t high, int64_t wide,
                    int64_t depth) {
    char *at = (char *)team->memory;
    cols->packed = (real *)(void *)at;
    at += wide * cols->width * depth * (int64_t)sizeof(real);
    rows->packed = (real *)(void *)at;
    at += memory_aligned((size_t)(high * rows->width * depth) * sizeof(real));
    rows->panel = (Panel *)(void *)at;
    cols->panel = rows->panel + high;
}

void gemm_group_run(GemmTeam *team, const GemmGroup *group, int64_t *base) {
    Side rows = side_of(group, true, team->kernel), cols = side_of(group, false, team->kernel);
    int64_t k = group->call->k, most = least(k, DEPTH), high, wide, i;
    share_memory(team, &rows, &cols, most, &high, &wide);
    lay_out(team, &rows, &cols, high, wide, most);
    for (cols.begin = 0; cols.begin < cols.panels; cols.begin = cols.end) {
        cols.end = least(cols.begin + wide, cols.panels);
        for (int64_t p = 0; p < k; p += most) {
            int64_t depth = least(k - p, most);
            for (rows.begin = 0; rows.begin < rows.panels; rows.begin = rows.end) {
                rows.end = least(rows.begin + high, rows.panels);
                int64_t right = rows.begin == 0 ? batches(&cols) : 0;
                while ((i = take(team, base, right + batches(&rows))) >= 0) {
                    bool is_right = i < right;
                    pack_batch(team, is_right ? &cols : &rows, is_right ? i : i - right, p, depth);
                }
                multiply_packed(team, base, &rows, &cols, p, depth);
            }
        }
    }
}

size_t gemm_scratch(void) {
    return memory_aligned(SCRATCH_LINES * (DEPTH * sizeof(real) + sizeof(Panel))) +
           2 * MEMORY_ALIGN;
}
