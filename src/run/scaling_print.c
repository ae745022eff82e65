#include "run/scaling_print.h"

#include "base/error.h"
#include "base/log.h"
#include "run/layout.h"
#include "run/plan_print.h"
#include "run/scaling_axes.h"

#include <limits.h>
#include <stdio.h>

enum { LAYOUTS = 3 };

static int ranks_of(const Prediction *prediction) { return prediction->tp * prediction->dp; }

/* That others had the cores too. */
static void print_spread(const ScalingSpread *spread) {
    double percent = 100 * spread->worst;
    if (spread->unquiet)
        log_print(
            "machine unquiet repeated, %d of %d shares spread over %.0f %%, tp %d by %.0f %%: "
            "figures are uncertain\n",
            spread->unquiet, spread->shares, 100 * SCALING_QUIET, spread->worst_tp,
            percent < 999 ? percent : 999);
    if (spread->others > SCALING_OTHERS)
        log_print("machine unquiet others used %.0f %% of the cores meanwhile: figures are "
                  "uncertain\n",
                  100 * spread->others);
}

static void print_head(const ScalingSearch *search) {
    const ScalingCase *scaling = &search->scaling;
    const Network *network = &scaling->network;
    log_print("a rank          %d thread%s; %d rank%s on a node\n", scaling->threads,
              scaling->threads == 1 ? "" : "s", scaling->node_ranks,
              scaling->node_ranks == 1 ? "" : "s");
    log_print("measured here   %d shares of a step, %d rank%s at once, in %.1f s\n",
              search->spread.shares, search->at_once, search->at_once == 1 ? "" : "s",
              search->seconds);
    print_spread(&search->spread);
    if (search->at_once < scaling->node_ranks)
        log_print("note: more ranks on a node than could be measured at once here\n");
    log_print("network         %g us, and %g GB/s into and out of a node; nothing overlaps\n",
              network->latency * 1e6, 1e-9 / network->seconds);
}

/* ---- layouts ---- */

static int print_layout(const ScalingSearch *search, int ranks, const Prediction *layout) {
    size_t bytes;
    int used = ranks_of(layout);
    int status = scaling_memory(&search->scaling, layout->tp, layout->dp, &bytes);
    double speed = search->one.seconds / layout->seconds;
    if (!status)
        log_print("%6d  %4d x %-4d %6d  %9.4f  %8.2f  %9.1f %%  %6.1f %%  %9.1f\n", ranks,
                  layout->tp, layout->dp, ranks - used, layout->seconds, speed, 100 * speed / ranks,
                  100 * prediction_exposed(layout) / layout->seconds, (double)bytes / 1e6);
    return status;
}

/* The best few; or that there is nothing better than on fewer ranks, `before`. */
static int print_best(const ScalingSearch *search, int ranks, int before) {
    const Prediction *layout = scaling_best(search, ranks, 0);
    int status = 0;
    if (before && before < ranks && layout == scaling_best(search, before, 0)) {
        log_print("%6d  %4d x %-4d %6d  as on %d: no more of them would be faster\n", ranks,
                  layout->tp, layout->dp, ranks - ranks_of(layout), before);
        return 0;
    }
    for (int place = 0; place < LAYOUTS && !status; place++)
        if ((layout = scaling_best(search, ranks, place)))
            status = print_layout(search, ranks, layout);
    return status;
}

/* Whether any of these numbers of ranks is more than so many times as fast as one, as printed. */
static bool is_above_ideal(const ScalingSearch *search, const int *ranks, int count) {
    bool above = false;
    for (int i = 0; i < count; i++) {
        double speed = search->one.seconds / scaling_best(search, ranks[i], 0)->seconds;
        above |= 100 * speed / ranks[i] >= 100.05;
    }
    return above;
}

static int print_layouts(const ScalingSearch *search, const int *ranks, int count) {
    int status = 0;
    log_print(
        "\n ranks    tp x dp    idle     step, s  speed-up  efficiency  exposed  MB a rank\n");
    for (int i = 0; i < count && !status; i++)
        status = print_best(search, ranks[i], i ? ranks[i - 1] : 0);
    log_print("speed-up: against one rank, %.4f s; exposed: communication; MB: of the largest\n",
              search->one.seconds);
    if (!status && is_above_ideal(search, ranks, count))
        log_print(
            "efficiency above 100 %%: smaller shares fit better in caches, or the one rank was "
            "disturbed\n");
    return status;
}

/* ---- where the time goes ---- */

static void print_breakdown(const ScalingSearch *search, const int *ranks, int count) {
    const Prediction *best[SCALING_COUNTS];
    log_print("\n%-30s", "the best layout's step, ms");
    for (int i = 0; i < count; i++) log_print(" %10d", ranks[i]);
    log_print("\n");
    for (int i = 0; i < count; i++) best[i] = scaling_best(search, ranks[i], 0);
    for (int part = 0; part < SCALING_PARTS; part++) {
        log_print("  %-28s", scaling_part_names[part]);
        for (int i = 0; i < count; i++) log_print(" %10.2f", 1e3 * best[i]->part[part]);
        log_print("\n");
    }
    log_print("  %-28s", "all");
    for (int i = 0; i < count; i++) log_print(" %10.2f", 1e3 * best[i]->seconds);
    log_print("\n");
}

/* ---- where it stops ---- */

/* Why a part doesn't halve on twice as many ranks. */
static const char *const reasons[SCALING_PARTS] = {
    [SCALING_PRODUCTS] = "uneven pieces, or too narrow to be fast",
    [SCALING_POINTWISE] = "the busiest rank's heads, channels, vocabulary",
    [SCALING_ROWS] = "all rows on each rank: see parallel.sequence",
    [SCALING_TENSOR_LATENCY] = "messages and barriers of each sum",
    [SCALING_TENSOR_BYTES] = "the bytes of each sum",
    [SCALING_DATA_LATENCY] = "messages of the sum of gradients",
    [SCALING_DATA_BYTES] = "as many gradients on any number of data ranks",
    [SCALING_OPTIMIZER] = "all parameters on each data rank",
};

static const char *reason_of(const Config *config, ScalingPart part) {
    bool cut = part == SCALING_ROWS && config->parallel.sequence;
    return cut ? "the busiest rank's rows" : reasons[part];
}

/* The parts that hinder most: those with a tenth or more of all that doesn't halve. */
static void print_obstacles(const Config *config, const Prediction *layout,
                            const Prediction *more) {
    double all = 0;
    for (int i = 0; i < SCALING_PARTS; i++) {
        double excess = scaling_excess(layout, more, i);
        all += excess > 0 ? excess : 0;
    }
    log_print("%-30s %10d %10d\n", "what stands against it, ms", ranks_of(layout), ranks_of(more));
    for (int i = 0; i < SCALING_PARTS; i++)
        if (scaling_excess(layout, more, i) > 0.1 * all)
            log_print("  %-28s %10.2f %10.2f  %s\n", scaling_part_names[i], 1e3 * layout->part[i],
                      1e3 * more->part[i], reason_of(config, i));
}

/* What the cut forbids: axes that are cut as far as they go, or whose largest piece stays. */
static void print_axes(const Config *config, const Prediction *layout, const Prediction *more) {
    ScalingAxis axis[SCALING_AXES];
    scaling_axes(config, axis);
    for (int i = 0; i < SCALING_AXES; i++) {
        bool of_data = axis[i].of_data;
        int before = of_data ? layout->dp : layout->tp, after = of_data ? more->dp : more->tp;
        long long units = axis[i].units, load = scaling_axis_load(&axis[i], after);
        if (before == after || load < scaling_axis_load(&axis[i], before)) continue;
        log_print("  %s = %lld: the busiest of %d %s ranks has %lld, as of %d\n", axis[i].key,
                  units, after, of_data ? "data" : "tensor", load, before);
    }
    if (more->dp == config->grid.data)
        log_print("  grid.data = %d: more data ranks can't be had\n", more->dp);
    if (more->tp == config->grid.tensor)
        log_print("  grid.tensor = %d: more tensor ranks can't be had\n", more->tp);
}

static void print_limit(const ScalingSearch *search) {
    const Prediction *layout, *more;
    scaling_limit(search, &layout, &more);
    const Config *config = search->scaling.config;
    int ranks = ranks_of(layout);
    const char *plural = ranks == 1 ? "" : "s";
    if (more)
        log_print("\nstops scaling at %d rank%s (%d x %d): %d (%d x %d) are %.2f times as fast, "
                  "not %.1f\n",
                  ranks, plural, layout->tp, layout->dp, ranks_of(more), more->tp, more->dp,
                  layout->seconds / more->seconds, SCALING_WORTH);
    else
        log_print("\nscales to %d rank%s (%d x %d), as many as this grid has a use for\n", ranks,
                  plural, layout->tp, layout->dp);
    if (more) print_obstacles(config, layout, more);
    print_axes(config, layout, more ? more : layout);
}

static int check(const Config *config, int node_ranks, const int *ranks, int count, int tp,
                 int dp) {
    LayoutChoice choice;
    int status = layout_choose(config, INT_MAX, 1, tp, dp, &choice); /* are they in the grid */
    int least = status ? 0 : (tp ? tp : 1) * (dp ? dp : 1);
    for (int i = 0; i < count && !status; i++)
        if (ranks[i] < least)
            status =
                error_set(WEFT_USAGE,
                          "--ranks %d: --tp %d --dp %d is a layout of %d: give --ranks %d or more",
                          ranks[i], tp ? tp : 1, dp ? dp : 1, least, least);
    if (!status && node_ranks > SHARD_MAX)
        status = error_set(WEFT_USAGE, "--ranks-per-node %d: at most %d are possible", node_ranks,
                           SHARD_MAX);
    return status;
}

int scaling_print_found(const ScalingSearch *search, const int *ranks, int count) {
    print_head(search);
    int status = print_layouts(search, ranks, count);
    if (status) return status;
    print_breakdown(search, ranks, count);
    if (!search->tp && !search->dp) print_limit(search);
    return 0;
}

static int largest(const int *ranks, int count) {
    int most = ranks[0];
    for (int i = 1; i < count; i++) most = ranks[i] > most ? ranks[i] : most;
    return most;
}

int scaling_print(const Config *config, const Network *network, int node_ranks, const int *ranks,
                  int count, int tp, int dp) {
    ScalingSearch search;
    int status = check(config, node_ranks, ranks, count, tp, dp);
    if (status) return status;
    status = scaling_search(&search, config, network, node_ranks, largest(ranks, count), tp, dp);
    if (!status) status = scaling_print_found(&search, ranks, count);
    scaling_search_release(&search);
    return status;
}
