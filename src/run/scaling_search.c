#include "run/scaling_search.h"

#include "base/clock.h"
#include "base/error.h"
#include "math/gemm.h"
#include "run/scaling_axes.h"
#include "run/setup.h"

#include <omp.h>
#include <stdlib.h>

/* ---- measuring ---- */

enum { ROUNDS = 2 };

/* What the predictions go by. */
typedef struct {
    bool wanted[SHARD_MAX + 1];
    ShareRates one, share[SHARD_MAX + 1]; /* one rank alone on its node; a rank of so many */
    MemoryRates memory;
} Measured;

static bool is_wanted(const Config *config, int ranks, int fixed, bool of_data) {
    return fixed ? ranks == fixed : scaling_axes_shrink(config, ranks, of_data);
}

static double total(const ShareRates *share) {
    double sum = share->zero + share->add + share->norm + share->update;
    for (int i = 0; i < STEP_PARTS; i++) sum += share->part[i];
    return sum;
}

/* *fastest becomes this round's where that was less disturbed. */
static int measure_share(ScalingSearch *search, int round, int tp, int at_once,
                         ShareRates *fastest) {
    ShareRates share;
    RatesNode node = {search->scaling.threads, at_once};
    int status = rates_share(search->scaling.config, node, tp, &share);
    if (status) return status;
    search->shares += round == 0;
    if (round == 0 || total(&share) < total(fastest)) *fastest = share;
    return 0;
}

static int measure_memory(const ScalingSearch *search, int round, MemoryRates *fastest) {
    MemoryRates memory;
    int status = rates_memory((RatesNode){search->scaling.threads, search->at_once}, &memory);
    if (!status && (round == 0 || memory.copy[1] < fastest->copy[1])) *fastest = memory;
    return status;
}

static int measure_all(ScalingSearch *search, Measured *measured) {
    int64_t tensor = search->scaling.config->grid.tensor;
    int status = 0;
    for (int round = 0; round < ROUNDS && !status; round++) {
        status = measure_memory(search, round, &measured->memory);
        if (!status) status = measure_share(search, round, 1, 1, &measured->one);
        for (int tp = 1; tp <= tensor && !status; tp++)
            if (measured->wanted[tp])
                status = measure_share(search, round, tp, search->at_once, &measured->share[tp]);
    }
    return status;
}

/* ---- predictions ---- */

static int predict(const ScalingSearch *search, const Measured *measured, int tp, int dp,
                   Prediction *prediction) {
    const ShareRates *share = tp * dp == 1 ? &measured->one : &measured->share[tp];
    return scaling_predict(&search->scaling, tp, dp, share, &measured->memory, prediction);
}

static int predict_column(ScalingSearch *search, const Measured *measured, int tp, int dp) {
    const Config *config = search->scaling.config;
    int status = 0;
    for (int d = 1; d <= config->grid.data && !status; d++)
        if (is_wanted(config, d, dp, true))
            status = predict(search, measured, tp, d, &search->prediction[search->count++]);
    return status;
}

static int compare(const void *a, const void *b) {
    const Prediction *x = a, *y = b;
    if (x->seconds != y->seconds) return x->seconds < y->seconds ? -1 : 1;
    return x->tp * x->dp - y->tp * y->dp;
}

static int predict_all(ScalingSearch *search, int tp, int dp) {
    const Config *config = search->scaling.config;
    Measured measured = {.wanted = {false}};
    for (int t = 1; t <= config->grid.tensor; t++)
        measured.wanted[t] = is_wanted(config, t, tp, false);
    int status = measure_all(search, &measured);
    if (!status) status = predict(search, &measured, 1, 1, &search->one);
    for (int t = 1; t <= config->grid.tensor && !status; t++)
        if (measured.wanted[t]) status = predict_column(search, &measured, t, dp);
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

int scaling_search(ScalingSearch *search, const Config *config, const Network *network,
                   int node_ranks, int tp, int dp) {
    double start = clock_seconds();
    int threads = setup_threads(config, node_ranks);
    *search =
        (ScalingSearch){.scaling = {config, *network, node_ranks, threads},
                        .at_once = ranks_at_once(config, node_ranks, threads),
                        .prediction = calloc((size_t)(config->grid.tensor * config->grid.data),
                                             sizeof *search->prediction)};
    if (!search->prediction) return error_set(WEFT_RUNTIME, "out of memory: layouts to predict");
    omp_set_dynamic(0);
    int status = gemm_setup();
    if (!status) status = predict_all(search, tp, dp);
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
