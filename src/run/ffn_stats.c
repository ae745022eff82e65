#include "run/ffn_stats.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TERMS = 3, BLOCK = 256 };

int ffn_stats_open(FfnStatsWork *work, Grid *grid, const Ffn *ffn, double threshold) {
    const char *activated = ffn->kind->activated;
    *work = (FfnStatsWork){.grid = grid,
                           .channels = ffn->axis,
                           .branches = ffn->config.branches,
                           .has_gate = ffn->kind->has_gate,
                           .acts = {strcmp(activated, "up") != 0, strcmp(activated, "gate") != 0},
                           .has_linear = ffn->kind->has_linear,
                           .threads = ffn->space->threads,
                           .row_shards = ffn->space->row_shards,
                           .threshold = threshold};
    work->partial = memory_allocate((size_t)work->channels.shards * (size_t)work->row_shards *
                                        TERMS * sizeof(double),
                                    "sums for statistics");
    return work->partial ? quantiles_open(&work->quantiles, work->threads) : WEFT_RUNTIME;
}

void ffn_stats_close(FfnStatsWork *work) {
    quantiles_close(&work->quantiles);
    free(work->partial);
    *work = (FfnStatsWork){0};
}

/* ---- sums ---- */

/* Adds rows [rows) of shard s to `sum` [TERMS]. */
typedef void AddBlock(const void *context, int shard, Range rows, double *sum);

/* total[TERMS]: each block's sums up the tree over row shards, then over channel shards. Collective
 * over GROUP_TENSOR. */
static void sum_blocks(const FfnStatsWork *work, int64_t rows, Range owned, AddBlock *add,
                       const void *context, double *total) {
    double table[SHARD_MAX * TERMS] = {0}, leaf[SHARD_MAX];
    int row_shards = work->row_shards, shards = work->channels.shards;
#pragma omp parallel for num_threads(work->threads) schedule(dynamic, 1)
    for (int64_t item = owned.begin * row_shards; item < owned.end * row_shards; item++) {
        double *sum = work->partial + item * TERMS;
        memset(sum, 0, TERMS * sizeof *sum);
        add(context, (int)(item / row_shards),
            shard_range(rows, row_shards, (int)(item % row_shards)), sum);
    }
    for (int term = 0; term < TERMS; term++)
        for (int s = (int)owned.begin; s < owned.end; s++) {
            for (int r = 0; r < row_shards; r++)
                leaf[r] = work->partial[((int64_t)s * row_shards + r) * TERMS + term];
            table[term * SHARD_MAX + s] = tree_sum_doubles(leaf, row_shards);
        }
    comm_assemble(work->grid, GROUP_TENSOR, table, SHARD_MAX * TERMS);
    for (int term = 0; term < TERMS; term++)
        total[term] = tree_sum_doubles(table + term * SHARD_MAX, shards);
}

typedef struct {
    bool has_gate; /* without one up stands for it */
    const Sharded *gate, *up, *hidden;
    double mean[BRANCHES];
} Sources;

/* sum[0]: of gate, [1]: of up, [2]: of hidden squared. */
static void add_values(const void *context, int shard, Range rows, double *sum) {
    const Sources *from = context;
    for (int64_t i = rows.begin; i < rows.end; i++) {
        const real *u = tensor_row(from->up->shard[shard], i);
        const real *g = tensor_row(from->gate->shard[shard], i);
        const real *h = tensor_row(from->hidden->shard[shard], i);
        for (int64_t j = 0; j < from->up->shard[shard].cols; j++) {
            if (isfinite(g[j])) sum[0] += (double)g[j];
            if (isfinite(u[j])) sum[1] += (double)u[j];
            if (isfinite(h[j])) sum[2] = fma((double)h[j], (double)h[j], sum[2]);
        }
    }
}

/* sum[0]: of gate's squared deviations, [1]: of up's, [2]: of both multiplied. */
static void add_deviations(const void *context, int shard, Range rows, double *sum) {
    const Sources *from = context;
    for (int64_t i = rows.begin; i < rows.end; i++) {
        const real *u = tensor_row(from->up->shard[shard], i);
        const real *g = tensor_row(from->gate->shard[shard], i);
        for (int64_t j = 0; j < from->up->shard[shard].cols; j++) {
            double dg = (double)g[j] - from->mean[BRANCH_GATE];
            double du = (double)u[j] - from->mean[BRANCH_UP];
            if (isfinite(g[j])) sum[0] = fma(dg, dg, sum[0]);
            if (isfinite(u[j])) sum[1] = fma(du, du, sum[1]);
            if (isfinite(g[j]) && isfinite(u[j])) sum[2] = fma(dg, du, sum[2]);
        }
    }
}

/* ---- counts ---- */

typedef struct {
    int64_t nonfinite[BRANCHES], saturated[BRANCHES], hidden_nonfinite, zeros, small;
} Counts;

enum { COUNTS = sizeof(Counts) / sizeof(int64_t) };

static void count_branch(const FfnStatsWork *work, int branch, int64_t n, const real *z,
                         Counts *counts) {
    real inside[BLOCK], value[BLOCK], slope[BLOCK];
    const Branches *b = &work->branches;
    real above = branch == BRANCH_GATE && b->gate_clamp > 0 ? (real)b->gate_clamp : (real)INFINITY;
    real both = branch == BRANCH_UP && work->has_linear && b->linear_clamp > 0
                    ? (real)b->linear_clamp
                    : (real)INFINITY;
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t size = n - at < BLOCK ? n - at : BLOCK;
        for (int64_t i = 0; i < size; i++) inside[i] = z[at + i] > above ? above : z[at + i];
        if (work->acts[branch]) b->activation->slope(size, inside, b->beta, value, slope);
        for (int64_t i = 0; i < size; i++) {
            bool finite = isfinite(z[at + i]), beyond = z[at + i] > above;
            beyond = beyond || z[at + i] > both || z[at + i] < -both;
            bool flat = work->acts[branch] && fabs((double)slope[i]) < FFN_STATS_FLAT;
            counts->nonfinite[branch] += !finite;
            counts->saturated[branch] += finite && (beyond || flat);
        }
    }
}

static void count_hidden(double threshold, int64_t n, const real *h, Counts *counts) {
    for (int64_t j = 0; j < n; j++) {
        counts->hidden_nonfinite += !isfinite(h[j]);
        counts->zeros += h[j] == 0;
        counts->small += fabs((double)h[j]) < threshold;
    }
}

static void add_counts(Counts *total, const Counts *part) {
    const int64_t *from = (const int64_t *)part;
    int64_t *to = (int64_t *)total;
    for (int i = 0; i < COUNTS; i++) {
#pragma omp atomic
        to[i] += from[i];
    }
}

/* Collective over GROUP_TENSOR. */
static Counts count_all(const FfnStatsWork *work, const Sources *from) {
    Counts total = {0};
    for (int s = (int)from->up->owned.begin; s < from->up->owned.end; s++) {
        Tensor up = from->up->shard[s];
#pragma omp parallel num_threads(work->threads)
        {
            Counts own = {0};
#pragma omp for schedule(static)
            for (int64_t i = 0; i < up.rows; i++) {
                count_branch(work, BRANCH_UP, up.cols, tensor_row(up, i), &own);
                if (from->has_gate)
                    count_branch(work, BRANCH_GATE, up.cols, tensor_row(from->gate->shard[s], i),
                                 &own);
                count_hidden(work->threshold, up.cols, tensor_row(from->hidden->shard[s], i), &own);
            }
            add_counts(&total, &own);
        }
    }
    comm_sum_int64(work->grid, GROUP_TENSOR, (int64_t *)&total, COUNTS);
    return total;
}

/* ---- together ---- */

static double root_mean(double sum, int64_t count) {
    return count > 0 ? sqrt(sum / (double)count) : NAN;
}

/* Of [T, D] that all ranks hold: finite values, by row shards up their tree. */
static double rms_of(const FfnStatsWork *work, Tensor x, int64_t *nonfinite) {
    double leaf[SHARD_MAX] = {0};
    int64_t bad[SHARD_MAX] = {0};
    *nonfinite = 0;
#pragma omp parallel for num_threads(work->threads) schedule(static)
    for (int r = 0; r < work->row_shards; r++) {
        Range rows = shard_range(x.rows, work->row_shards, r);
        for (int64_t i = rows.begin; i < rows.end; i++)
            for (int64_t j = 0; j < x.cols; j++) {
                double value = (double)tensor_row(x, i)[j];
                bad[r] += !isfinite(value);
                if (isfinite(value)) leaf[r] = fma(value, value, leaf[r]);
            }
    }
    for (int r = 0; r < work->row_shards; r++) *nonfinite += bad[r];
    return root_mean(tree_sum_doubles(leaf, work->row_shards), x.rows * x.cols - *nonfinite);
}

static double correlation(const FfnStats *stats, const double *sum) {
    const BranchStats *gate = &stats->branch[BRANCH_GATE], *up = &stats->branch[BRANCH_UP];
    if (!stats->has_gate || gate->nonfinite || up->nonfinite || !(sum[0] > 0 && sum[1] > 0))
        return NAN;
    return sum[2] / (sqrt(sum[0]) * sqrt(sum[1]));
}

void ffn_stats_take(const FfnStatsWork *work, Tensor input, const Sharded *gate, const Sharded *up,
                    const Sharded *hidden, Tensor output, FfnStats *stats) {
    Sources from = {
        .has_gate = work->has_gate, .gate = work->has_gate ? gate : up, .up = up, .hidden = hidden};
    const Sharded *branch[BRANCHES] = {gate, up};
    double sum[TERMS];
    int64_t rows = input.rows, finite[BRANCHES];
    *stats = (FfnStats){.has_gate = work->has_gate, .values = rows * work->channels.units};
    stats->input_rms = rms_of(work, input, &stats->input_nonfinite);
    stats->output_rms = rms_of(work, output, &stats->output_nonfinite);
    Counts counts = count_all(work, &from);
    sum_blocks(work, rows, up->owned, add_values, &from, sum);
    stats->hidden_rms = root_mean(sum[2], stats->values - counts.hidden_nonfinite);
    for (int b = 0; b < BRANCHES; b++) {
        finite[b] = stats->values - counts.nonfinite[b];
        from.mean[b] = finite[b] > 0 ? sum[b] / (double)finite[b] : NAN;
        stats->branch[b].mean = from.mean[b];
        stats->branch[b].nonfinite = counts.nonfinite[b];
        stats->branch[b].saturated = counts.saturated[b];
    }
    sum_blocks(work, rows, up->owned, add_deviations, &from, sum);
    for (int b = 0; b < BRANCHES; b++) {
        stats->branch[b].std = root_mean(sum[b], finite[b]);
        if (b == BRANCH_UP || work->has_gate)
            quantiles_find(&work->quantiles, work->grid, branch[b], finite[b],
                           stats->branch[b].quantile);
    }
    stats->correlation = correlation(stats, sum);
    stats->hidden_nonfinite = counts.hidden_nonfinite;
    stats->zeros = counts.zeros;
    stats->small = counts.small;
}
