/* Statistics of one layer's FFN in one forward pass, over all tensor ranks. Finite values count;
 * the others are counted apart.
 *
 * Layout-independent: sums in double over the blocks that logical shards of channels and of rows
 * make, then up the trees over rows and channels; counts and quantiles by integers. */
#ifndef WEFT_RUN_FFN_STATS_H
#define WEFT_RUN_FFN_STATS_H

#include "nn/ffn.h"
#include "run/quantiles.h"

/* Preactivations of gate or up, [T, F]. NAN where no value is finite. */
typedef struct {
    double mean, std; /* of all T F values: divided by their number */
    double quantile[QUANTILES];
    int64_t nonfinite;
    int64_t saturated; /* see FFN_STATS_FLAT */
} BranchStats;

/* A preactivation is saturated when the gradient hardly passes: |act'| below this where act is
 * applied (after the clamp), or a value beyond its branch's clamp. Under relu: the closed units. */
#define FFN_STATS_FLAT 1e-3

enum { BRANCH_GATE, BRANCH_UP, BRANCHES };

typedef struct {
    bool has_gate;
    BranchStats branch[BRANCHES];
    double correlation;           /* of gate and up; NAN unless all are finite and vary */
    double input_rms, output_rms; /* norm.ffn and ffn.down, [T, D] */
    double hidden_rms;            /* what down multiplies, [T, F], after its dropout */
    int64_t values;               /* T F */
    int64_t zeros, small;         /* hidden: exactly 0; |h| below the threshold, those included */
    int64_t input_nonfinite, output_nonfinite, hidden_nonfinite;
} FfnStats;

typedef struct {
    Grid *grid;
    AxisLayout channels;
    Branches branches;
    bool has_gate, acts[BRANCHES],
        has_linear; /* where act is applied; up is the linear branch of clamps */
    int threads, row_shards;
    double threshold;
    Quantiles quantiles;
    double *partial; /* [owned shards, row shards, terms] */
} FfnStatsWork;

/* 0 or WEFT_RUNTIME. */
int ffn_stats_open(FfnStatsWork *work, Grid *grid, const Ffn *ffn, double threshold);
void ffn_stats_close(FfnStatsWork *work);

/* gate (of a kind that has one), up and hidden: this rank's shards, [T, F]; input and output
 * [T, D], the same on all ranks. Collective over GROUP_TENSOR. */
void ffn_stats_take(const FfnStatsWork *work, Tensor input, const Sharded *gate, const Sharded *up,
                    const Sharded *hidden, Tensor output, FfnStats *stats);

#endif
