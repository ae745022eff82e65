/* How long a training step will take on so many ranks: a prediction from a layout, from what this
 * machine has measured of a rank's share (rates.h), and from a network that is stated. Pure:
 * nothing is measured here, no MPI. The model, whole:
 *
 *     step = m (share + sums over tensor ranks) + b zero + (b - s) add + norm + update
 *            + sum of gradients over data ranks
 *
 * m, b: microbatches and batch shards of the data rank that has most; s: the subtrees that those
 * make. share, zero, add, norm, update are measured by the training's own code on pieces of the
 * real widths: so narrow products, caches and the cores' common clock need no model. Regions end in
 * sums that all wait for: the heads count by the rank with most of them, FFN and vocabulary alike.
 * Nothing overlaps, as weft computes and communicates in turn: all of the sums is exposed.
 *
 * A message of n bytes takes A + n B (Hockney 1994; A, B: latency and seconds of a byte). Of a
 * rank's partners a share f is on other nodes, whose network the r ranks of a node share:
 *
 *     A = f latency + (1 - f) (NODE_LATENCY + meet)        B = f r / bandwidth + (1 - f) 2 copy
 *
 * A collective of p ranks with a result of n bytes (Thakur, Rabenseifner and Gropp 2005, of the
 * algorithm that suits the size; c: seconds to add a byte; q: bytes that come to the rank, and
 * q/n of an exact sum more than one where shards don't make whole subtrees: plan_traffic.h):
 *
 *     gather           G A + q B, G = log2 p below 512 KB, else p - 1 (a ring)
 *     scatter of words log2 p A + n (p-1)/p (B + c)
 *     all-reduce       the less of log2 p (A + n (B + c)) and 2 log2 p A + n (p-1)/p (2 B + c)
 *     exact sum        M A + q B + (l-1) n/p c + G A: M messages to or from the others, l partials
 *                      of all ranks; without its gather where ranks want their own rows alone
 *     exact sum, shared window   3 meet + (l-1) n/p c + n copy; own rows: 2 meet + (l-1) n/p c
 *     gather, shared window      2 meet: others read the rows in place; scatter: + n/p copy
 *
 * meet: a barrier; copy, c: measured where one rank reads what another has written, in a cache up
 * to 4 MB, from memory above. Of all three what a tenth of many repetitions are below, and the less
 * of two rounds: programs beside make single ones a thousand times longer, never shorter. Left out:
 * saving, evaluation, reading data; messages of different pairs in each other's way, messages under
 * way at the same time, ranks that come late. */
#ifndef WEFT_RUN_SCALING_H
#define WEFT_RUN_SCALING_H

#include "run/collective_cost.h"
#include "run/rates.h"

#include <stddef.h>

typedef enum {
    SCALING_PRODUCTS,
    SCALING_POINTWISE, /* what goes with them: attention heads, activations, loss, embedding */
    SCALING_ROWS,      /* norms, residuals: every tensor rank does all rows, unless they are cut */
    SCALING_TENSOR_LATENCY,
    SCALING_TENSOR_BYTES,
    SCALING_DATA_LATENCY,
    SCALING_DATA_BYTES,
    SCALING_OPTIMIZER, /* gradients zeroed and added up here; their norm; the update */
    SCALING_PARTS
} ScalingPart;

extern const char *const scaling_part_names[SCALING_PARTS];

typedef struct {
    const Config *config;
    Network network;
    int node_ranks; /* of a node */
    int threads;    /* of a rank */
} ScalingCase;

typedef struct {
    int tp, dp;
    double part[SCALING_PARTS], seconds;
} Prediction;

/* share: of a tensor-parallel rank of tp; memory: of a node. 0 or a negative code. */
int scaling_predict(const ScalingCase *scaling, int tp, int dp, const ShareRates *share,
                    const MemoryRates *memory, Prediction *prediction);

/* Bytes of the rank that holds most (plan_memory.h). Where the layout needs several nodes, sums are
 * counted as by messages on all axes. 0 or a negative code. */
int scaling_memory(const ScalingCase *scaling, int tp, int dp, size_t *bytes);

double prediction_exposed(const Prediction *prediction); /* seconds of communication */

/* Seconds of a part on more ranks beyond its share, were it divided among all of them: what is
 * largest stands most against them. */
double scaling_excess(const Prediction *layout, const Prediction *more, ScalingPart part);

#endif
