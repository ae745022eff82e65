/* What is told of repeated measurements: their median, and an interval that holds the median of all
 * that could be measured with at least 95 % probability: from the k-th smallest to the k-th
 * largest, by the binomial distribution of how many values lie below the median (Conover 1999,
 * Practical Nonparametric Statistics, section 3.2). Of 7 values that is the least to the most (98.4
 * %), of 9 the second to the eighth (96.1 %); of fewer than 6, the least to the most. */
#ifndef WEFT_BENCH_FIGURE_H
#define WEFT_BENCH_FIGURE_H

enum { FIGURE_MOST = 64 }; /* values */

typedef struct {
    double value[FIGURE_MOST];
    int count;
} Series;

typedef struct {
    double median, low, high;
} Figure;

void series_add(Series *series, double value); /* beyond FIGURE_MOST it is dropped */
Figure series_figure(const Series *series);    /* NaN without a value */

/* A row: what, median / unit, name, (low .. high). No two blanks in `what` and `name`. */
void series_print(const Series *series, const char *what, double unit, const char *name);

/* How the intervals of so many values are called: "9 pairs: median (95 % interval: 2nd .. 8th)" */
void series_explain(int count);

#endif
