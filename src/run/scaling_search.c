#include "run/scaling_search.h"

#include "base/clock.h"
#include "base/error.h"
#include "math/gemm.h"
#include "run/scaling_axes.h"
#include "run/setup.h"

#include <omp.h>
#include <stdlib.h>

/* Whether a layout has so many ranks of an axis's kind. */
static bool is_wanted(const Config *config, int ranks, int fixed, bool of_data) {
    return fixed ? ranks == fixed : scaling_axes_shrink(config, ranks, of_data);
}

/* ---- predictions ---- */

static int predict(const ScalingSearch *search, const ScalingMeasured *measured, int tp, int dp,
                   Prediction *prediction) {
    const ShareRates *share = tp * dp == 1 ? &measured->one : &measured->share[tp];
    return scaling_predict(&search->scaling, tp, dp, share, &measured->memory, prediction);
}

static int predict_column(ScalingSearch *search, const ScalingMeasured *measured, int tp) {
    const Config *config = search->scaling.config;
    int status = 0;
    for (int d = 1; d <= config->grid.data && tp * d <= search->most && !status; d++)
        if (is_wanted(config, d, search->dp, true))
            status = predict(search, measured, tp, d, &search->prediction[search->count++]);
    return status;
}

static int compare(const void *a, const void *b) {
    const Prediction *x = a, *y = b;
    if (x->seconds != y->seconds) return x->seconds < y->seconds ? -1 : 1;
    return x->tp * x->dp - y->tp * y->dp;
}

static int predict_all(ScalingSearch *search) {
    const Config *config = search->scaling.config;
    ScalingMeasured measured = {
        .config = config, .threads = search->scaling.threads, .at_once = search->at_once};
    int least_dp = search->dp ? search->dp : 1;
    for (int t = 1; t <= config->grid.tensor && t * least_dp <= search->most; t++)
        measured.wanted[t] = is_wanted(config, t, search->tp, false);
    int status = scaling_measure(&measured);
    search->spread = measured.spread;
    if (!status) status = predict(search, &measured, 1, 1, &search->one);
    for (int t = 1; t <= config->grid.tensor && !status; t++)
        if (measured.wanted[t]) status = predict_column(search, &measured, t);
    if (!status)
        qsort(search->prediction, (size_t)search->count, sizeof *search->prediction, compare);
    return status;
}

/* As many as a node has, and as this machine has cores for. */
static int ranks_at_once(const Config *config, int node_ranks, int threads) {
    int most = (int)(config->grid.tensor * config->grid.data);
    int at_once = setup_node_cores() / threads;
    if (at_once > node_ranks) at_once = node_ranks;
    if (at_once > most) at_once = most;
    return at_once > 1 ? at_once : 1;
}

static int check_threads(int threads) {
    int cores = setup_node_cores();
    if (threads <= cores) return 0;
    return error_set(
        WEFT_USAGE,
        "run.threads = %d: this machine has %d core%s to measure a rank's share on; "
        "predict with --set run.threads=%d, or on a machine like those that will train",
        threads, cores, cores == 1 ? "" : "s", cores);
}

int scaling_search(ScalingSearch *search, const Config *config, const Network *network,
                   int node_ranks, int most, int tp, int dp) {
    double start = clock_seconds();
    int threads = setup_threads(config, node_ranks);
    int grid = (int)(config->grid.tensor * config->grid.data);
    *search = (ScalingSearch){.scaling = {config, *network, node_ranks, threads},
                              .at_once = ranks_at_once(config, node_ranks, threads),
                              .most = (tp || dp) && most < grid ? most : grid,
                              .tp = tp,
                              .dp = dp};
    int status = check_threads(threads);
    if (status) return status;
    search->prediction = calloc((size_t)grid, sizeof *search->prediction);
    if (!search->prediction) return error_set(WEFT_RUNTIME, "out of memory: layouts to predict");
    omp_set_dynamic(0);
    status = gemm_setup();
    if (!status) status = predict_all(search);
    search->seconds = clock_seconds() - start;
    return status;
}

void scaling_search_release(ScalingSearch *search) {
    free(search->prediction);
    search->prediction = NULL;
}

/* ---- what they say ---- */

const Prediction *scaling_best(const ScalingSearch *search, int ranks, int place) {
    for (int i = 0; i < search->count; i++)
        if (search->prediction[i].tp * search->prediction[i].dp <= ranks && place-- == 0)
            return &search->prediction[i];
    return NULL;
}

/* Of layouts with more than `least` ranks and at most `most`. */
static const Prediction *best_between(const ScalingSearch *search, int least, int most) {
    const Prediction *best;
    for (int place = 0; (best = scaling_best(search, most, place)); place++)
        if (best->tp * best->dp > least) return best;
    return NULL;
}

void scaling_limit(const ScalingSearch *search, const Prediction **layout,
                   const Prediction **more) {
    const Config *config = search->scaling.config;
    int all = (int)(config->grid.tensor * config->grid.data), last = 1;
    for (int ranks = 1; ranks < all; ranks *= 2)
        if (scaling_best(search, ranks, 0)->seconds >=
            SCALING_WORTH * scaling_best(search, 2 * ranks, 0)->seconds)
            last = 2 * ranks;
    *layout = scaling_best(search, last, 0);
    *more = best_between(search, (*layout)->tp * (*layout)->dp, 2 * last);
}
