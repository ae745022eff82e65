/* Each product of one layer and the head, as training calls it, against BLAS at the same shape (all
 * shards and weights as one product) and at 2048 squared. */
#include "base/error.h"
#include "base/log.h"
#include "bench/figure.h"
#include "bench/one_layer.h"

#include <stdio.h>

enum { ENTRIES = PRODUCT_GROUPS * PRODUCT_PASSES };

/* Enough work to be timed: what is smaller is done several times. */
static const double LEAST_OPERATIONS = 2e9;

typedef struct {
    const ProductGroup *group;
    ProductPass pass;
    ProductShape shape;
    int times;
    Series of_shape, of_square;
} Entry;

typedef struct {
    const Bench *bench;
    OneLayer layer;
    Yardstick yardstick;
    ProductGroup group[PRODUCT_GROUPS];
    Entry entry[ENTRIES];
    ProductShape shape[ENTRIES]; /* the entries' */
    int entries;
    const Entry *now; /* what run_entry runs */
    Series each, whole, alone, list_of_shapes, list_of_square, scaling, blas_scaling;
} Sgemm;

static void list_entries(Sgemm *sgemm) {
    int groups = one_layer_products(&sgemm->layer, sgemm->group);
    for (int g = 0; g < groups; g++)
        for (int pass = 0; pass < PRODUCT_PASSES; pass++) {
            Entry *entry = &sgemm->entry[sgemm->entries];
            *entry = (Entry){.group = &sgemm->group[g], .pass = (ProductPass)pass};
            entry->shape = product_shape(entry->group, entry->pass);
            double operations = shape_operations(entry->shape);
            entry->times = operations < LEAST_OPERATIONS ? (int)(LEAST_OPERATIONS / operations) : 1;
            if (entry->times > 100) entry->times = 100;
            sgemm->shape[sgemm->entries++] = entry->shape;
        }
}

static int run_entry(void *context) {
    Sgemm *sgemm = context;
    return product_run(&sgemm->layer, sgemm->now->group, sgemm->now->pass);
}

static double entry_seconds(Sgemm *sgemm, const Entry *entry, int *status) {
    sgemm->now = entry;
    return bench_seconds(sgemm->bench->grid, run_entry, sgemm, entry->times, status);
}

static double list_seconds(Sgemm *sgemm, int threads, int *status) {
    double seconds = 0;
    sgemm->layer.model.space.threads = threads;
    for (int e = 0; e < sgemm->entries && !*status; e++)
        seconds += entry_seconds(sgemm, &sgemm->entry[e], status);
    sgemm->layer.model.space.threads = sgemm->bench->threads;
    return seconds;
}

/* Of the list on all threads against one, and of BLAS. */
static int take_scaling(Sgemm *sgemm, double each, double alone) {
    int status = 0, threads = sgemm->bench->threads;
    if (threads == 1) return 0;
    double one = list_seconds(sgemm, 1, &status), all = 0;
    if (!status) all = list_seconds(sgemm, threads, &status);
    series_add(&sgemm->scaling, one / all / threads);
    series_add(&sgemm->blas_scaling, each / alone);
    return status;
}

/* What one pair finds of all entries. */
typedef struct {
    double each[ENTRIES], whole[ENTRIES], ours[ENTRIES]; /* rates a core; seconds */
} Round;

static void add_round(Sgemm *sgemm, const Round *round, YardstickRates square) {
    double operations = 0, ours = 0, theirs = 0;
    for (int e = 0; e < sgemm->entries; e++) {
        Entry *entry = &sgemm->entry[e];
        bool whole = round->whole[e] > round->each[e];
        double work = shape_operations(entry->shape);
        double rate = (whole ? round->whole[e] : round->each[e]) * sgemm->yardstick.cores;
        series_add(&entry->of_shape, work / round->ours[e] / rate);
        series_add(&entry->of_square, work / round->ours[e] / square.best);
        operations += work;
        ours += round->ours[e];
        theirs += work / rate;
    }
    series_add(&sgemm->each, square.each);
    series_add(&sgemm->whole, square.whole);
    series_add(&sgemm->list_of_shapes, theirs / ours);
    series_add(&sgemm->list_of_square, operations / ours / square.best);
}

/* Every entry in turn with BLAS at its shape. */
static int take_pair(Sgemm *sgemm) {
    Round round;
    YardstickRates square = yardstick_square_rates(&sgemm->yardstick);
    int status = 0;
    for (int e = 0; e < sgemm->entries && !status; e++) {
        const Entry *entry = &sgemm->entry[e];
        round.each[e] = yardstick_each(&sgemm->yardstick, entry->shape, entry->times);
        round.ours[e] = entry_seconds(sgemm, entry, &status);
    }
    if (status) return status;
    yardstick_whole(&sgemm->yardstick, sgemm->shape, sgemm->entries, 1, round.whole);
    add_round(sgemm, &round, square);
    double alone = yardstick_alone(&sgemm->yardstick, yardstick_square);
    series_add(&sgemm->alone, alone);
    return take_scaling(sgemm, square.each, alone);
}

static void print_entry(const Entry *entry) {
    static const char *const pass[] = {"forward", "input gradient", "weight gradient"};
    char what[64], name[96];
    snprintf(what, sizeof what, "%s %s / BLAS", entry->group->name, pass[entry->pass]);
    snprintf(name, sizeof name, "of its rate at %lld x %lld x %lld", (long long)entry->shape.m,
             (long long)entry->shape.n, (long long)entry->shape.k);
    series_print(&entry->of_shape, what, 1, name);
    snprintf(what, sizeof what, "%s %s / sgemm 2048", entry->group->name, pass[entry->pass]);
    series_print(&entry->of_square, what, 1, "of the rate");
}

static void print(const Sgemm *sgemm) {
    char what[64];
    int threads = sgemm->bench->threads;
    const char *unit = "GF/s per core";
    series_print(&sgemm->each, "gemm 2048, one call a core", 1e9, unit);
    if (series_figure(&sgemm->whole).median > 0)
        series_print(&sgemm->whole, "gemm 2048, one call on all cores", 1e9, unit);
    series_print(&sgemm->alone, "gemm 2048, one core alone", 1e9, unit);
    for (int e = 0; e < sgemm->entries; e++) print_entry(&sgemm->entry[e]);
    series_print(&sgemm->list_of_shapes, "call list / BLAS at the same shapes", 1, "of its rate");
    series_print(&sgemm->list_of_square, "call list / gemm on all cores", 1, "of the rate");
    if (threads == 1) return;
    snprintf(what, sizeof what, "call list on %d threads / on 1", threads);
    series_print(&sgemm->scaling, what, 1, "of the rate per thread");
    snprintf(what, sizeof what, "gemm 2048 on %d cores / on 1", threads);
    series_print(&sgemm->blas_scaling, what, 1, "of the rate per core");
}

static int measure(Sgemm *sgemm) {
    int status = 0;
    list_seconds(sgemm, sgemm->bench->threads, &status);
    for (int i = 0; i < sgemm->bench->pairs && !status; i++) {
        status = take_pair(sgemm);
        log_info("pair %d of %d", i + 1, sgemm->bench->pairs);
    }
    if (!status) print(sgemm);
    return status;
}

int bench_sgemm(const Bench *bench) {
    Sgemm sgemm = {.bench = bench};
    int status = one_layer_open(&sgemm.layer, bench);
    if (!status) {
        list_entries(&sgemm);
        status = yardstick_open(&sgemm.yardstick, bench->grid, bench->threads, sgemm.shape,
                                sgemm.entries);
    }
    if (!status) status = measure(&sgemm);
    yardstick_close(&sgemm.yardstick);
    if (!status || error_is_agreed()) one_layer_close(&sgemm.layer);
    return status;
}
