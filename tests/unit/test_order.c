/* The sample order: a permutation in every epoch, other ones for other seeds and epochs. */
#include "data/order.h"
#include "support/support.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

START_TEST(order_is_a_permutation) {
    static const int64_t sizes[] = {1,  2,  3,  4,  5,   7,   8,   13,   16,   17,   31,
                                    64, 65, 97, 99, 127, 255, 257, 1009, 4095, 4096, 4097};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int64_t n = sizes[i];
        bool *seen = malloc((size_t)n);
        for (int64_t epoch = 0; epoch < 5; epoch++) {
            SampleOrder order = {.seed = 42 + (uint64_t)i, .samples = n};
            memset(seen, 0, (size_t)n);
            for (int64_t index = 0; index < n; index++) {
                int64_t sample = order_permute(&order, epoch, index);
                ck_assert(sample >= 0 && sample < n);
                ck_assert_msg(!seen[sample], "n %ld: sample %ld twice", (long)n, (long)sample);
                seen[sample] = true;
            }
        }
        free(seen);
    }
}
END_TEST

static int compare_int64(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

START_TEST(large_orders_stay_in_range_and_distinct) {
    static const int64_t sizes[] = {1000003, INT64_C(4294967296), INT64_C(1000000000039),
                                    (INT64_C(1) << 62) - 1};
    enum { SPOTS = 4000 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        SampleOrder order = {.seed = 3, .samples = sizes[i]};
        static int64_t sample[SPOTS];
        for (int64_t k = 0; k < SPOTS; k++) {
            sample[k] = order_permute(&order, 1, k < SPOTS / 2 ? k : sizes[i] - 1 - k);
            ck_assert(sample[k] >= 0 && sample[k] < sizes[i]);
        }
        qsort(sample, SPOTS, sizeof sample[0], compare_int64);
        for (int k = 1; k < SPOTS; k++) ck_assert_int_ne(sample[k], sample[k - 1]);
        /* consecutive places are spread over the whole source */
        ck_assert(sample[SPOTS / 2] > sizes[i] / 3 && sample[SPOTS / 2] < sizes[i] / 3 * 2);
    }
}
END_TEST

/* How many of n places hold the same sample in two orders; about 1 for independent ones. */
static int agreements(SampleOrder a, int64_t epoch_a, SampleOrder b, int64_t epoch_b) {
    int equal = 0;
    for (int64_t i = 0; i < a.samples; i++)
        equal += order_permute(&a, epoch_a, i) == order_permute(&b, epoch_b, i);
    return equal;
}

START_TEST(seeds_and_epochs_differ) {
    SampleOrder order = {.seed = 1, .samples = 1000};
    SampleOrder other = {.seed = 2, .samples = 1000};
    SampleOrder far = {.seed = 1 + (UINT64_C(1) << 32), .samples = 1000};
    ck_assert_int_eq(agreements(order, 0, order, 0), 1000);
    ck_assert_int_lt(agreements(order, 0, other, 0), 20);
    ck_assert_int_lt(agreements(order, 0, far, 0), 20);
    ck_assert_int_lt(agreements(order, 0, order, 1), 20);
    ck_assert_int_lt(agreements(order, 0, order, INT64_C(1) << 32), 20);
}
END_TEST

/* Over many epochs every sample comes to every place about equally often. */
START_TEST(places_are_evenly_taken) {
    for (int64_t n = 2; n <= 9; n++) {
        enum { EPOCHS = 9000 };
        int count[9][9] = {{0}};
        SampleOrder order = {.seed = 5, .samples = n};
        for (int64_t epoch = 0; epoch < EPOCHS; epoch++)
            for (int64_t i = 0; i < n; i++) count[i][order_permute(&order, epoch, i)]++;
        double expected = (double)EPOCHS / (double)n;
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++)
                ck_assert_double_lt(fabs(count[i][j] - expected), 5 * sqrt(expected));
    }
}
END_TEST

/* Computed by another implementation, in Python, of Philox and of the network. */
START_TEST(order_version_1_is_what_it_was) {
    static const int64_t expected[2][10] = {{6, 3, 1, 0, 8, 5, 9, 4, 2, 7},
                                            {6, 5, 1, 0, 7, 4, 3, 8, 2, 9}};
    SampleOrder order = {.seed = 1, .samples = 10};
    ck_assert_int_eq(ORDER_VERSION, 1);
    for (int64_t epoch = 0; epoch < 2; epoch++)
        for (int64_t i = 0; i < 10; i++)
            ck_assert_int_eq(order_permute(&order, epoch, i), expected[epoch][i]);
    SampleOrder large = {.seed = UINT64_C(5) << 32 | 9, .samples = INT64_C(1000000000039)};
    ck_assert_int_eq(order_permute(&large, (INT64_C(1) << 33) + 1, 12345), INT64_C(369468092709));
}
END_TEST

/* Steps run through the epochs without a gap, also when a batch lies across a border. */
START_TEST(every_sample_once_per_epoch) {
    static const int64_t batches[] = {1, 4, 7, 11};
    enum { SAMPLES = 11, EPOCHS = 6 };
    for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++) {
        SampleOrder order = {.seed = 9, .samples = SAMPLES};
        int count[EPOCHS + 1][SAMPLES] = {{0}};
        for (int64_t position = 0; position < EPOCHS * SAMPLES; position++) {
            int64_t step = position / batches[b], place = position % batches[b];
            count[position / SAMPLES][order_sample(&order, step, batches[b], place)]++;
        }
        for (int epoch = 0; epoch < EPOCHS; epoch++)
            for (int i = 0; i < SAMPLES; i++) ck_assert_int_eq(count[epoch][i], 1);
    }
}
END_TEST

int main(void) {
    return run_suite("order", TESTS(order_is_a_permutation, large_orders_stay_in_range_and_distinct,
                                    seeds_and_epochs_differ, places_are_evenly_taken,
                                    order_version_1_is_what_it_was, every_sample_once_per_epoch));
}
