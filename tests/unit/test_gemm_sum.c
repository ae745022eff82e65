/* Sums of products up a tree, against their definition: gemm_kernel.h's element for each product,
 * and the tree's additions. */
#include "base/error.h"
#include "base/memory.h"
#include "math/gemm.h"
#include "math/gemm_kernel.h"
#include "support/arrays.h"
#include "support/support.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { FORMS = 3, MOST_THREADS = 4, MOST_TERMS = GEMM_SUM_TERMS * SHARD_MAX, SLACK = 3 };

typedef struct {
    GemmSum sum;
    GemmTerm term[MOST_TERMS];
    int64_t k; /* of all terms */
    real *memory[2 * MOST_TERMS];
    int count;
    real *c;
} Sum;

static real *operand(Sum *sum, int64_t rows, int64_t cols, int64_t ld) {
    real *x = calloc((size_t)(rows * ld + SLACK), sizeof(real));
    for (int64_t i = 0; i < rows; i++)
        array_fill(x + i * ld + SLACK, cols, 1, (uint64_t)(1000 * sum->count + i));
    sum->memory[sum->count++] = x;
    return x + SLACK;
}

static void sum_clear(Sum *sum) {
    for (int64_t i = 0; i < sum->sum.m * sum->sum.ldc; i++) sum->c[i] = (real)NAN;
}

/* Products of k[i % sizes] lines, in turn. */
static void sum_make(Sum *sum, GemmForm form, int64_t m, int64_t n, Range leaves, int terms,
                     const int64_t *k, int sizes) {
    *sum = (Sum){.sum = {.form = form, .m = m, .n = n, .leaves = leaves, .terms = terms}};
    for (int i = 0; i < range_size(leaves) * terms; i++) {
        int64_t size = k[i % sizes];
        int64_t a_rows = form == GEMM_TN ? size : m, a_cols = form == GEMM_TN ? m : size;
        int64_t b_rows = form == GEMM_NT ? n : size, b_cols = form == GEMM_NT ? size : n;
        int64_t lda = a_cols + SLACK, ldb = b_cols + 2 * SLACK;
        const real *a = operand(sum, a_rows, a_cols, lda), *b = operand(sum, b_rows, b_cols, ldb);
        sum->term[i] = (GemmTerm){size, a, lda, b, ldb};
        sum->k += size;
    }
    sum->sum.term = sum->term;
    sum->sum.ldc = n + SLACK;
    sum->c = malloc((size_t)(m * (n + SLACK)) * sizeof(real));
    sum->sum.c = sum->c;
    sum_clear(sum);
}

static void sum_free(Sum *sum) {
    for (int i = 0; i < sum->count; i++) free(sum->memory[i]);
    free(sum->c);
}

#ifdef WEFT_REAL64
#define FMA fma
#else
#define FMA fmaf
#endif

static real leaf_element(const GemmSum *sum, int s, int64_t i, int64_t j) {
    const GemmTerm *term = sum->term + (s - sum->leaves.begin) * sum->terms;
    real c = 0;
    for (int t = 0; t < sum->terms; t++, term++) {
        for (int64_t begin = 0; begin < term->k; begin += GEMM_BLOCK) {
            real chain = 0;
            for (int64_t q = begin; q < term->k && q < begin + GEMM_BLOCK; q++) {
                real a =
                    sum->form == GEMM_TN ? term->a[q * term->lda + i] : term->a[i * term->lda + q];
                real b =
                    sum->form == GEMM_NT ? term->b[j * term->ldb + q] : term->b[q * term->ldb + j];
                chain = FMA(a, b, chain);
            }
            c = t > 0 || begin > 0 ? c + chain : chain;
        }
    }
    return c;
}

static real tree_element(const GemmSum *sum, int begin, int end, int64_t i, int64_t j) {
    if (end - begin == 1) return leaf_element(sum, begin, i, j);
    int middle = tree_split(begin, end);
    return tree_element(sum, begin, middle, i, j) + tree_element(sum, middle, end, i, j);
}

/* Rounds: into how many parts memory makes the columns fall, at least; 0: there is enough. */
static void sum_run(Sum *sum, int threads, int rounds) {
    int leaves = (int)range_size(sum->sum.leaves);
    int64_t m = rounds ? 1000 : sum->sum.m;
    int64_t n = rounds ? (sum->sum.n + rounds - 1) / rounds : sum->sum.n;
    size_t bytes = gemm_sum_scratch(m, n, sum->k, leaves, threads);
    char *memory = memory_allocate((size_t)threads * bytes, "scratch");
    ck_assert_ptr_nonnull(memory);
    gemm_sum_run(&sum->sum, threads, memory, (size_t)threads * bytes);
    free(memory);
}

static real defined(const GemmSum *sum, int64_t i, int64_t j) {
    return tree_element(sum, (int)sum->leaves.begin, (int)sum->leaves.end, i, j);
}

/* All of C, as sum_make leaves it beyond its columns. */
static real *sum_define(const Sum *sum) {
    const GemmSum *s = &sum->sum;
    real *want = malloc((size_t)(s->m * s->ldc) * sizeof(real));
    for (int64_t i = 0; i < s->m; i++)
        for (int64_t j = 0; j < s->ldc; j++)
            want[i * s->ldc + j] = j < s->n ? defined(s, i, j) : (real)NAN;
    return want;
}

static void setup(void) { ck_assert_msg(!gemm_setup(), "%s", error_message()); }

static const struct {
    int64_t m, n;
    Range leaves;
    int terms;
    int64_t k[4];
    int sizes, rounds;
} cases[] = {
    {1, 1, {0, 1}, 1, {1}, 1, 0},
    {5, 7, {0, 8}, 3, {12, 4, 4}, 3, 0},   /* several leaves in one block of k */
    {13, 33, {0, 2}, 1, {256, 257}, 2, 0}, /* a right leaf in one piece, and in two */
    {13, 33, {0, 2}, 1, {257, 256}, 2, 0},
    {31, 70, {4, 8}, 2, {96, 600, 32}, 3, 0},   /* not the first subtree, long terms */
    {40, 50, {0, 5}, 1, {130, 0, 7, 33}, 4, 0}, /* nothing of some leaves */
    {9, 40, {0, 6}, 3, {0, 5, 300, 0}, 4, 0},   /* nothing of some terms */
    {17, 19, {0, 3}, 2, {0}, 1, 0},             /* nothing at all */
    {130, 300, {0, 7}, 1, {172}, 1, 3},         /* columns in several rounds */
    {300, 96, {0, 64}, 1, {5, 3}, 2, 0},        /* as deep as trees are, pieces of rows */
    {20, 1200, {0, 4}, 2, {40, 31, 22}, 3, 0},  /* more columns than are packed at once */
    {270, 260, {0, 4}, 1, {900, 260}, 2, 2},    /* more lines than a piece is packed of */
};

/* Case i by each kernel. */
static void check_case(size_t i, GemmForm form) {
    int threads = 1 + (int)(i + form) % MOST_THREADS;
    Sum sum;
    sum_make(&sum, form, cases[i].m, cases[i].n, cases[i].leaves, cases[i].terms, cases[i].k,
             cases[i].sizes);
    real *want = sum_define(&sum);
    for (int kernel = 0; gemm_kernels[kernel]; kernel++) {
        if (gemm_choose(gemm_kernels[kernel]->name)) continue;
        sum_clear(&sum);
        sum_run(&sum, threads, cases[i].rounds);
        for (int64_t row = 0; row < sum.sum.m; row++)
            ck_assert_msg(
                array_same(sum.c + row * sum.sum.ldc, want + row * sum.sum.ldc, sum.sum.ldc),
                "case %d, form %d, %s: row %d", (int)i, form, gemm_kernel_name(), (int)row);
    }
    free(want);
    sum_free(&sum);
}

START_TEST(sums_are_what_they_are_defined_to_be) {
    setup();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int form = 0; form < FORMS; form++) check_case(i, (GemmForm)form);
}
END_TEST

START_TEST(bits_depend_on_neither_threads_nor_memory) {
    setup();
    const int64_t k[] = {96, 32, 32};
    Sum want, sum;
    sum_make(&want, GEMM_NN, 500, 200, (Range){0, 8}, 3, k, 3);
    sum_run(&want, 1, 0);
    for (int threads = 1; threads <= MOST_THREADS; threads++)
        for (int rounds = 0; rounds < 5; rounds += 2) {
            sum_make(&sum, GEMM_NN, 500, 200, (Range){0, 8}, 3, k, 3);
            sum_run(&sum, threads, rounds);
            for (int64_t i = 0; i < 500; i++)
                ck_assert_msg(
                    !memcmp(sum.c + i * sum.sum.ldc, want.c + i * want.sum.ldc, 200 * sizeof(real)),
                    "row %d by %d threads, %d rounds", (int)i, threads, rounds);
            sum_free(&sum);
        }
    sum_free(&want);
}
END_TEST

typedef struct {
    const Sum *sum;
    unsigned char *times; /* [m, n] */
    atomic_int wrong;     /* told of before they were done */
} Told;

static void tell(void *context, Range rows, Range cols) {
    Told *told = context;
    for (int64_t i = rows.begin; i < rows.end; i++)
        for (int64_t j = cols.begin; j < cols.end; j++) {
            told->times[i * told->sum->sum.n + j]++;
            told->wrong +=
                told->sum->c[i * told->sum->sum.ldc + j] != defined(&told->sum->sum, i, j);
        }
}

START_TEST(each_element_is_told_of_once_when_it_is_done) {
    setup();
    const int64_t k[] = {70, 300};
    for (int threads = 1; threads <= 3; threads++) {
        Sum sum;
        sum_make(&sum, GEMM_NT, 210, 270, (Range){0, 3}, 2, k, 2);
        Told told = {&sum, calloc(210 * 270, 1), 0};
        sum.sum.after = tell;
        sum.sum.context = &told;
        sum_run(&sum, threads, threads - 1);
        ck_assert_int_eq(told.wrong, 0);
        for (int i = 0; i < 210 * 270; i++) ck_assert_int_eq(told.times[i], 1);
        free(told.times);
        sum_free(&sum);
    }
}
END_TEST

/* The control: the tests above see another order. */
START_TEST(another_tree_has_other_bits) {
    setup();
    const int64_t k[] = {50};
    Sum sum;
    int differ = 0;
    sum_make(&sum, GEMM_NT, 30, 30, (Range){0, 4}, 1, k, 1);
    sum_run(&sum, 1, 0);
    for (int64_t i = 0; i < 30; i++)
        for (int64_t j = 0; j < 30; j++) {
            real chain = 0;
            for (int s = 0; s < 4; s++) chain += leaf_element(&sum.sum, s, i, j);
            differ += chain != sum.sum.c[i * sum.sum.ldc + j];
        }
    ck_assert_int_gt(differ, 100);
    sum_free(&sum);
}
END_TEST

int main(void) {
    return run_suite("gemm_sum", TESTS(sums_are_what_they_are_defined_to_be,
                                       bits_depend_on_neither_threads_nor_memory,
                                       each_element_is_told_of_once_when_it_is_done,
                                       another_tree_has_other_bits));
}
