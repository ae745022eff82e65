/* Where the weights of feed-forward networks lie in a file of some system: one table row for each
 * layout and for each way of naming. Integers only, no I/O (that is packing_file.h).
 *
 * Whatever the layout, a network of F channels and D model columns has the projections gate [F, D],
 * up [F, D] and down [D, F] (as nn.Linear stores them, [out, in]) with biases [F], [F] and [D]; a
 * dense one has no gate. What is addressed is (projection, channel, column), so the only cut that
 * can be written down is one by channels, which gate, up and down share: packing_part. Rows of a
 * packed dataset can't be asked for: the halves of [gate; up] are two branches, never the shares of
 * two ranks.
 *
 *   separate            gate, up, down: a dataset each
 *   packed_gate_up      [gate; up] [2F, D], down
 *   packed_up_gate      [up; gate] [2F, D], down
 *   packed_interleaved  gate's and up's rows in turn [2F, D], down (GPT-OSS)
 *   packed_shard        [gate_0; up_0; gate_1; up_1; ...] [2F, D]: what one product per logical
 *                       shard reads; down
 *   packed_ranks        a group rank-RRR for each of R ranks: [gate_r; up_r], and down's columns of
 *                       its channels; down's bias in each (Megatron-LM)
 *   transposed          as separate, but stored [in, out] (GPT-2's Conv1D)
 *
 * Shard or rank p of P has the channels shard_range(F, P, p). Biases are packed as their weights
 * are; a branch without one takes no room. */
#ifndef WEFT_CHECKPOINT_PACKING_H
#define WEFT_CHECKPOINT_PACKING_H

#include "tensor/shard.h"

#include <stdbool.h>
#include <stdint.h>

#define PACKING_NAME 128

typedef enum { PACKING_GATE, PACKING_UP, PACKING_DOWN, PACKING_PROJECTIONS } PackingProjection;
extern const char *const packing_projections[PACKING_PROJECTIONS]; /* gate, up, down */

/* How gate and up meet within a part; and what the parts are. */
typedef enum { PACKING_APART, PACKING_GATE_FIRST, PACKING_UP_FIRST, PACKING_IN_TURN } PackingOrder;
typedef enum { PACKING_WHOLE, PACKING_SHARDS, PACKING_RANKS } PackingCut;

typedef struct {
    const char *name;
    const char *order_text; /* for people and for the file's attribute `order` */
    PackingOrder order;
    PackingCut cut;
    bool transposed;
} PackingLayout;
extern const PackingLayout packing_layouts[];               /* ends with a row whose name is NULL */
const PackingLayout *packing_layout_find(const char *name); /* NULL when there is none */

/* A tensor is BEFORE layer AFTER projection ".weight" or ".bias". NULL: the system has no name for
 * it. */
typedef struct {
    const char *name;
    const char *before, *after;
    const char *gate, *up, *down; /* apart */
    const char *packed;           /* gate and up */
    const char *dense;            /* what takes up's place in a dense network */
} PackingNames;
extern const PackingNames packing_names[]; /* hf, meta, gpt2, megatron; ends with a NULL name */
const PackingNames *packing_names_find(const char *name);
/* "separate, packed_gate_up, ...", "hf, meta, ...": static text. */
const char *packing_layout_list(void);
const char *packing_names_list(void);

/* What a file holds. */
typedef struct {
    const PackingLayout *layout;
    const PackingNames *names;
    int parts; /* shards or ranks; 1 for a whole */
    int64_t layers, d_model, d_ff;
    bool gated; /* there is a gate */
    bool bias[PACKING_PROJECTIONS];
} Packing;

/* Whether this layout can hold such a network under these names. 0, or WEFT_USAGE naming what
 * can't be. */
int packing_check(const Packing *packing);

bool packing_has(const Packing *packing, PackingProjection projection, bool bias);

/* The channels of a shard or rank, of every projection. */
Range packing_part(const Packing *packing, int part);

/* The projection's own shape: [rows, cols], a bias [1, cols]. */
void packing_shape(const Packing *packing, PackingProjection projection, bool bias, int64_t *rows,
                   int64_t *cols);

/* ---- datasets ---- */

/* Of each layer and group: what holds gate, or both branches; up, where it lies apart; down. */
typedef enum { PACKING_SLOT_FIRST, PACKING_SLOT_UP, PACKING_SLOT_DOWN, PACKING_SLOTS } PackingSlot;

typedef struct {
    char name[PACKING_NAME]; /* in its group */
    int rank;                /* 1: [dims[0]]; 2: [dims[0], dims[1]] */
    int64_t dims[2];         /* a vector's dims[1] is 1 */
    int channel_axis;        /* the dimension that counts channels */
} PackingDataset;

int packing_groups(const Packing *packing); /* ranks; 1 when all lies in the root */
void packing_group_name(const Packing *packing, int group, char name[PACKING_NAME]); /* "/" */

/* False when this layout has no such dataset. */
bool packing_dataset(const Packing *packing, int layer, int group, PackingSlot slot, bool bias,
                     PackingDataset *dataset);

/* Where a channel of a projection lies, and those that follow it at the same stride: channel c of
 * `channels` at first + (c - channels.begin) * stride along the dataset's channels. (down's bias
 * has no channels: it lies whole in every group.) */
typedef struct {
    int group;
    PackingSlot slot;
    Range channels;
    int64_t first, stride;
} PackingRun;
PackingRun packing_run(const Packing *packing, PackingProjection projection, bool bias,
                       int64_t channel);

#endif
