/* All arithmetic of cuts and trees: integers only.
 *
 * A splittable axis of n units is cut once, logically, into min(S, n) shards; shards are laid over
 * ranks in contiguous runs. Sums over shards follow one binary tree: the node over [a, b) splits at
 * a + (largest power of two < b - a). The tree depends on the number of shards alone, never on the
 * ranks. */
#ifndef WEFT_TENSOR_SHARD_H
#define WEFT_TENSOR_SHARD_H

#include <stdbool.h>
#include <stdint.h>

#define SHARD_MAX        64 /* most logical shards of an axis */
#define SHARD_TREE_DEPTH 7  /* levels of a tree over SHARD_MAX leaves: log2(64) + 1 */

typedef struct {
    int64_t begin, end;
} Range;

static inline int64_t range_size(Range r) { return r.end - r.begin; }
static inline bool range_has(Range r, int64_t x) { return r.begin <= x && x < r.end; }

static inline int64_t size_least(int64_t x, int64_t y) { return x < y ? x : y; }
/* Parts of `part` units, the last perhaps smaller, that make up `size`. */
static inline int64_t size_parts(int64_t size, int64_t part) { return (size + part - 1) / part; }

/* min(shards, n): how many shards an axis of n units really has. */
int shard_count(int64_t n, int shards);

/* Units of shard s of n units in `shards` shards: [s*n/shards, (s+1)*n/shards). */
Range shard_range(int64_t n, int shards, int shard);

/* Where the node over [begin, end) splits; end - begin >= 2. */
int tree_split(int begin, int end);

/* The fewest whole subtrees of the tree over [0, leaves) that make up `owned`, in ascending order.
 * Returns their number (at most 2 * SHARD_TREE_DEPTH). */
#define TREE_MAX_SUBTREES (2 * SHARD_TREE_DEPTH)
int tree_subtrees(int leaves, Range owned, Range subtree[TREE_MAX_SUBTREES]);

/* How one axis lies over ranks: shard s covers units shard_range(units, shards, s) and belongs to
 * the rank r with first[r] <= s < first[r + 1]. A rank may own nothing. */
typedef struct {
    int64_t units;
    int shards; /* min(S, units) */
    int ranks;
    int first[SHARD_MAX + 1]; /* first[ranks] == shards */
} AxisLayout;

/* The contiguous partition with the smallest largest load (in units), and among those the one with
 * the fewest partial sums to send. ranks <= SHARD_MAX. */
AxisLayout axis_layout(int64_t units, int logical_shards, int ranks);

Range axis_owned(const AxisLayout *axis, int rank);       /* shards of a rank */
Range axis_units(const AxisLayout *axis, int shard);      /* units of a shard */
Range axis_owned_units(const AxisLayout *axis, int rank); /* units of a rank */
int axis_owner(const AxisLayout *axis, int shard);        /* rank of a shard */
int64_t axis_largest_load(const AxisLayout *axis);        /* most units on any rank */

#endif
