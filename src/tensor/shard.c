#include "tensor/shard.h"

int shard_count(int64_t n, int shards) { return n < shards ? (int)n : shards; }

Range shard_range(int64_t n, int shards, int shard) {
    return (Range){shard * n / shards, (shard + 1) * n / shards};
}

int tree_split(int begin, int end) {
    int half = 1;
    while (2 * half < end - begin) half *= 2;
    return begin + half;
}

static void collect(int begin, int end, Range owned, Range *subtree, int *count) {
    if (end <= owned.begin || owned.end <= begin) return;
    if (owned.begin <= begin && end <= owned.end) {
        subtree[(*count)++] = (Range){begin, end};
        return;
    }
    int middle = tree_split(begin, end);
    collect(begin, middle, owned, subtree, count);
    collect(middle, end, owned, subtree, count);
}

int tree_subtrees(int leaves, Range owned, Range subtree[TREE_MAX_SUBTREES]) {
    int count = 0;
    if (leaves > 0 && owned.end > owned.begin) collect(0, leaves, owned, subtree, &count);
    return count;
}

/* Units of shards [from, to). */
static int64_t run_load(const AxisLayout *axis, int from, int to) {
    if (from == to) return 0;
    return axis_units(axis, to - 1).end - axis_units(axis, from).begin;
}

/* Whether `ranks` ranks can hold all shards with at most `load` units each. */
static bool fits(const AxisLayout *axis, int ranks, int64_t load) {
    int from = 0;
    for (int r = 0; r < ranks; r++) {
        int to = from;
        while (to < axis->shards && run_load(axis, from, to + 1) <= load) to++;
        from = to;
    }
    return from == axis->shards;
}

static int64_t smallest_load(const AxisLayout *axis, int ranks) {
    int64_t low = 0, high = axis->units; /* high fits, low does not */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (fits(axis, ranks, middle))
            high = middle;
        else
            low = middle;
    }
    return high;
}

/* Shards [0, s) over the first r ranks: the fewest partials, and where rank r - 1 begins. */
typedef struct {
    int partials, begin;
} Cut;

enum { IMPOSSIBLE = SHARD_MAX * TREE_MAX_SUBTREES };

/* Partials of the run [from, s) of shards, for each of both; IMPOSSIBLE: more than `most` units. */
typedef int RunPartials[SHARD_MAX + 1][SHARD_MAX + 1];

static void count_partials(const AxisLayout *axis, int64_t most, RunPartials run) {
    Range unused[TREE_MAX_SUBTREES];
    for (int s = 0; s <= axis->shards; s++)
        for (int from = 0; from <= s; from++)
            run[from][s] = run_load(axis, from, s) > most
                               ? IMPOSSIBLE
                               : tree_subtrees(axis->shards, (Range){from, s}, unused);
}

/* The last rank's run, after the cuts of those before it. */
static Cut best_cut(const Cut *before, RunPartials run, int s) {
    Cut best = {IMPOSSIBLE, s};
    for (int from = 0; from <= s; from++) {
        int partials = before[from].partials + run[from][s];
        if (partials < best.partials) best = (Cut){partials, from};
    }
    return best;
}

AxisLayout axis_layout(int64_t units, int logical_shards, int ranks) {
    AxisLayout axis = {
        .units = units, .shards = shard_count(units, logical_shards), .ranks = ranks};
    RunPartials run;
    Cut best[SHARD_MAX + 1][SHARD_MAX + 1];
    count_partials(&axis, smallest_load(&axis, ranks), run);
    for (int s = 0; s <= axis.shards; s++) best[0][s] = (Cut){s == 0 ? 0 : IMPOSSIBLE, 0};
    for (int r = 1; r <= ranks; r++)
        for (int s = 0; s <= axis.shards; s++) best[r][s] = best_cut(best[r - 1], run, s);
    axis.first[ranks] = axis.shards;
    for (int r = ranks; r > 0; r--) axis.first[r - 1] = best[r][axis.first[r]].begin;
    return axis;
}

Range axis_owned(const AxisLayout *axis, int rank) {
    return (Range){axis->first[rank], axis->first[rank + 1]};
}

Range axis_units(const AxisLayout *axis, int shard) {
    return shard_range(axis->units, axis->shards, shard);
}

Range axis_owned_units(const AxisLayout *axis, int rank) {
    Range owned = axis_owned(axis, rank);
    if (owned.begin == owned.end) return (Range){0, 0};
    return (Range){axis_units(axis, (int)owned.begin).begin,
                   axis_units(axis, (int)owned.end - 1).end};
}

int axis_owner(const AxisLayout *axis, int shard) {
    int rank = 0;
    while (shard >= axis->first[rank + 1]) rank++;
    return rank;
}

int64_t axis_largest_load(const AxisLayout *axis) {
    int64_t largest = 0;
    for (int r = 0; r < axis->ranks; r++) {
        int64_t load = range_size(axis_owned_units(axis, r));
        if (load > largest) largest = load;
    }
    return largest;
}
