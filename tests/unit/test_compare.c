/* Distances between arrays, against what follows from the definition of the formats. */
#include "checkpoint/compare.h"
#include "support/support.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef WEFT_REAL64
#define TINIEST    DBL_TRUE_MIN
#define SMALLEST   DBL_MIN
#define LARGEST    DBL_MAX
#define FRACTION   52
#define next(x, y) nextafter(x, y)
typedef uint64_t Bits;
#else
#define TINIEST    FLT_TRUE_MIN
#define SMALLEST   FLT_MIN
#define LARGEST    FLT_MAX
#define FRACTION   23
#define next(x, y) nextafterf(x, y)
typedef uint32_t Bits;
#endif

static const uint64_t octave = (uint64_t)1 << FRACTION; /* numbers from x to 2 x */

static real from_bits(Bits bits) {
    real value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A quiet NaN; `payload` tells it from others. */
static real nan_of(Bits payload) {
    Bits infinity;
    real value = (real)INFINITY;
    memcpy(&infinity, &value, sizeof infinity);
    return from_bits(infinity | (Bits)(octave >> 1) | payload);
}

START_TEST(ulps_are_steps_between_neighbours) {
    const struct {
        real a, b;
        uint64_t ulps;
    } rows[] = {
        {0, 0, 0},
        {1, 1, 0},
        {1, next((real)1, 2), 1},
        {1, next((real)1, 0), 1},
        {1, 2, octave},
        {2, 4, octave},
        {(real)-3.5, next((real)-3.5, 0), 1},
        {(real)0.0, (real)-0.0, 1},
        {0, TINIEST, 1},
        {(real)-0.0, -TINIEST, 1},
        {-TINIEST, TINIEST, 3},
        {TINIEST, SMALLEST, octave - 1},
        {0, SMALLEST, octave},
        {-SMALLEST, SMALLEST, 2 * octave + 1},
        {next(SMALLEST, 0), SMALLEST, 1}, /* the largest that isn't normal */
        {LARGEST, (real)INFINITY, 1},
        {-LARGEST, (real)-INFINITY, 1},
        {-1, 1, 2 * ((sizeof(real) == 8 ? UINT64_C(1023) : UINT64_C(127)) << FRACTION) + 1},
        {(real)-INFINITY, (real)INFINITY,
         2 * ((sizeof(real) == 8 ? UINT64_C(2047) : UINT64_C(255)) << FRACTION) + 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ck_assert_msg(compare_ulps(rows[i].a, rows[i].b) == rows[i].ulps, "row %zu", i);
        ck_assert_msg(compare_ulps(rows[i].b, rows[i].a) == rows[i].ulps, "row %zu", i);
    }
}
END_TEST

/* Walking one number at a time counts the same. */
START_TEST(ulps_count_a_walk_across_zero) {
    real from = -5 * TINIEST, to = 7 * TINIEST, at = from;
    uint64_t steps = 0;
    while (at != to) {
        at = next(at, to);
        steps++;
    }
    ck_assert_uint_eq(steps, 12);
    ck_assert_uint_eq(compare_ulps(from, to), steps + 1); /* nextafter steps over -0 */
}
END_TEST

static const ParamPiece whole = {0, 0, 3, 4};

static Comparison compare(const real a[12], const real b[12]) {
    Comparison comparison = {0};
    compare_block(&comparison, whole, a, b);
    return comparison;
}

static const real plain[12] = {1, -2, 3, -4, 5, -6, 7, -8, 9, -10, 11, -12};

START_TEST(equal_bits_are_equal) {
    real b[12];
    memcpy(b, plain, sizeof b);
    Comparison c = compare(plain, b);
    ck_assert_int_eq(c.elements, 12);
    ck_assert_int_eq(c.differing, 0);
    ck_assert_uint_eq(c.ulps, 0);
    ck_assert(c.absolute == 0 && c.relative == 0 && c.scale == 12);
    ck_assert(compare_within(&c, 0));
}
END_TEST

START_TEST(the_largest_of_each_and_the_first) {
    real b[12];
    memcpy(b, plain, sizeof b);
    b[5] = next(b[5], 0); /* [1, 1]: the first */
    b[7] = (real)-8.5;    /* [1, 3]: largest absolute */
    b[9] = -10 + (real)0.25;
    Comparison c = compare(plain, b);
    ck_assert_int_eq(c.differing, 3);
    ck_assert_int_eq(c.row, 1);
    ck_assert_int_eq(c.col, 1);
    ck_assert(c.a == -6 && c.b == next((real)-6, 0));
    ck_assert(c.absolute == 0.5 && c.relative == 0.5 / 8.5);
    ck_assert_uint_eq(c.ulps, octave / 16); /* 0.5 among numbers from 8 to 16 */
    ck_assert(compare_within(&c, 0.5 / 12));
    ck_assert(!compare_within(&c, 0.49 / 12));
    ck_assert(!compare_within(&c, 0));
}
END_TEST

START_TEST(zeros_of_both_signs_differ_by_an_ulp) {
    real a[12] = {0}, b[12] = {0};
    b[6] = (real)-0.0;
    Comparison c = compare(a, b);
    ck_assert_int_eq(c.differing, 1);
    ck_assert_uint_eq(c.ulps, 1);
    ck_assert(c.absolute == 0 && c.relative == 0);
    ck_assert(!compare_within(&c, 0));
    ck_assert(compare_within(&c, 1e-30));
}
END_TEST

START_TEST(a_nan_equals_only_itself) {
    real a[12], b[12];
    memcpy(a, plain, sizeof a);
    a[2] = a[3] = a[4] = nan_of(0);
    memcpy(b, a, sizeof b);
    Comparison c = compare(a, b);
    ck_assert_int_eq(c.differing, 0);
    ck_assert(c.scale == 12);
    b[3] = nan_of(1);
    b[4] = 5;
    b[8] = (real)9.5;
    c = compare(a, b);
    ck_assert_int_eq(c.differing, 3);
    ck_assert_int_eq(c.nans, 2);
    ck_assert(c.absolute == 0.5); /* of what has a distance */
    ck_assert_int_eq(c.col, 3);
    ck_assert(isnan(c.a) && isnan(c.b));
    ck_assert(!compare_within(&c, 100));
    Comparison swapped = compare(b, a);
    ck_assert_int_eq(swapped.nans, 2);
}
END_TEST

START_TEST(infinities) {
    real a[12], b[12];
    memcpy(a, plain, sizeof a);
    a[0] = (real)INFINITY;
    memcpy(b, a, sizeof b);
    Comparison c = compare(a, b);
    ck_assert(c.differing == 0 && c.scale == 12);
    b[0] = (real)-INFINITY;
    c = compare(a, b);
    ck_assert(c.differing == 1 && isinf(c.absolute) && isinf(c.relative) && c.nans == 0);
    ck_assert(!compare_within(&c, 100));
    b[0] = LARGEST;
    c = compare(a, b);
    ck_assert(isinf(c.absolute) && isinf(c.relative) && c.ulps == 1);
    ck_assert(!compare_within(&c, 100));
}
END_TEST

START_TEST(denormals_have_distances) {
    real a[12] = {0}, b[12] = {0};
    a[11] = 3 * TINIEST;
    b[11] = 4 * TINIEST;
    Comparison c = compare(a, b);
    ck_assert_uint_eq(c.ulps, 1);
    ck_assert(c.absolute == TINIEST && c.relative == 0.25 && c.scale == 4 * TINIEST);
}
END_TEST

/* Blocks add up to the whole, with coordinates of the whole tensor. */
START_TEST(blocks_add_up) {
    enum { ROWS = 7, COLS = 5 };
    real a[ROWS * COLS], b[ROWS * COLS];
    srandom(5);
    for (int i = 0; i < ROWS * COLS; i++) {
        a[i] = (real)(random() % 1000 - 500) / 64;
        b[i] = a[i] + (i > 12 && random() % 3 == 0 ? (real)(random() % 9) / 128 : 0);
    }
    b[13] = a[13] + 1;
    Comparison all = {0}, rows = {0}, cells = {0};
    compare_block(&all, (ParamPiece){20, 30, ROWS, COLS}, a, b);
    for (int i = 0; i < ROWS; i++)
        compare_block(&rows, (ParamPiece){20 + i, 30, 1, COLS}, a + i * COLS, b + i * COLS);
    for (int i = 0; i < ROWS * COLS; i++)
        compare_block(&cells, (ParamPiece){20 + i / COLS, 30 + i % COLS, 1, 1}, a + i, b + i);
    ck_assert_int_gt(all.differing, 1);
    ck_assert_int_eq(all.row, 22);
    ck_assert_int_eq(all.col, 33);
    const Comparison *parts[] = {&rows, &cells};
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(parts[i]->elements, all.elements);
        ck_assert_int_eq(parts[i]->differing, all.differing);
        ck_assert_int_eq(parts[i]->row, all.row);
        ck_assert_int_eq(parts[i]->col, all.col);
        ck_assert_uint_eq(parts[i]->ulps, all.ulps);
        ck_assert(parts[i]->absolute == all.absolute && parts[i]->relative == all.relative);
        ck_assert(parts[i]->scale == all.scale && parts[i]->a == all.a && parts[i]->b == all.b);
    }
}
END_TEST

int main(void) {
    return run_suite("compare",
                     TESTS(ulps_are_steps_between_neighbours, ulps_count_a_walk_across_zero,
                           equal_bits_are_equal, the_largest_of_each_and_the_first,
                           zeros_of_both_signs_differ_by_an_ulp, a_nan_equals_only_itself,
                           infinities, denormals_have_distances, blocks_add_up));
}
