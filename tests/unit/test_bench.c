/* What the bench reckons with: medians and their intervals, and a stopwatch whose parts add up. */
#include "base/clock.h"
#include "base/error.h"
#include "bench/bench.h"
#include "bench/figure.h"
#include "bench/yardstick.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

/* 1 .. n in another order. */
static Series numbers(int n) {
    Series series = {0};
    for (int i = 0; i < n; i++) series_add(&series, (double)(i * 7 % n + 1));
    return series;
}

/* From Conover's tables of the binomial distribution at p = 1/2. */
START_TEST(medians_have_intervals) {
    const struct {
        int n;
        double median, low, high;
    } row[] = {{1, 1, 1, 1},      {5, 3, 1, 5},   {6, 3.5, 1, 6},   {8, 4.5, 1, 8},
               {9, 5, 2, 8},      {11, 6, 2, 10}, {12, 6.5, 3, 10}, {15, 8, 4, 12},
               {20, 10.5, 6, 15}, {25, 13, 8, 18}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Series series = numbers(row[i].n);
        Figure figure = series_figure(&series);
        ck_assert_msg(figure.median == row[i].median && figure.low == row[i].low &&
                          figure.high == row[i].high,
                      "of %d values: %g (%g .. %g)", row[i].n, figure.median, figure.low,
                      figure.high);
    }
    ck_assert(isnan(series_figure(&(Series){0}).median));
}
END_TEST

START_TEST(a_full_series_takes_no_more) {
    Series series = numbers(FIGURE_MOST);
    series_add(&series, 1e9);
    ck_assert_int_eq(series.count, FIGURE_MOST);
    ck_assert(series_figure(&series).high < 1e9);
}
END_TEST

START_TEST(time_goes_to_the_innermost_part) {
    Stopwatch watch;
    double start = clock_seconds(), sum = 0;
    stopwatch_start(&watch);
    clock_sleep(0.002);
    stopwatch_begin(&watch, STEP_FFN);
    clock_sleep(0.004);
    stopwatch_begin_products(&watch);
    clock_sleep(0.008);
    stopwatch_end(&watch);
    stopwatch_end(&watch);
    stopwatch_begin_products(&watch); /* nobody's: the rest's */
    clock_sleep(0.002);
    stopwatch_end(&watch);
    stopwatch_stop(&watch);
    double all = clock_seconds() - start;
    for (int p = 0; p < STEP_PARTS; p++) sum += watch.seconds[p];
    ck_assert_msg(sum <= all && sum >= 0.016, "%g of %g", sum, all);
    ck_assert(watch.seconds[STEP_FFN] >= 0.004 && watch.seconds[STEP_FFN_PRODUCTS] >= 0.008);
    ck_assert(watch.seconds[STEP_REST] >= 0.004);
    ck_assert(watch.seconds[STEP_ATTENTION] == 0);
    stopwatch_begin(NULL, STEP_FFN);
    stopwatch_begin_products(NULL);
    stopwatch_end(NULL);
}
END_TEST

/* What threads do aside within a region of products: the sum stays. */
START_TEST(time_aside_goes_to_its_own_part) {
    enum { THREADS = 2 };
    Stopwatch watch;
    StopwatchAside aside = {0};
    double sum = 0, start = clock_seconds();
    stopwatch_start(&watch);
    stopwatch_begin(&watch, STEP_FFN);
    stopwatch_begin_products(&watch);
#pragma omp parallel num_threads(THREADS)
    {
        double since = stopwatch_aside(&watch);
        clock_sleep(0.01);
        stopwatch_add(&watch, &aside, since);
    }
    stopwatch_end(&watch);
    stopwatch_move(&watch, &aside, THREADS, stopwatch_products(&watch), stopwatch_part(&watch));
    stopwatch_move(&watch, &aside, THREADS, STEP_FFN_PRODUCTS, STEP_RESIDUAL); /* once */
    stopwatch_end(&watch);
    stopwatch_stop(&watch);
    double all = clock_seconds() - start;
    for (int p = 0; p < STEP_PARTS; p++) sum += watch.seconds[p];
    ck_assert_msg(sum <= all && sum >= 0.01, "%g of %g", sum, all);
    ck_assert(watch.seconds[STEP_FFN] >= 0.01 && watch.seconds[STEP_RESIDUAL] == 0);
    ck_assert(watch.seconds[STEP_FFN_PRODUCTS] < sum - 0.01);
    double since = stopwatch_aside(NULL);
    stopwatch_add(NULL, &aside, since);
    stopwatch_move(NULL, &aside, THREADS, STEP_FFN_PRODUCTS, STEP_FFN);
}
END_TEST

START_TEST(every_part_of_a_step_has_a_name_of_its_own) {
    for (int p = 0; p < STEP_PARTS; p++)
        for (int q = 0; q < p; q++)
            ck_assert_str_ne(stopwatch_part_name((StepPart)p), stopwatch_part_name((StepPart)q));
}
END_TEST

START_TEST(parts_are_found_by_name) {
    const BenchPart *part;
    for (const BenchPart *row = bench_parts; row->name; row++) {
        ck_assert_int_eq(bench_find(row->name, &part), 0);
        ck_assert_ptr_eq(part, row);
        ck_assert(row->summary && row->run);
    }
    ck_assert_int_eq(bench_find(NULL, &part), 0);
    ck_assert_str_eq(part->name, "step");
    ck_assert_int_eq(bench_find("steps", &part), WEFT_USAGE);
    for (const BenchPart *row = bench_parts; row->name; row++)
        ck_assert(strstr(error_message(), row->name));
}
END_TEST

START_TEST(the_yardstick_measures_rates) {
    Grid grid;
    Yardstick yardstick;
    ProductShape shape = {GEMM_TN, 300, 700, 5000};
    grid_serial(&grid);
    ck_assert_int_eq(gemm_setup(), 0);
    ck_assert_int_eq(yardstick_open(&yardstick, &grid, 2, &shape, 1), 0);
    ck_assert(yardstick_each(&yardstick, shape, 2) > 1e8);
    double whole = 0;
    yardstick_whole(&yardstick, &shape, 1, 1, &whole);
    ck_assert(whole > 1e8);
    YardstickRates rates = yardstick_square_rates(&yardstick);
    ck_assert(rates.best >= 2 * rates.each && rates.best >= 2 * rates.whole);
    yardstick_close(&yardstick);
}
END_TEST

int main(void) {
    return run_suite("bench",
                     TESTS(medians_have_intervals, a_full_series_takes_no_more,
                           time_goes_to_the_innermost_part, time_aside_goes_to_its_own_part,
                           every_part_of_a_step_has_a_name_of_its_own, parts_are_found_by_name,
                           the_yardstick_measures_rates));
}
