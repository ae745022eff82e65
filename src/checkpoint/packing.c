#include "checkpoint/packing.h"

#include "base/error.h"
#include "base/fault.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *const packing_projections[PACKING_PROJECTIONS] = {"gate", "up", "down"};

const PackingLayout packing_layouts[] = {
    {"separate", "gate, up and down apart, stored [out, in]", PACKING_APART, PACKING_WHOLE, false},
    {"packed_gate_up", "rows [gate; up]", PACKING_GATE_FIRST, PACKING_WHOLE, false},
    {"packed_up_gate", "rows [up; gate]", PACKING_UP_FIRST, PACKING_WHOLE, false},
    {"packed_interleaved", "rows gate, up, gate, up, ...", PACKING_IN_TURN, PACKING_WHOLE, false},
    {"packed_shard", "rows [gate_s; up_s] of each shard s in turn", PACKING_GATE_FIRST,
     PACKING_SHARDS, false},
    {"packed_ranks", "a group for each rank r: rows [gate_r; up_r], columns of down",
     PACKING_GATE_FIRST, PACKING_RANKS, false},
    {"transposed", "gate, up and down apart, stored [in, out]", PACKING_APART, PACKING_WHOLE, true},
    {0},
};

const PackingNames packing_names[] = {
    {"hf", "model.layers.", ".mlp.", "gate_proj", "up_proj", "down_proj", "gate_up_proj",
     "up_proj"},
    {"meta", "layers.", ".feed_forward.", "w1", "w3", "w2", "w13", "w1"},
    {"gpt2", "transformer.h.", ".mlp.", NULL, NULL, "c_proj", NULL, "c_fc"},
    {"megatron", "decoder.layers.", ".mlp.", NULL, NULL, "linear_fc2", "linear_fc1", "linear_fc1"},
    {0},
};

const PackingLayout *packing_layout_find(const char *name) {
    for (const PackingLayout *row = packing_layouts; row->name; row++)
        if (!strcmp(row->name, name)) return row;
    return NULL;
}

const PackingNames *packing_names_find(const char *name) {
    for (const PackingNames *row = packing_names; row->name; row++)
        if (!strcmp(row->name, name)) return row;
    return NULL;
}

/* Rows of `size` bytes, each beginning with its name. */
static const char *list_names(const void *rows, size_t size, char *text, size_t capacity) {
    size_t used = 0;
    const char *name;
    text[0] = '\0';
    for (const char *row = rows; memcpy(&name, row, sizeof name), name && used < capacity;
         row += size)
        used += (size_t)snprintf(text + used, capacity - used, "%s%s", used ? ", " : "", name);
    return text;
}

const char *packing_layout_list(void) {
    static char text[256];
    return list_names(packing_layouts, sizeof *packing_layouts, text, sizeof text);
}

const char *packing_names_list(void) {
    static char text[128];
    return list_names(packing_names, sizeof *packing_names, text, sizeof text);
}

bool packing_has(const Packing *packing, PackingProjection projection, bool bias) {
    if (projection == PACKING_GATE && !packing->gated) return false;
    return !bias || packing->bias[projection];
}

/* Whether gate and up share a dataset. */
static bool is_packed(const Packing *packing) {
    return packing->gated && packing->layout->order != PACKING_APART;
}

static PackingSlot slot_of(const Packing *packing, PackingProjection projection) {
    return is_packed(packing) && projection == PACKING_UP ? PACKING_SLOT_FIRST
                                                          : (PackingSlot)projection;
}

/* How many projections a slot holds. */
static int held(const Packing *packing, PackingSlot slot, bool bias) {
    int count = 0;
    for (int p = 0; p < PACKING_PROJECTIONS; p++)
        count += slot_of(packing, (PackingProjection)p) == slot &&
                 packing_has(packing, (PackingProjection)p, bias);
    return count;
}

static const char *slot_name(const Packing *packing, PackingSlot slot) {
    const PackingNames *names = packing->names;
    if (slot == PACKING_SLOT_DOWN) return names->down;
    if (!packing->gated) return names->dense;
    if (slot == PACKING_SLOT_UP) return names->up;
    return is_packed(packing) ? names->packed : names->gate;
}

static int check_kind(const Packing *packing) {
    const PackingLayout *layout = packing->layout;
    if (!packing->gated && layout->order != PACKING_APART && layout->cut != PACKING_RANKS)
        return error_set(WEFT_USAGE, "layout %s: a dense FFN has no gate to pack with its up",
                         layout->name);
    for (int slot = 0; slot < PACKING_SLOTS; slot++)
        if (held(packing, (PackingSlot)slot, false) && !slot_name(packing, (PackingSlot)slot))
            return error_set(WEFT_USAGE, "names %s: there is none for %s of a%s FFN in layout %s",
                             packing->names->name,
                             is_packed(packing) ? "gate with up" : packing_projections[slot],
                             packing->gated ? " gated" : " dense", layout->name);
    return 0;
}

int packing_check(const Packing *packing) {
    static const int64_t most = INT64_C(1) << 40; /* elements of a weight, as in a config */
    const PackingLayout *layout = packing->layout;
    if (packing->layers < 1 || packing->d_model < 1 || packing->d_ff < 1)
        return error_set(WEFT_USAGE,
                         "%" PRId64 " layers of %" PRId64 " channels and %" PRId64
                         " columns: at least 1 of each is needed",
                         packing->layers, packing->d_ff, packing->d_model);
    if (packing->d_ff >= most / packing->d_model)
        return error_set(WEFT_USAGE, "%" PRId64 " channels of %" PRId64 " columns: too large",
                         packing->d_ff, packing->d_model);
    if (layout->cut == PACKING_WHOLE && packing->parts != 1)
        return error_set(WEFT_USAGE, "layout %s: isn't cut into parts", layout->name);
    if (packing->parts < 1 || packing->parts > SHARD_MAX || packing->parts > packing->d_ff)
        return error_set(WEFT_USAGE,
                         "layout %s: %d parts of %" PRId64 " channels: from 1 to %" PRId64
                         " are possible",
                         layout->name, packing->parts, packing->d_ff,
                         packing->d_ff < SHARD_MAX ? packing->d_ff : SHARD_MAX);
    return check_kind(packing);
}

Range packing_part(const Packing *packing, int part) {
    return shard_range(packing->d_ff, packing->parts, part);
}

void packing_shape(const Packing *packing, PackingProjection projection, bool bias, int64_t *rows,
                   int64_t *cols) {
    int64_t out = projection == PACKING_DOWN ? packing->d_model : packing->d_ff;
    int64_t in = projection == PACKING_DOWN ? packing->d_ff : packing->d_model;
    *rows = bias ? 1 : out;
    *cols = bias ? out : in;
}

int packing_groups(const Packing *packing) {
    return packing->layout->cut == PACKING_RANKS ? packing->parts : 1;
}

void packing_group_name(const Packing *packing, int group, char name[PACKING_NAME]) {
    if (packing->layout->cut == PACKING_RANKS)
        snprintf(name, PACKING_NAME, "rank-%03d", group);
    else
        snprintf(name, PACKING_NAME, "/");
}

bool packing_dataset(const Packing *packing, int layer, int group, PackingSlot slot, bool bias,
                     PackingDataset *dataset) {
    int count = held(packing, slot, bias);
    bool ranks = packing->layout->cut == PACKING_RANKS, down = slot == PACKING_SLOT_DOWN;
    int64_t channels = count * (ranks ? range_size(packing_part(packing, group)) : packing->d_ff);
    int64_t columns = packing->d_model;
    if (count == 0) return false;
    *dataset =
        (PackingDataset){.rank = bias ? 1 : 2, .channel_axis = down != packing->layout->transposed};
    snprintf(dataset->name, sizeof dataset->name, "%s%d%s%s.%s", packing->names->before, layer,
             packing->names->after, slot_name(packing, slot), bias ? "bias" : "weight");
    dataset->dims[dataset->channel_axis] = channels;
    dataset->dims[!dataset->channel_axis] = columns;
    if (bias) {
        dataset->channel_axis = 0;
        dataset->dims[0] = down ? columns : channels;
        dataset->dims[1] = 1;
    }
    return true;
}

static int part_of(const Packing *packing, int64_t channel) {
    int part = 0;
    while (!range_has(packing_part(packing, part), channel)) part++;
    return part;
}

/* For tests: rank r has the r-th of equal parts of [gate; up] [2F, D]. */
static PackingRun in_halves(const Packing *packing, PackingRun run, bool up, int64_t channel) {
    int64_t rows = 2 * packing->d_ff / packing->parts, base = up ? packing->d_ff : 0;
    int64_t part = (base + channel) / rows, begin = part * rows - base, end = begin + rows;
    run.group = (int)part;
    run.channels = (Range){begin > 0 ? begin : 0, end < packing->d_ff ? end : packing->d_ff};
    run.first = base + run.channels.begin - part * rows;
    return run;
}

PackingRun packing_run(const Packing *packing, PackingProjection projection, bool bias,
                       int64_t channel) {
    const PackingLayout *layout = packing->layout;
    int part = part_of(packing, channel);
    Range channels = packing_part(packing, part);
    PackingRun run = {.slot = slot_of(packing, projection), .channels = channels, .stride = 1};
    int64_t count = held(packing, run.slot, bias), begin = channels.begin;
    if (layout->cut == PACKING_RANKS) {
        run.group = part;
        begin = 0;
    }
    /* the branch's place among those that the dataset holds: 0 or 1 */
    bool first = count == 1 || (projection == PACKING_GATE) == (layout->order != PACKING_UP_FIRST ||
                                                                fault_on("up-gate-as-gate-up"));
    run.first = count * begin;
    if (layout->order == PACKING_IN_TURN && count > 1) {
        run.stride = count;
        run.first += !first;
    } else {
        run.first += first ? 0 : range_size(channels);
    }
    if (layout->cut == PACKING_RANKS && count == 2 && fault_on("halves-to-ranks"))
        return in_halves(packing, run, projection == PACKING_UP, channel);
    return run;
}
