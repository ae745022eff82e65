/* Cuts, trees and their layout over ranks, against tables and brute force. */
#include "tensor/shard.h"

#include "support/support.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 32 };

static const int64_t all_units[] = {1, 2, 3, 5, 7, 8, 13, 32, 45, 64, 172, 259, 341, 682, 50257};
#define COUNT(table) (sizeof(table) / sizeof(table)[0])

/* ---- cuts ---- */

START_TEST(shards_cover_an_axis_evenly) {
    for (size_t u = 0; u < COUNT(all_units); u++)
        for (int shards = 1; shards <= SHARD_MAX; shards++) {
            int64_t n = all_units[u], end = 0;
            int count = shard_count(n, shards);
            ck_assert_int_eq(count, n < shards ? n : shards);
            for (int s = 0; s < count; s++) {
                Range r = shard_range(n, count, s);
                ck_assert_int_eq(r.begin, end);
                ck_assert(range_size(r) == n / count || range_size(r) == (n + count - 1) / count);
                ck_assert(range_has(r, r.begin) && range_has(r, r.end - 1));
                ck_assert(!range_has(r, r.end) && !range_has(r, r.begin - 1));
                end = r.end;
            }
            ck_assert_int_eq(end, n);
        }
}
END_TEST

START_TEST(uneven_shards_by_hand) {
    const int64_t begin[] = {0, 21, 43, 64, 86, 107, 129, 150, 172}; /* floor(s * 172 / 8) */
    for (int s = 0; s < 8; s++) {
        ck_assert_int_eq(shard_range(172, 8, s).begin, begin[s]);
        ck_assert_int_eq(shard_range(172, 8, s).end, begin[s + 1]);
    }
    ck_assert_int_eq(shard_range(INT64_C(1) << 40, 64, 63).end, INT64_C(1) << 40);
}
END_TEST

/* ---- the tree ---- */

/* Size of the left child of a node over n shards: the largest power of two below n. */
static const int left_size[MOST + 1] = {0,  0,  1,  2,  2,  4,  4,  4,  4,  8,  8,
                                        8,  8,  8,  8,  8,  8,  16, 16, 16, 16, 16,
                                        16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16};

START_TEST(nodes_split_by_the_table) {
    for (int n = 2; n <= MOST; n++)
        for (int begin = 0; begin < 5; begin++)
            ck_assert_int_eq(tree_split(begin, begin + n), begin + left_size[n]);
}
END_TEST

/* All nodes of the tree over [begin, end), parents before children, with their parents' place. */
typedef struct {
    Range range;
    int parent;
} Node;

static int list_nodes(Node *node, int count, int begin, int end, int parent) {
    int here = count;
    node[count++] = (Node){{begin, end}, parent};
    if (end - begin == 1) return count;
    int middle = begin + left_size[end - begin];
    count = list_nodes(node, count, begin, middle, here);
    return list_nodes(node, count, middle, end, here);
}

static bool inside(Range inner, Range outer) {
    return outer.begin <= inner.begin && inner.end <= outer.end;
}

/* Whole nodes inside `owned` whose parents aren't: the list is in ascending order already. */
static int maximal_nodes(const Node *node, int count, Range owned, Range *found) {
    int maximal = 0;
    for (int i = 0; i < count; i++) {
        int parent = node[i].parent;
        if (!inside(node[i].range, owned)) continue;
        if (parent < 0 || !inside(node[parent].range, owned)) found[maximal++] = node[i].range;
    }
    return maximal;
}

START_TEST(subtrees_are_the_largest_whole_nodes) {
    Node node[2 * MOST];
    Range expected[2 * MOST], found[TREE_MAX_SUBTREES];
    for (int leaves = 1; leaves <= MOST; leaves++) {
        int nodes = list_nodes(node, 0, 0, leaves, -1);
        ck_assert_int_eq(nodes, 2 * leaves - 1);
        for (int begin = 0; begin <= leaves; begin++)
            for (int end = begin; end <= leaves; end++) {
                Range owned = {begin, end};
                int count = tree_subtrees(leaves, owned, found);
                int right = begin == end ? 0 : maximal_nodes(node, nodes, owned, expected);
                ck_assert_int_eq(count, right);
                ck_assert_int_le(count, TREE_MAX_SUBTREES);
                for (int i = 0; i < count; i++) {
                    ck_assert_int_eq(found[i].begin, expected[i].begin);
                    ck_assert_int_eq(found[i].end, expected[i].end);
                }
            }
    }
    ck_assert_int_eq(tree_subtrees(0, (Range){0, 0}, found), 0);
}
END_TEST

START_TEST(subtrees_by_hand) {
    Range found[TREE_MAX_SUBTREES];
    const Range expected[] = {{1, 2}, {2, 4}, {4, 6}, {6, 7}}; /* of ((01)(23))((45)(67)) */
    ck_assert_int_eq(tree_subtrees(8, (Range){1, 7}, found), 4);
    for (int i = 0; i < 4; i++)
        ck_assert(found[i].begin == expected[i].begin && found[i].end == expected[i].end);
    ck_assert_int_eq(tree_subtrees(64, (Range){1, 63}, found), 10);
}
END_TEST

/* ---- axes over ranks ---- */

static void check_axis(const AxisLayout *axis, int64_t units, int shards, int ranks) {
    int64_t owned = 0, largest = 0;
    ck_assert_int_eq(axis->shards, shard_count(units, shards));
    ck_assert_int_eq(axis->first[0], 0);
    ck_assert_int_eq(axis->first[ranks], axis->shards);
    for (int r = 0; r < ranks; r++) {
        Range part = axis_owned(axis, r), span = axis_owned_units(axis, r);
        int64_t load = 0;
        ck_assert_int_le(part.begin, part.end);
        for (int s = (int)part.begin; s < part.end; s++) {
            ck_assert_int_eq(axis_owner(axis, s), r);
            ck_assert_int_eq(axis_units(axis, s).begin, s * units / axis->shards);
            load += range_size(axis_units(axis, s));
        }
        ck_assert_int_eq(range_size(span), load);
        if (load > 0) ck_assert_int_eq(span.begin, axis_units(axis, (int)part.begin).begin);
        owned += load;
        largest = load > largest ? load : largest;
    }
    ck_assert_int_eq(owned, units);
    ck_assert_int_eq(axis_largest_load(axis), largest);
}

/* Ranks that are needed when none may have more than `load` units, taking shards in order. */
static int ranks_for(int64_t units, int shards, int64_t load) {
    int ranks = 1;
    int64_t here = 0;
    for (int s = 0; s < shards; s++) {
        int64_t size = (s + 1) * units / shards - s * units / shards;
        if (size > load) return INT32_MAX;
        if (here + size > load) {
            ranks++;
            here = 0;
        }
        here += size;
    }
    return ranks;
}

START_TEST(layouts_have_the_smallest_largest_load) {
    for (size_t u = 0; u < COUNT(all_units); u++)
        for (int shards = 1; shards <= MOST; shards++)
            for (int ranks = 1; ranks <= shards; ranks++) {
                int64_t units = all_units[u];
                AxisLayout axis = axis_layout(units, shards, ranks);
                check_axis(&axis, units, shards, ranks);
                int64_t load = axis_largest_load(&axis);
                ck_assert_int_le(ranks_for(units, axis.shards, load), ranks);
                ck_assert_int_gt(ranks_for(units, axis.shards, load - 1), ranks);
            }
}
END_TEST

/* The fewest partial sums of any partition of `shards` from `first` on over `ranks` ranks that
 * loads none with more than `load` units; a large number when there is none. */
static int fewest_partials(int64_t units, int shards, int first, int ranks, int64_t load) {
    enum { NONE = 1000000 };
    Range unused[TREE_MAX_SUBTREES];
    if (ranks == 0) return first == shards ? 0 : NONE;
    int best = NONE;
    for (int end = first; end <= shards; end++) {
        if (end * units / shards - first * units / shards > load) break;
        int partials = tree_subtrees(shards, (Range){first, end}, unused) +
                       fewest_partials(units, shards, end, ranks - 1, load);
        best = partials < best ? partials : best;
    }
    return best;
}

START_TEST(layouts_send_the_fewest_partials) {
    Range unused[TREE_MAX_SUBTREES];
    const int64_t some_units[] = {2, 5, 8, 13, 172, 259, 341};
    for (size_t u = 0; u < COUNT(some_units); u++)
        for (int shards = 1; shards <= 9; shards++)
            for (int ranks = 1; ranks <= shards && ranks <= 5; ranks++) {
                AxisLayout axis = axis_layout(some_units[u], shards, ranks);
                int partials = 0;
                for (int r = 0; r < ranks; r++)
                    partials += tree_subtrees(axis.shards, axis_owned(&axis, r), unused);
                ck_assert_int_eq(partials, fewest_partials(some_units[u], axis.shards, 0, ranks,
                                                           axis_largest_load(&axis)));
            }
}
END_TEST

/* 8 even shards over 3 ranks: no rank with more than 3; whole subtrees where there is a choice. */
START_TEST(layout_by_hand) {
    AxisLayout axis = axis_layout(64, 8, 3);
    ck_assert_int_eq(axis_largest_load(&axis), 24);
    axis = axis_layout(64, 8, 2);
    ck_assert_int_eq(axis.first[1], 4);
    axis = axis_layout(2, 8, 3); /* 2 kv heads: one rank has none */
    ck_assert_int_eq(axis.shards, 2);
    ck_assert_int_eq(axis_largest_load(&axis), 1);
    axis = axis_layout(64, 64, 64);
    for (int r = 0; r <= 64; r++) ck_assert_int_eq(axis.first[r], r);
}
END_TEST

int main(void) {
    return run_suite("shard", TESTS(shards_cover_an_axis_evenly, uneven_shards_by_hand,
                                    nodes_split_by_the_table, subtrees_are_the_largest_whole_nodes,
                                    subtrees_by_hand, layouts_have_the_smallest_largest_load,
                                    layouts_send_the_fewest_partials, layout_by_hand));
}
