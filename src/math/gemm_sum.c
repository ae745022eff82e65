/* Sums of products up a tree.
 *
 * One side is packed by all threads, whole in k: B, as many of its columns as there is memory for,
 * or A where its rows are few. Then each thread takes pieces of the other side, packs them for
 * itself, and makes their part of C, chunk by chunk: the nodes of the tree that are not done yet
 * lie beside each other, micro-tile by micro-tile, so that an element is written to C once. Lines
 * of k that go through a micro-tile together are a block, of one long product or of several short
 * ones: what these make is added up while it is in the first cache level. */
#include "math/gemm_engine.h"

#include "base/memory.h"

#include <omp.h>
#include <string.h>

/* Of its side, what a thread packs at a time, lines and depth: it stays in its second cache level,
 * as does a chunk of so many columns. */
enum { OWN_LINES = 256, OWN_DEPTH = 3 * GEMM_BLOCK, CHUNK_COLS = 256 };

/* Most columns of B that are packed, and what there is memory for, a thread; fewest rows for which
 * B is read again; most of A that are few. */
enum { MOST_COLS = 1024, SHARED_SIZE = 1 << 23, LEAST_ROWS = 64 };
enum { FEW_ROWS = OWN_LINES - GEMM_MOST_ROWS };

enum { STEPS_MOST = GEMM_SUM_TERMS * SHARD_MAX };

/* A product, into the node at `level` below the root of what isn't done yet, or added to it; then
 * `folds` nodes are added to the one above each. */
typedef struct {
    const GemmTerm *term;
    int64_t from; /* of k, all products after one another */
    int level, folds;
    bool add;
} Step;

typedef struct {
    Step step[STEPS_MOST];
    int count, levels;
    int64_t k;
} Steps;

/* A place in k: line `at` of a step. */
typedef struct {
    int step;
    int64_t at;
} Cursor;

/* ---- the order of work ---- */

/* The products of leaf s. */
static void add_leaf(Steps *steps, const GemmSum *sum, int s, int level, bool add) {
    const GemmTerm *term = sum->term + (s - sum->leaves.begin) * sum->terms;
    for (int i = 0; i < sum->terms; i++, term++) {
        steps->step[steps->count++] = (Step){term, steps->k, level, 0, add || i > 0};
        steps->k += term->k;
    }
    if (level >= steps->levels) steps->levels = level + 1;
}

/* Whether the leaf's sum can be added to its left neighbour's in one piece, as the tree wants it.
 */
static bool is_one_piece(const GemmSum *sum, int s) {
    return sum->terms == 1 && sum->term[s - sum->leaves.begin].k <= GEMM_BLOCK;
}

/* Node [begin, end) of the tree. */
static void add_node(Steps *steps, const GemmSum *sum, int begin, int end, int level) {
    if (end - begin == 1) {
        add_leaf(steps, sum, begin, level, false);
        return;
    }
    int middle = tree_split(begin, end);
    add_node(steps, sum, begin, middle, level);
    if (end - middle == 1 && is_one_piece(sum, middle)) {
        add_leaf(steps, sum, middle, level, true);
        return;
    }
    add_node(steps, sum, middle, end, level + 1);
    steps->step[steps->count - 1].folds++;
}

static bool at_end(const Steps *steps, Cursor cursor) { return cursor.step == steps->count; }

/* The lines of the step that go together from the cursor on. */
static int64_t slice_size(const Steps *steps, Cursor cursor) {
    return size_least(steps->step[cursor.step].term->k - cursor.at, GEMM_BLOCK);
}

static Cursor after_slice(const Steps *steps, Cursor cursor) {
    cursor.at += slice_size(steps, cursor);
    if (cursor.at == steps->step[cursor.step].term->k) cursor = (Cursor){cursor.step + 1, 0};
    return cursor;
}

/* The end of the slices, at least one, that have together at most `most` lines. */
static Cursor after_lines(const Steps *steps, Cursor cursor, int64_t most) {
    int64_t lines = 0;
    do {
        lines += slice_size(steps, cursor);
        cursor = after_slice(steps, cursor);
    } while (!at_end(steps, cursor) && lines + slice_size(steps, cursor) <= most);
    return cursor;
}

static Cursor after_block(const Steps *steps, Cursor cursor) {
    return after_lines(steps, cursor, GEMM_BLOCK);
}

static bool before(Cursor x, Cursor y) {
    return x.step < y.step || (x.step == y.step && x.at < y.at);
}

static int64_t line_of(const Steps *steps, Cursor cursor) {
    return at_end(steps, cursor) ? steps->k : steps->step[cursor.step].from + cursor.at;
}

/* ---- memory ---- */

/* Panels [begin, begin + wide) of a side from line `first` of k on: slice after slice, of each
 * [wide][slice, width]. */
typedef struct {
    real *memory;
    int64_t first, begin, wide;
    bool rows; /* of A; else columns of B */
    int width;
} Packed;

typedef struct {
    GemmTeam *team;
    const GemmSum *sum;
    const Steps *steps;
    bool few;               /* rows: A is shared */
    int64_t pieces, across; /* of the side that isn't shared, and groups of the other's panels where
                               there are fewer than threads */
    Packed shared;
    real *own; /* this thread's: what it packs, then its nodes */
} Run;

static bool are_few(int64_t m, int64_t n) { return m <= FEW_ROWS && m <= n; }

static int width_of(const Run *run, bool rows) {
    return rows ? run->team->kernel->rows : run->team->kernel->cols;
}

static int64_t lines_of(const Run *run, bool rows) { return rows ? run->sum->m : run->sum->n; }

static int64_t panels_of(const Run *run, bool rows) {
    return size_parts(lines_of(run, rows), width_of(run, rows));
}

static int levels_of(int leaves) {
    int levels = 1;
    while (1 << (levels - 1) < leaves) levels++;
    return levels;
}

/* What a thread packs, and nodes of so many columns. */
static int64_t own_elements(int levels, int64_t cols) {
    return OWN_LINES * (OWN_DEPTH + levels * cols);
}

size_t gemm_sum_scratch(int64_t m, int64_t n, int64_t k, int leaves, int threads) {
    int64_t cols = CHUNK_COLS, lines = m + GEMM_MOST_ROWS, each = size_parts(k, threads);
    if (!are_few(m, n)) {
        cols = size_least(size_parts(n, GEMM_MOST_COLS) * GEMM_MOST_COLS, MOST_COLS);
        if (each * cols > SHARED_SIZE) cols = SHARED_SIZE / each / GEMM_MOST_COLS * GEMM_MOST_COLS;
        if (cols < GEMM_MOST_COLS) cols = GEMM_MOST_COLS;
        lines = cols;
    }
    int64_t own = own_elements(levels_of(leaves), cols);
    return memory_aligned((size_t)(own + each * lines) * sizeof(real)) + MEMORY_ALIGN;
}

/* Whether there is room for A whole in k. */
static bool rows_fit(const GemmTeam *team, const GemmSum *sum, const Steps *steps) {
    int64_t lines = size_parts(sum->m, team->kernel->rows) * team->kernel->rows;
    int64_t own = team->threads * own_elements(steps->levels, CHUNK_COLS);
    return own + steps->k * lines <= (int64_t)(team->bytes / sizeof(real));
}

/* Panels of B that there is room for. */
static int64_t panels_that_fit(const Run *run) {
    const GemmTeam *team = run->team;
    int64_t room = (int64_t)(team->bytes / sizeof(real)) / team->threads;
    int64_t each = run->steps->levels * OWN_LINES + size_parts(run->steps->k, team->threads);
    int64_t fit = (room - OWN_LINES * OWN_DEPTH) / (each * team->kernel->cols);
    return size_least(fit, MOST_COLS / team->kernel->cols);
}

/* The shared side's panels [begin, begin + wide). */
static void lay_out(Run *run, int64_t begin, int64_t wide) {
    const GemmTeam *team = run->team;
    int64_t cols = run->few ? CHUNK_COLS : wide * team->kernel->cols;
    int64_t own = own_elements(run->steps->levels, cols);
    int thread = team->threads > 1 ? omp_get_thread_num() : 0; /* of the team */
    run->own = team->memory + thread * own;
    run->shared = (Packed){.memory = team->memory + team->threads * own,
                           .begin = begin,
                           .wide = wide,
                           .rows = run->few,
                           .width = width_of(run, run->few)};
}

/* A slice of panel `index`. */
static real *packed_at(const Packed *packed, int64_t line, int64_t slice, int64_t index) {
    return packed->memory +
           ((line - packed->first) * packed->wide + (index - packed->begin) * slice) *
               packed->width;
}

/* ---- packing ---- */

/* Slices [from, end) of some of the panels. */
static void pack(const Run *run, const Packed *packed, Range panels, Cursor from, Cursor end) {
    const GemmKernel *kernel = run->team->kernel;
    const bool transposed =
        run->sum->form == GEMM_NT || (packed->rows && run->sum->form == GEMM_NN);
    int64_t first = panels.begin * packed->width;
    int64_t count = size_least(panels.end * packed->width, lines_of(run, packed->rows)) - first;
    for (Cursor at = from; before(at, end); at = after_slice(run->steps, at)) {
        const GemmTerm *term = run->steps->step[at.step].term;
        const real *x = packed->rows ? term->a : term->b;
        int64_t ld = packed->rows ? term->lda : term->ldb, size = slice_size(run->steps, at);
        real *out = packed_at(packed, line_of(run->steps, at), size, panels.begin);
        if (transposed)
            kernel->pack_rows(x + first * ld + at.at, ld, count, size, packed->width, out);
        else
            kernel->pack_cols(x + at.at * ld + first, ld, count, size, packed->width, out);
    }
}

/* Block by block, and some panels of each, by all threads. */
static void pack_shared(const Run *run, int64_t *base) {
    const Steps *steps = run->steps;
    const Packed *shared = &run->shared;
    int64_t groups = size_parts(shared->wide * shared->width, OWN_LINES);
    int64_t blocks = 0, block = 0, item;
    for (Cursor at = {0, 0}; !at_end(steps, at); at = after_block(steps, at)) blocks++;
    Cursor from = {0, 0};
    while ((item = gemm_team_take(run->team, base, blocks * groups)) >= 0) {
        for (; block < item / groups; block++) from = after_block(steps, from);
        Range group = shard_range(shared->wide, (int)groups, (int)(item % groups));
        pack(run, shared, (Range){shared->begin + group.begin, shared->begin + group.end}, from,
             after_block(steps, from));
    }
}

/* ---- a piece of C ---- */

/* What one thread makes at a time, in panels. */
typedef struct {
    Range rows, cols;
    Packed own; /* the rows', or with few rows the columns' */
    real *nodes;
} Piece;

/* Some of its columns, and the lines of k that are packed. */
typedef struct {
    Range cols;
    Cursor from, end;
} Chunk;

/* Node of micro-tile (x, y) at a level. */
static real *node_of(const Run *run, const Piece *piece, int level, int64_t x, int64_t y) {
    int64_t column = level * range_size(piece->cols) + y - piece->cols.begin;
    int64_t tile = column * range_size(piece->rows) + x - piece->rows.begin;
    return piece->nodes + tile * run->team->kernel->rows * run->team->kernel->cols;
}

static void fold(real *node, const real *below, int64_t size) {
#pragma omp simd
    for (int64_t i = 0; i < size; i++) node[i] += below[i];
}

static int rows_of(const Run *run, int64_t x) {
    return (int)size_least(run->sum->m - x * run->team->kernel->rows, run->team->kernel->rows);
}

/* While a tile is made, its part of the shared panel that comes next is on its way. */
static const real *ahead_of(const Run *run, const Piece *piece, int64_t slice, int64_t x, int64_t y,
                            const real *a, const real *b) {
    int64_t size = slice * run->shared.width;
    if (run->few) return a + size + size * (y - piece->cols.begin) / range_size(piece->cols);
    return b + size + size * (x - piece->rows.begin) / range_size(piece->rows);
}

/* The block [from, end) of k of one micro-tile. */
static void micro_tile(const Run *run, const Piece *piece, int64_t x, int64_t y, Cursor from,
                       Cursor end) {
    const GemmKernel *kernel = run->team->kernel;
    const Steps *steps = run->steps;
    const Packed *rows = run->few ? &run->shared : &piece->own;
    const Packed *cols = run->few ? &piece->own : &run->shared;
    for (Cursor at = from; before(at, end);) {
        const Step *step = &steps->step[at.step];
        int64_t size = slice_size(steps, at), line = line_of(steps, at);
        const real *a = packed_at(rows, line, size, x), *b = packed_at(cols, line, size, y);
        bool add = step->add || at.at > 0;
        if (size > 0 || !add)
            kernel->multiply(rows_of(run, x), size, a, b, 1, add,
                             node_of(run, piece, step->level, x, y), kernel->cols,
                             ahead_of(run, piece, size, x, y, a, b));
        at = after_slice(steps, at);
        int folds = at.at == 0 ? step->folds : 0; /* the product is done */
        for (int level = step->level; folds > 0; folds--, level--)
            fold(node_of(run, piece, level - 1, x, y), node_of(run, piece, level, x, y),
                 (int64_t)rows_of(run, x) * kernel->cols);
    }
}

/* The root of a micro-tile to C: at once, so that the stores, of lines that others may have had
 * last, go on behind the next micro-tile. */
static void write_tile(const Run *run, const Piece *piece, int64_t x, int64_t y) {
    const GemmSum *sum = run->sum;
    const GemmKernel *kernel = run->team->kernel;
    size_t bytes = (size_t)size_least(sum->n - y * kernel->cols, kernel->cols) * sizeof(real);
    const real *node = node_of(run, piece, 0, x, y);
    real *c = sum->c + x * kernel->rows * sum->ldc + y * kernel->cols;
    for (int i = 0; i < rows_of(run, x); i++)
        memcpy(c + i * sum->ldc, node + i * kernel->cols, bytes);
}

/* Elements of C, of so many panels. */
static Range elements_of(const Run *run, bool rows, Range panels) {
    int width = width_of(run, rows);
    return (Range){panels.begin * width, size_least(panels.end * width, lines_of(run, rows))};
}

static void multiply_chunk(const Run *run, const Piece *piece, const Chunk *chunk) {
    const Steps *steps = run->steps;
    for (Cursor at = chunk->from, next; before(at, chunk->end); at = next) {
        next = after_block(steps, at);
        if (before(chunk->end, next)) next = chunk->end;
        for (int64_t y = chunk->cols.begin; y < chunk->cols.end; y++)
            for (int64_t x = piece->rows.begin; x < piece->rows.end; x++) {
                micro_tile(run, piece, x, y, at, next);
                if (at_end(steps, next)) write_tile(run, piece, x, y);
            }
    }
    if (at_end(steps, chunk->end) && run->sum->after)
        run->sum->after(run->sum->context, elements_of(run, true, piece->rows),
                        elements_of(run, false, chunk->cols));
}

/* k by k as far as the piece is packed, chunk by chunk. */
static void multiply_piece(const Run *run, Range rows, Range cols) {
    const Steps *steps = run->steps;
    Range mine = run->few ? cols : rows;
    int parts = (int)size_parts(range_size(cols) * run->team->kernel->cols, CHUNK_COLS);
    Piece piece = {rows,
                   cols,
                   {run->own, 0, mine.begin, range_size(mine), !run->few, width_of(run, !run->few)},
                   run->own + OWN_LINES * OWN_DEPTH};
    Chunk chunk = {.end = {0, 0}};
    while (!at_end(steps, chunk.end)) {
        chunk.from = chunk.end;
        chunk.end = after_lines(steps, chunk.from, OWN_DEPTH);
        piece.own.first = line_of(steps, chunk.from);
        pack(run, &piece.own, mine, chunk.from, chunk.end);
        for (int i = 0; i < parts; i++) {
            Range part = shard_range(range_size(cols), parts, i);
            chunk.cols = (Range){cols.begin + part.begin, cols.begin + part.end};
            multiply_chunk(run, &piece, &chunk);
        }
    }
}

/* ---- the team ---- */

/* As much for each thread, if there is some for each. */
static void cut(Run *run) {
    const int width = width_of(run, !run->few);
    int64_t panels = panels_of(run, !run->few), threads = run->team->threads;
    int64_t worth = run->few ? panels : size_parts(panels * width, LEAST_ROWS);
    run->pieces = size_least(size_parts(panels, OWN_LINES / width * threads) * threads, worth);
    run->across = run->few ? 1 : size_least(size_parts(threads, run->pieces), run->shared.wide);
}

static void run_shared(Run *run, int64_t *base) {
    const Packed *shared = &run->shared;
    int64_t item;
    cut(run);
    pack_shared(run, base);
    while ((item = gemm_team_take(run->team, base, run->pieces * run->across)) >= 0) {
        Range piece =
            shard_range(panels_of(run, !run->few), (int)run->pieces, (int)(item / run->across));
        Range group = shard_range(shared->wide, (int)run->across, (int)(item % run->across));
        Range other = {shared->begin + group.begin, shared->begin + group.end};
        multiply_piece(run, run->few ? other : piece, run->few ? piece : other);
    }
}

static void run_sum(GemmTeam *team, const GemmSum *sum, const Steps *steps) {
    bool few = are_few(sum->m, sum->n) && rows_fit(team, sum, steps);
    Run run = {.team = team, .sum = sum, .steps = steps, .few = few};
    int64_t panels = panels_of(&run, run.few), base = 0;
    int rounds = run.few ? 1 : (int)size_parts(panels, panels_that_fit(&run));
    for (int i = 0; i < rounds; i++) {
        Range round = shard_range(panels, rounds, i);
        lay_out(&run, round.begin, range_size(round));
        run_shared(&run, &base);
    }
}

void gemm_sum_run(const GemmSum *sum, int threads, void *memory, size_t bytes) {
    if (sum->m == 0 || sum->n == 0) return;
    Steps steps = {.count = 0};
    add_node(&steps, sum, (int)sum->leaves.begin, (int)sum->leaves.end, 0);
    GemmTeam team = {gemm_kernel(), threads, 0, memory, bytes, NULL};
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
#pragma omp single
        team.threads = omp_get_num_threads();
        run_sum(&team, sum, &steps);
    }
}
