/* Sums of products up a tree: piece by piece of C's rows, all of its columns (or as many as there
 * is memory for) at once.
 *
 * B is packed by all threads, whole in k. Then each thread takes pieces of A's rows, packs them for
 * itself, and makes their part of C, chunk by chunk: the nodes of the tree that are not done yet
 * lie beside each other, micro-tile by micro-tile, so that an element is written to C once. Lines
 * of k that go through a micro-tile together are a block, of one long product or of several short
 * ones: what these make is added up while it is in the first cache level. */
#include "math/gemm_engine.h"

#include "base/memory.h"

#include <omp.h>
#include <string.h>

/* Lines of A that a thread packs at a time, and their depth: they stay in its second cache level,
 * as does a chunk of so many columns. At most so many columns of B; rows worth packing B's. */
enum { OWN_LINES = 256, OWN_DEPTH = 3 * GEMM_BLOCK, CHUNK_COLS = 256 };
enum { MOST_COLS = 1024, LEAST_ROWS = 64 };

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

static int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }
static int64_t parts_of(int64_t size, int64_t part) { return (size + part - 1) / part; }

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
    return least(steps->step[cursor.step].term->k - cursor.at, GEMM_BLOCK);
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

/* What a thread packs of A, and its nodes that aren't done. */
typedef struct {
    real *packed, *nodes;
} Own;

typedef struct {
    GemmTeam *team;
    const GemmSum *sum;
    const Steps *steps;
    int64_t panels, pieces; /* of rows; pieces of which each is one thread's */
    int64_t across;         /* groups of columns, where there are fewer pieces than threads */
    Range cols;             /* that are packed */
    int64_t wide;           /* in panels */
    real *shared;           /* slice after slice of k: [wide][slice, width] */
    Own own;
} Run;

static int64_t own_elements(int levels, int64_t cols) {
    return OWN_LINES * (OWN_DEPTH + levels * cols);
}

static int levels_of(int leaves) {
    int levels = 1;
    while (1 << (levels - 1) < leaves) levels++;
    return levels;
}

size_t gemm_sum_scratch(int64_t n, int64_t k, int leaves, int threads) {
    int64_t cols = least(parts_of(n, GEMM_MOST_COLS) * GEMM_MOST_COLS, MOST_COLS);
    int64_t own = own_elements(levels_of(leaves), cols), shared = parts_of(k, threads) * cols;
    return memory_aligned((size_t)(own + shared) * sizeof(real)) + MEMORY_ALIGN;
}

/* Panels of B that there is room for. */
static int64_t share_memory(Run *run) {
    const GemmTeam *team = run->team;
    const int width = team->kernel->cols, levels = run->steps->levels;
    int64_t room = (int64_t)(team->bytes / sizeof(real)) / team->threads;
    int64_t each = levels * OWN_LINES + parts_of(run->steps->k, team->threads);
    int64_t fit = (room - OWN_LINES * OWN_DEPTH) / (each * width);
    return least(fit, MOST_COLS / width);
}

static void lay_out(Run *run) {
    const GemmTeam *team = run->team;
    int64_t own = own_elements(run->steps->levels, run->wide * team->kernel->cols);
    int thread = team->threads > 1 ? omp_get_thread_num() : 0; /* of the team */
    run->own.packed = team->memory + thread * own;
    run->own.nodes = run->own.packed + OWN_LINES * OWN_DEPTH;
    run->shared = team->memory + team->threads * own;
}

/* ---- packing ---- */

static void pack_rows(const Run *run, Range rows, Cursor from, Cursor end) {
    const GemmKernel *kernel = run->team->kernel;
    const int64_t lines = parts_of(range_size(rows), kernel->rows) * kernel->rows;
    real *out = run->own.packed;
    for (Cursor at = from; before(at, end); at = after_slice(run->steps, at)) {
        const GemmTerm *term = run->steps->step[at.step].term;
        int64_t size = slice_size(run->steps, at);
        if (run->sum->form == GEMM_TN)
            kernel->pack_cols(term->a + at.at * term->lda + rows.begin, term->lda, range_size(rows),
                              size, kernel->rows, out);
        else
            kernel->pack_rows(term->a + rows.begin * term->lda + at.at, term->lda, range_size(rows),
                              size, kernel->rows, out);
        out += lines * size;
    }
}

/* The slices of one block, panels [panels) of them. */
static void pack_block(const Run *run, Cursor from, Cursor end, Range panels) {
    const GemmKernel *kernel = run->team->kernel;
    const int width = kernel->cols;
    int64_t first = run->cols.begin + panels.begin * width;
    int64_t count = least(range_size(panels) * width, run->cols.end - first);
    for (Cursor at = from; before(at, end); at = after_slice(run->steps, at)) {
        const GemmTerm *term = run->steps->step[at.step].term;
        int64_t size = slice_size(run->steps, at);
        real *out =
            run->shared + line_of(run->steps, at) * run->wide * width + panels.begin * size * width;
        if (run->sum->form == GEMM_NT)
            kernel->pack_rows(term->b + first * term->ldb + at.at, term->ldb, count, size, width,
                              out);
        else
            kernel->pack_cols(term->b + at.at * term->ldb + first, term->ldb, count, size, width,
                              out);
    }
}

static void pack_shared(const Run *run, int64_t *base) {
    const Steps *steps = run->steps;
    int64_t groups = parts_of(run->wide, CHUNK_COLS / run->team->kernel->cols), blocks = 0;
    for (Cursor at = {0, 0}; !at_end(steps, at); at = after_block(steps, at)) blocks++;
    Cursor from = {0, 0};
    int64_t block = 0, item;
    while ((item = gemm_team_take(run->team, base, blocks * groups)) >= 0) {
        for (; block < item / groups; block++) from = after_block(steps, from);
        pack_block(run, from, after_block(steps, from),
                   shard_range(run->wide, (int)groups, (int)(item % groups)));
    }
}

/* ---- a piece of C ---- */

/* Rows that one thread makes, columns that it makes at a time (both in panels too), and lines of k
 * that are packed of the rows. */
typedef struct {
    Range rows, cols, panels;
    int64_t high;
    Cursor from, end;
} Chunk;

static int64_t tile_size(const Run *run) {
    return (int64_t)run->team->kernel->rows * run->team->kernel->cols;
}

/* Node of micro-tile (x, y) at a level. */
static real *node_of(const Run *run, const Chunk *chunk, int level, int64_t x, int64_t y) {
    return run->own.nodes + ((level * run->wide + y) * chunk->high + x) * tile_size(run);
}

static void fold(real *node, const real *below, int64_t size) {
#pragma omp simd
    for (int64_t i = 0; i < size; i++) node[i] += below[i];
}

/* The block [from, end) of k of one micro-tile. */
static void micro_tile(const Run *run, const Chunk *chunk, int64_t x, int64_t y, Cursor from,
                       Cursor end) {
    const GemmKernel *kernel = run->team->kernel;
    const Steps *steps = run->steps;
    int high = (int)least(range_size(chunk->rows) - x * kernel->rows, kernel->rows);
    int64_t packed = line_of(steps, chunk->from);
    for (Cursor at = from; before(at, end);) {
        const Step *step = &steps->step[at.step];
        int64_t size = slice_size(steps, at), line = step->from + at.at;
        const real *a = run->own.packed + (line - packed) * chunk->high * kernel->rows +
                        x * size * kernel->rows;
        const real *b = run->shared + (line * run->wide + y * size) * kernel->cols;
        real *node = node_of(run, chunk, step->level, x, y);
        bool add = step->add || at.at > 0;
        /* While a tile is made, its part of the next panel is on its way. */
        const real *ahead = b + size * kernel->cols;
        if (size > 0 || !add)
            kernel->multiply(high, size, a, b, 1, add, node, kernel->cols,
                             ahead + size * kernel->cols * x / chunk->high);
        at = after_slice(steps, at);
        int folds = at.at == 0 ? step->folds : 0; /* the product is done */
        for (int level = step->level; folds > 0; folds--, level--)
            fold(node_of(run, chunk, level - 1, x, y), node_of(run, chunk, level, x, y),
                 (int64_t)high * kernel->cols);
    }
}

/* The root of a micro-tile to C: at once, so that the stores, of lines that others may have had
 * last, go on behind the next micro-tile. */
static void write_tile(const Run *run, const Chunk *chunk, int64_t x, int64_t y) {
    const GemmSum *sum = run->sum;
    const int width = run->team->kernel->cols, high = run->team->kernel->rows;
    int64_t rows = least(range_size(chunk->rows) - x * high, high);
    int64_t col = run->cols.begin + y * width;
    size_t bytes = (size_t)least(run->cols.end - col, width) * sizeof(real);
    const real *node = node_of(run, chunk, 0, x, y);
    real *c = sum->c + (chunk->rows.begin + x * high) * sum->ldc + col;
    for (int64_t i = 0; i < rows; i++) memcpy(c + i * sum->ldc, node + i * width, bytes);
}

static void multiply_chunk(const Run *run, const Chunk *chunk) {
    const Steps *steps = run->steps;
    for (Cursor at = chunk->from, next; before(at, chunk->end); at = next) {
        next = after_block(steps, at);
        if (before(chunk->end, next)) next = chunk->end;
        for (int64_t y = chunk->panels.begin; y < chunk->panels.end; y++)
            for (int64_t x = 0; x < chunk->high; x++) {
                micro_tile(run, chunk, x, y, at, next);
                if (at_end(steps, next)) write_tile(run, chunk, x, y);
            }
    }
    if (at_end(steps, chunk->end) && run->sum->after)
        run->sum->after(run->sum->context, chunk->rows, chunk->cols);
}

/* Panels [panels) of a piece's columns: k by k as far as the piece is packed. */
static void multiply_piece(const Run *run, Range rows, Range panels) {
    const GemmKernel *kernel = run->team->kernel;
    const Steps *steps = run->steps;
    int parts = (int)parts_of(range_size(panels) * kernel->cols, CHUNK_COLS);
    Chunk chunk = {.rows = rows, .high = parts_of(range_size(rows), kernel->rows)};
    while (!at_end(steps, chunk.end)) {
        chunk.from = chunk.end;
        chunk.end = after_lines(steps, chunk.from, OWN_DEPTH);
        pack_rows(run, rows, chunk.from, chunk.end);
        for (int i = 0; i < parts; i++) {
            Range part = shard_range(range_size(panels), parts, i);
            chunk.panels = (Range){panels.begin + part.begin, panels.begin + part.end};
            int64_t end = run->cols.begin + chunk.panels.end * kernel->cols;
            chunk.cols = (Range){run->cols.begin + chunk.panels.begin * kernel->cols,
                                 least(end, run->cols.end)};
            multiply_chunk(run, &chunk);
        }
    }
}

/* ---- the team ---- */

/* As many rows for each thread, if there are some for each. */
static void cut(Run *run) {
    const GemmKernel *kernel = run->team->kernel;
    int64_t threads = run->team->threads, most = OWN_LINES / kernel->rows;
    int64_t worth = parts_of(run->panels * kernel->rows, LEAST_ROWS);
    int64_t pieces = parts_of(run->panels, most * threads) * threads;
    run->pieces = least(pieces, worth);
    run->across = least(parts_of(threads, run->pieces), run->wide);
}

static void run_cols(Run *run, int64_t *base) {
    const int high = run->team->kernel->rows;
    cut(run);
    lay_out(run);
    pack_shared(run, base);
    int64_t item;
    while ((item = gemm_team_take(run->team, base, run->pieces * run->across)) >= 0) {
        Range piece = shard_range(run->panels, (int)run->pieces, (int)(item / run->across));
        multiply_piece(run, (Range){piece.begin * high, least(piece.end * high, run->sum->m)},
                       shard_range(run->wide, (int)run->across, (int)(item % run->across)));
    }
}

static void run_sum(GemmTeam *team, const GemmSum *sum, const Steps *steps) {
    const GemmKernel *kernel = team->kernel;
    Run run = {.team = team, .sum = sum, .steps = steps};
    int64_t panels = parts_of(sum->n, kernel->cols), base = 0;
    run.panels = parts_of(sum->m, kernel->rows);
    int blocks = (int)parts_of(panels, share_memory(&run));
    for (int i = 0; i < blocks; i++) {
        Range block = shard_range(panels, blocks, i);
        run.wide = range_size(block);
        run.cols = (Range){block.begin * kernel->cols, least(block.end * kernel->cols, sum->n)};
        run_cols(&run, &base);
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
