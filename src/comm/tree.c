/* The tree itself: whoever owns the leaves, a node is left + right. */
#include "comm/exchange_internal.h"

#include <string.h>

/* Elements summed at a time, so that a node's temporaries stay in the first-level cache, and
 * elements below which another thread costs more than it brings. */
enum { BLOCK = 2048, WORTH_A_THREAD = 16384 };

static int team_size(int64_t n, int threads) {
    int64_t useful = n / WORTH_A_THREAD + 1;
    return useful < threads ? (int)useful : threads;
}

static int64_t blocks_of(int64_t n) { return (n + BLOCK - 1) / BLOCK; }

static int64_t block_size(int64_t n, int64_t at) { return n - at < BLOCK ? n - at : BLOCK; }

static void add(real *sum, const real *left, const real *right, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) sum[i] = left[i] + right[i];
}

void tree_add(real *left, const real *right, int64_t n, int threads) {
#pragma omp parallel for num_threads(team_size(n, threads)) schedule(static)
    for (int64_t block = 0; block < blocks_of(n); block++) {
        int64_t at = block * BLOCK;
        add(left + at, left + at, right + at, block_size(n, at));
    }
}

void tree_copy(real *to, const real *from, int64_t n, int threads) {
#pragma omp parallel for num_threads(team_size(n, threads)) schedule(static)
    for (int64_t block = 0; block < blocks_of(n); block++) {
        int64_t at = block * BLOCK;
        memcpy(to + at, from + at, (size_t)block_size(n, at) * sizeof(real));
    }
}

static bool is_leaf(const ExchangePlan *plan, int begin, int end) {
    int leaf = plan->leaf[begin];
    return leaf >= 0 && plan->subtree[leaf].end == end;
}

/* What one block of elements is summed from. */
typedef struct {
    const ExchangePlan *plan;
    const real *const *leaf;
    int64_t at, n;
} Sum;

/* The node over shards [begin, end): a leaf where it lies, else summed into `target`. The left
 * child may use `target` as well; the right one starts a row of scratch further, and no path turns
 * right more often than the tree is deep. */
static const real *node(const Sum *sum, int begin, int end, real *target, real (*scratch)[BLOCK]) {
    if (is_leaf(sum->plan, begin, end)) return sum->leaf[sum->plan->leaf[begin]] + sum->at;
    int middle = tree_split(begin, end);
    const real *left = node(sum, begin, middle, scratch[0], scratch);
    const real *right = node(sum, middle, end, scratch[1], scratch + 1);
    add(target, left, right, sum->n);
    return target;
}

/* Elements [at, at + n) of y, which stand in `sum`, row by row. */
static void finish(Exchange *exchange, int64_t at, int64_t n, real *sum) {
    const Epilogue *epilogue = exchange->epilogue;
    if (!epilogue) return;
    double since = stopwatch_aside(exchange->grid->stopwatch);
    int64_t width = exchange->y.cols;
    for (int64_t end = at + n; at < end;) {
        int64_t row = at / width, col = at - row * width;
        int64_t here = end - at < width - col ? end - at : width - col;
        epilogue->finish(epilogue->context, row, (Range){col, col + here}, sum);
        at += here;
        sum += here;
    }
    stopwatch_add(exchange->grid->stopwatch, &exchange->aside, since);
}

void tree_sum(Exchange *exchange, const real *const *leaf, Range part, real *sum, real *copy) {
    const ExchangePlan *plan = &exchange->plan;
    int64_t n = range_size(part);
#pragma omp parallel for num_threads(team_size(n, exchange->threads)) schedule(static)
    for (int64_t block = 0; block < blocks_of(n); block++) {
        real scratch[SHARD_TREE_DEPTH + 1][BLOCK];
        int64_t at = block * BLOCK;
        Sum here = {plan, leaf, at, block_size(n, at)};
        size_t bytes = (size_t)here.n * sizeof(real);
        const real *root = node(&here, 0, plan->shards, sum + at, scratch);
        if (root != sum + at) memcpy(sum + at, root, bytes);
        finish(exchange, part.begin + at, here.n, sum + at);
        if (copy) memcpy(copy + at, sum + at, bytes);
    }
}

void tree_finish(Exchange *exchange, Range part) {
    int64_t n = range_size(part);
    if (!exchange->epilogue) return;
#pragma omp parallel for num_threads(team_size(n, exchange->threads)) schedule(static)
    for (int64_t block = 0; block < blocks_of(n); block++) {
        int64_t at = part.begin + block * BLOCK;
        finish(exchange, at, block_size(part.end, at), exchange->y.data + at);
    }
}

static double node_leaves(const ExchangePlan *plan, const double *leaf, int64_t stride, int begin,
                          int end) {
    if (is_leaf(plan, begin, end)) return leaf[plan->leaf[begin] * stride];
    int middle = tree_split(begin, end);
    return node_leaves(plan, leaf, stride, begin, middle) +
           node_leaves(plan, leaf, stride, middle, end);
}

double tree_sum_leaves(const ExchangePlan *plan, const double *leaf, int64_t stride) {
    return node_leaves(plan, leaf, stride, 0, plan->shards);
}

static double node_doubles(const double *leaves, int begin, int end) {
    if (end - begin == 1) return leaves[begin];
    int middle = tree_split(begin, end);
    return node_doubles(leaves, begin, middle) + node_doubles(leaves, middle, end);
}

double tree_sum_doubles(const double *leaves, int64_t count) {
    return count > 0 ? node_doubles(leaves, 0, (int)count) : 0;
}
