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

/* The cheapest way to lay shards [0, s) over the first r ranks: the largest load first, then what
 * has to be sent. */
typedef struct {
    int64_t load;
    int partials, previous;
} Cut;

static bool better(int64_t load, int partials, const Cut *than) {
    return load < than->load || (load == than->load && partials < than->partials);
}

AxisLayout axis_layout(int64_t units, int logical_shards, int ranks) {
    AxisLayout axis = {
        .units = units, .shards = shard_count(units, logical_shards), .ranks = ranks};
    Cut best[SHARD_MAX + 1][SHARD_MAX + 1];
    for (int s = 0; s <= axis.shards; s++) best[0][s] = (Cut){s == 0 ? 0 : INT64_MAX, 0, 0};
    for (int r = 1; r <= ranks; r++) {
        for (int s = 0; s <= axis.shards; s++) {
            best[r][s] = (Cut){INT64_MAX, 0, s};
            for (int from = 0; from <= s; from++) {
                const Cut *before = &best[r - 1][from];
                if (before->load == INT64_MAX) continue;
                int64_t load = from == s ? 0
                                         : shard_range(units, axis.shards, s - 1).end -
                                               shard_range(units, axis.shards, from).begin;
                if (load < before->load) load = before->load;
                Range unused[TREE_MAX_SUBTREES];
                int partials =
                    before->partials + tree_subtrees(axis.shards, (Range){from, s}, unused);
                if (better(load, partials, &best[r][s])) best[r][s] = (Cut){load, partials, from};
            }
        }
    }
    axis.first[ranks] = axis.shards;
    for (int r = ranks; r > 0; r--) axis.first[r - 1] = best[r][axis.first[r]].previous;
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
