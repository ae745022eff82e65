#include "bench/figure.h"

#include "base/log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void series_add(Series *series, double value) {
    if (series->count < FIGURE_MOST) series->value[series->count++] = value;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The largest k >= 1 for which fewer than k of n fair coins show heads in 2.5 % of all throws at
 * most. */
static int rank_of_interval(int n) {
    double chance = pow(0.5, n), below = chance;
    int k = 1;
    for (int heads = 1; heads < n / 2; heads++) {
        chance *= (double)(n - heads + 1) / heads;
        below += chance;
        if (below > 0.025) break;
        k = heads + 1;
    }
    return k;
}

Figure series_figure(const Series *series) {
    int n = series->count;
    if (n == 0) return (Figure){NAN, NAN, NAN};
    double sorted[FIGURE_MOST];
    memcpy(sorted, series->value, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    int k = rank_of_interval(n);
    return (Figure){(sorted[(n - 1) / 2] + sorted[n / 2]) / 2, sorted[k - 1], sorted[n - k]};
}

void series_print(const Series *series, const char *what, double unit, const char *name) {
    Figure figure = series_figure(series);
    log_print("%-44s %9.3f %s  (%.3f .. %.3f)\n", what, figure.median / unit, name,
              figure.low / unit, figure.high / unit);
}

void series_explain(int count) {
    int k = rank_of_interval(count);
    if (k == 1)
        log_print("%d pairs: median (least .. most)\n", count);
    else
        log_print("%d pairs: median (95 %% interval of it: number %d .. %d in order)\n", count, k,
                  count + 1 - k);
}
