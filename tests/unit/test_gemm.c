#include "math/gemm.h"

#include "base/error.h"
#include "base/memory.h"
#include "math/gemm_kernel.h"
#include "support/arrays.h"
#include "support/support.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { FORMS = 3 };

/* The operands of one product with odd strides and unaligned starts. */
typedef struct {
    GemmCall call;
    real *a, *b, *c;
} Product;

static int64_t a_rows(const GemmCall *p) { return p->form == GEMM_TN ? p->k : p->m; }
static int64_t b_rows(const GemmCall *p) { return p->form == GEMM_NT ? p->n : p->k; }

/* Strides exceed the row lengths by `slack`, arrays start `slack` elements late; values depend on
 * neither. */
static Product product_make(GemmForm form, int64_t m, int64_t n, int64_t k, bool add,
                            int64_t slack) {
    Product p = {.call = {form, m, n, k, NULL, 0, NULL, 0, (real)0.75, add, NULL, 0}};
    int64_t a_cols = form == GEMM_TN ? m : k, b_cols = form == GEMM_NT ? k : n;
    p.call.lda = a_cols + slack;
    p.call.ldb = b_cols + 2 * slack;
    p.call.ldc = n + 3 * slack;
    p.a = calloc((size_t)(a_rows(&p.call) * p.call.lda + slack + 1), sizeof(real));
    p.b = calloc((size_t)(b_rows(&p.call) * p.call.ldb + slack + 1), sizeof(real));
    p.c = calloc((size_t)(m * p.call.ldc + slack + 1), sizeof(real));
    p.call.a = p.a + slack;
    p.call.b = p.b + slack;
    p.call.c = p.c + slack;
    for (int64_t i = 0; i < a_rows(&p.call); i++) {
        array_fill(p.a + slack + i * p.call.lda, a_cols, 1, (uint64_t)(1000 + i));
    }
    for (int64_t i = 0; i < b_rows(&p.call); i++) {
        array_fill(p.b + slack + i * p.call.ldb, b_cols, 1, (uint64_t)(90000 + i));
    }
    for (int64_t i = 0; i < m; i++) {
        real *row = p.call.c + i * p.call.ldc;
        array_fill(row, n, 1, (uint64_t)(500000 + i));
        for (int64_t j = 0; !add && j < n; j++) row[j] = (real)NAN;
    }
    return p;
}

static void product_free(Product *p) {
    free(p->a);
    free(p->b);
    free(p->c);
}

/* One element in double, and the sum of the magnitudes that went into it. */
static double element(const GemmCall *p, int64_t i, int64_t j, double c_before, double *size) {
    double sum = p->add ? c_before : 0;
    *size = fabs(sum);
    for (int64_t q = 0; q < p->k; q++) {
        double a = p->form == GEMM_TN ? p->a[q * p->lda + i] : p->a[i * p->lda + q];
        double b = p->form == GEMM_NT ? p->b[j * p->ldb + q] : p->b[q * p->ldb + j];
        sum += p->alpha * a * b;
        *size += fabs(p->alpha * a * b);
    }
    return sum;
}

enum { MOST_THREADS = 4 };

static char *scratch; /* for each of MOST_THREADS */

static void setup(void) {
    ck_assert_msg(!gemm_setup(), "%s", error_message());
    if (!scratch) scratch = memory_allocate(MOST_THREADS * gemm_scratch(), "scratch");
    ck_assert_ptr_nonnull(scratch);
}

static void run(GemmList *list, int threads) {
    ck_assert_int_le(threads, MOST_THREADS);
    gemm_list_run(list, threads, scratch, (size_t)threads * gemm_scratch());
    gemm_list_clear(list);
}

#ifdef WEFT_REAL64
#define FMA fma
#else
#define FMA fmaf
#endif

/* What gemm_kernel.h says that an element is. */
static real defined_element(const GemmCall *p, int64_t i, int64_t j, real c) {
    for (int64_t begin = 0; begin < p->k; begin += GEMM_BLOCK) {
        real sum = 0;
        for (int64_t q = begin; q < p->k && q < begin + GEMM_BLOCK; q++) {
            real a = p->form == GEMM_TN ? p->a[q * p->lda + i] : p->a[i * p->lda + q];
            real b = p->form == GEMM_NT ? p->b[j * p->ldb + q] : p->b[q * p->ldb + j];
            sum = FMA(a, b, sum);
        }
        c = begin > 0 || p->add ? FMA(p->alpha, sum, c) : p->alpha * sum;
    }
    return c;
}

/* Runs the product through a list and compares every element with plain loops. */
static void check_product(GemmForm form, int64_t m, int64_t n, int64_t k, bool add) {
    Product before = product_make(form, m, n, k, add, 3), p = product_make(form, m, n, k, add, 3);
    GemmList list = {0};
    ck_assert_int_eq(gemm_list_add(&list, &p.call), 0);
    run(&list, 2);
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            real c = before.call.c[i * p.call.ldc + j], got = p.call.c[i * p.call.ldc + j];
            double size, want = element(&p.call, i, j, c, &size);
            double bound = 2 * (double)(k + 2) * ROUNDOFF * size;
            ck_assert_msg(fabs((double)got - want) <= bound,
                          "form %d %dx%dx%d (%d, %d): %g, not %g", form, (int)m, (int)n, (int)k,
                          (int)i, (int)j, (double)got, want);
            ck_assert_msg(got == defined_element(&p.call, i, j, c), "%s: form %d %dx%dx%d (%d, %d)",
                          gemm_kernel_name(), form, (int)m, (int)n, (int)k, (int)i, (int)j);
        }
        ck_assert_msg(p.call.c[i * p.call.ldc + n] == 0, "wrote beyond a row");
    }
    gemm_list_release(&list);
    product_free(&p);
    product_free(&before);
}

/* With every kernel that this core has. */
START_TEST(products_are_what_they_are_defined_to_be) {
    static const int shape[][3] = {{1, 1, 1},    {2, 3, 1},      {5, 1, 9},    {1, 17, 64},
                                   {7, 13, 31},  {16, 16, 16},   {33, 65, 47}, {64, 43, 172},
                                   {96, 22, 64}, {100, 86, 520}, {3, 1600, 5}, {1030, 9, 257}};
    setup();
    int kernels = 0;
    for (int i = 0; gemm_kernels[i]; i++) {
        if (gemm_choose(gemm_kernels[i]->name)) continue;
        kernels++;
        for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
            for (int form = 0; form < FORMS; form++)
                for (int add = 0; add < 2; add++)
                    check_product((GemmForm)form, shape[s][0], shape[s][1], shape[s][2], add);
    }
    ck_assert_int_ge(kernels, 1);
}
END_TEST

static bool same_result(const GemmCall *x, const GemmCall *y) {
    for (int64_t i = 0; i < x->m; i++) {
        if (!array_same(x->c + i * x->ldc, y->c + i * y->ldc, x->n)) return false;
    }
    return true;
}

/* Sides of which not all lines, and of those not all of k, are packed at once; some elements. */
START_TEST(products_beyond_memory_are_what_they_are_defined_to_be) {
    setup();
    for (int form = 0; form < FORMS; form++) {
        Product p = product_make((GemmForm)form, 1210, 3000, 2100, form == GEMM_TN, 3);
        Product before = product_make((GemmForm)form, 1210, 3000, 2100, form == GEMM_TN, 3);
        GemmList list = {0};
        ck_assert_uint_lt(gemm_scratch(), 3000 * 2100 * sizeof(real));
        ck_assert_int_eq(gemm_list_add(&list, &p.call), 0);
        run(&list, 1);
        for (int64_t i = 0; i < p.call.m; i += 61)
            for (int64_t j = i % 89; j < p.call.n; j += 89)
                ck_assert_msg(p.call.c[i * p.call.ldc + j] ==
                                  defined_element(&p.call, i, j, before.call.c[i * p.call.ldc + j]),
                              "form %d (%d, %d)", form, (int)i, (int)j);
        gemm_list_release(&list);
        product_free(&p);
        product_free(&before);
    }
}
END_TEST

/* Each thread of a parallel region with a product and scratch of its own. */
START_TEST(threads_multiply_side_by_side) {
    setup();
    Product want = product_make(GEMM_NT, 130, 300, 520, false, 3), p[MOST_THREADS];
    for (int i = 0; i < MOST_THREADS; i++) p[i] = product_make(GEMM_NT, 130, 300, 520, false, 3);
    gemm_call(&want.call, scratch);
#pragma omp parallel for num_threads(MOST_THREADS) schedule(static, 1)
    for (int i = 0; i < MOST_THREADS; i++)
        gemm_call(&p[i].call, scratch + (size_t)i * gemm_scratch());
    for (int i = 0; i < MOST_THREADS; i++) {
        ck_assert_msg(same_result(&want.call, &p[i].call), "thread %d", i);
        product_free(&p[i]);
    }
    product_free(&want);
}
END_TEST

START_TEST(empty_products_are_zero) {
    GemmList list = {0};
    setup();
    for (int form = 0; form < FORMS; form++) {
        real c[4] = {(real)NAN, 3, (real)NAN, 4};
        GemmCall call = {(GemmForm)form, 1, 1, 0, NULL, 0, NULL, 0, 1, false, c, 1};
        gemm_call(&call, scratch);
        ck_assert(c[0] == 0 && c[1] == 3);
        call.c = c + 2;
        ck_assert_int_eq(gemm_list_add(&list, &call), 0);
        run(&list, 2);
        ck_assert(c[2] == 0 && c[3] == 4);
        call.c = c + 1;
        call.add = true;
        gemm_call(&call, scratch);
        ck_assert(c[1] == 3);
        call.m = 0;
        gemm_call(&call, scratch);
        ck_assert(c[1] == 3);
    }
    gemm_list_release(&list);
}
END_TEST

START_TEST(bits_depend_on_neither_stride_nor_alignment_nor_repetition) {
    static const int shape[][3] = {{64, 43, 172}, {300, 256, 96}, {129, 65, 700}, {1, 256, 64}};
    setup();
    for (int i = 0; i < 4 * FORMS * 2; i++) {
        const int *s = shape[i / 6];
        GemmForm form = (GemmForm)(i % 3);
        bool add = i / 3 % 2;
        Product first = product_make(form, s[0], s[1], s[2], add, 0);
        gemm_call(&first.call, scratch);
        for (int64_t slack = 0; slack < 20; slack += 1 + slack / 4) {
            Product p = product_make(form, s[0], s[1], s[2], add, slack);
            gemm_call(&p.call, scratch);
            ck_assert_msg(same_result(&first.call, &p.call), "form %d %dx%dx%d slack %d", form,
                          s[0], s[1], s[2], (int)slack);
            product_free(&p);
        }
        product_free(&first);
    }
}
END_TEST

/* The part of a product that has these rows and columns of its C. */
static GemmCall part_of(const GemmCall *whole, int64_t row, int64_t col, int64_t m, int64_t n) {
    GemmCall part = *whole;
    part.m = m;
    part.n = n;
    part.a += whole->form == GEMM_TN ? row : row * whole->lda;
    part.b += whole->form == GEMM_NT ? col * whole->ldb : col;
    part.c += row * whole->ldc + col;
    return part;
}

/* Along a side of n, where parts begin: 0, n / 5, n / 5 + 1, n / 2, n. */
static int64_t border(int64_t n, int i) { return (int64_t[]){0, n / 5, n / 5 + 1, n / 2, n}[i]; }

/* In lists, so that parts that share an operand are computed together, and with others between. */
START_TEST(a_part_has_the_bits_of_the_whole) {
    GemmList list = {0};
    setup();
    for (int i = 0; i < FORMS * 3; i++) {
        GemmForm form = (GemmForm)(i % 3);
        int64_t m = 310, n = 530, k = 300;
        Product whole = product_make(form, m, n, k, true, 1);
        Product parts = product_make(form, m, n, k, true, 0);
        gemm_call(&whole.call, scratch);
        for (int j = 0; j < 16; j++) {
            int r = i / 3 == 0 ? j / 4 : j % 4, c = i / 3 == 0 ? j % 4 : j / 4;
            if (i / 3 == 2) r = (r + c) % 4; /* no two in a row share anything */
            GemmCall part =
                part_of(&parts.call, border(m, r), border(n, c), border(m, r + 1) - border(m, r),
                        border(n, c + 1) - border(n, c));
            ck_assert_int_eq(gemm_list_add(&list, &part), 0);
        }
        run(&list, 1 + i % 3);
        ck_assert_msg(same_result(&whole.call, &parts.call), "form %d, order %d", form, i / 3);
        product_free(&whole);
        product_free(&parts);
    }
    gemm_list_release(&list);
}
END_TEST

START_TEST(a_list_gives_the_same_bits_on_any_number_of_threads) {
    GemmList list = {0};
    setup();
    for (int form = 0; form < FORMS; form++) {
        Product first = product_make((GemmForm)form, 1100, 1700, 96, true, 1);
        ck_assert_int_eq(gemm_list_add(&list, &first.call), 0);
        run(&list, 1);
        for (int threads = 2; threads <= 4; threads++) {
            Product p = product_make((GemmForm)form, 1100, 1700, 96, true, 0);
            ck_assert_int_eq(gemm_list_add(&list, &p.call), 0);
            run(&list, threads);
            ck_assert_msg(same_result(&first.call, &p.call), "%d threads, form %d", threads, form);
            product_free(&p);
        }
        product_free(&first);
    }
    gemm_list_release(&list);
}
END_TEST

/* More rows, more columns or more of both than are packed at once; small parts are. */
START_TEST(what_is_packed_in_turns_has_the_bits_of_small_parts) {
    static const int shape[][3] = {{4500, 7, 520}, {7, 4500, 520}, {2100, 2100, 520}};
    GemmList list = {0};
    setup();
    for (int i = 0; i <= 2 * FORMS; i++) { /* of the last shape one form */
        const int *s = shape[i / FORMS];
        GemmForm form = (GemmForm)(i % FORMS);
        Product whole = product_make(form, s[0], s[1], s[2], i % 2, 0);
        Product parts = product_make(form, s[0], s[1], s[2], i % 2, 0);
        ck_assert_int_eq(gemm_list_add(&list, &whole.call), 0);
        run(&list, 1 + i % 3);
        for (int64_t row = 0; row < s[0]; row += 1000)
            for (int64_t col = 0; col < s[1]; col += 1000) {
                int64_t m = s[0] - row < 1000 ? s[0] - row : 1000;
                int64_t n = s[1] - col < 1000 ? s[1] - col : 1000;
                GemmCall part = part_of(&parts.call, row, col, m, n);
                gemm_call(&part, scratch);
            }
        ck_assert_msg(same_result(&whole.call, &parts.call), "shape %d, form %d", i / FORMS, form);
        product_free(&whole);
        product_free(&parts);
    }
    gemm_list_release(&list);
}
END_TEST

enum { TOLD_CALLS = 4 };

typedef struct {
    const Product *product, *want; /* [TOLD_CALLS] */
    bool pairs;
    unsigned char *times[TOLD_CALLS]; /* [m, n]: how often each element was told of */
    atomic_int wrong;                 /* elements told of before they were done */
} Told;

static void tell(void *context, int call, Range rows, Range cols) {
    Told *told = context;
    for (int i = call; i <= call + told->pairs; i++) {
        const GemmCall *got = &told->product[i].call, *want = &told->want[i].call;
        for (int64_t r = rows.begin; r < rows.end; r++)
            for (int64_t c = cols.begin; c < cols.end; c++) {
                told->times[i][r * got->n + c]++;
                if (got->c[r * got->ldc + c] != want->c[r * want->ldc + c]) told->wrong++;
            }
    }
}

/* Calls of one A (kind 0), pairs of them (1), calls of one B (2), or of nothing in common (3). */
static void share_operands(Product *product, int kind) {
    for (int i = 1; i < TOLD_CALLS; i++) {
        if (kind < 2) product[i].call.a = product[0].call.a;
        if (kind == 2) product[i].call.b = product[0].call.b;
    }
}

static void check_told(int kind, GemmForm form, int threads) {
    static const int sizes[] = {200, 200, 131, 131};
    Product product[TOLD_CALLS], want[TOLD_CALLS];
    Told told = {product, want, kind == 1, {NULL}, 0};
    GemmList list = {0};
    for (int i = 0; i < TOLD_CALLS; i++) {
        int64_t m = kind == 2 ? sizes[i] : 333, n = kind == 2 ? 333 : sizes[i];
        product[i] = product_make(form, m, n, 600, false, 0);
        want[i] = product_make(form, m, n, 600, false, 0);
        told.times[i] = calloc((size_t)(m * n), 1);
    }
    share_operands(product, kind);
    share_operands(want, kind);
    for (int i = 0; i < TOLD_CALLS; i++) {
        gemm_call(&want[i].call, scratch);
        ck_assert_int_eq(gemm_list_add(&list, &product[i].call), 0);
    }
    list.pairs = told.pairs;
    list.after = tell;
    list.context = &told;
    run(&list, threads);
    ck_assert(!list.after && !list.pairs);
    ck_assert_msg(told.wrong == 0, "kind %d: %d elements weren't done", kind, told.wrong);
    for (int i = 0; i < TOLD_CALLS; i++) {
        for (int64_t e = 0; e < product[i].call.m * product[i].call.n; e++)
            ck_assert_msg(told.times[i][e] == 1, "kind %d: element %d of call %d told %d times",
                          kind, (int)e, i, told.times[i][e]);
        free(told.times[i]);
        product_free(&product[i]);
        product_free(&want[i]);
    }
    gemm_list_release(&list);
}

START_TEST(each_element_is_told_of_once_when_it_is_done) {
    setup();
    for (int kind = 0; kind < 4; kind++)
        for (int form = 0; form < FORMS; form++)
            for (int threads = 1; threads <= 3; threads += 2)
                check_told(kind, (GemmForm)form, threads);
}
END_TEST

START_TEST(a_list_that_is_filled_again_does_not_allocate) {
    GemmList list = {0};
    Product p = product_make(GEMM_NN, 5, 6, 7, false, 0);
    for (int i = 0; i < 100; i++) ck_assert_int_eq(gemm_list_add(&list, &p.call), 0);
    GemmCall *place = list.call;
    int capacity = list.capacity;
    gemm_list_clear(&list);
    for (int i = 0; i < 100; i++) ck_assert_int_eq(gemm_list_add(&list, &p.call), 0);
    ck_assert(list.call == place && list.capacity == capacity && list.count == 100);
    gemm_list_release(&list);
    product_free(&p);
}
END_TEST

/* The controls of the tests of bits: they see another order of sums, and BLAS's. */
START_TEST(another_order_has_other_bits) {
    setup();
    for (int other = 0; other < 2; other++) {
        Product whole = product_make(GEMM_NT, 64, 64, 700, true, 0);
        Product halves = product_make(GEMM_NT, 64, 64, 700, true, 0);
        gemm_call(&whole.call, scratch);
        if (other == 0) {
            gemm_blas(&halves.call);
        } else {
            GemmCall half = halves.call;
            half.k = 350;
            gemm_call(&half, scratch);
            half.a += 350;
            half.b += 350;
            gemm_call(&half, scratch);
        }
        ck_assert(!same_result(&whole.call, &halves.call));
        product_free(&whole);
        product_free(&halves);
    }
}
END_TEST

START_TEST(a_kernel_that_is_not_there_is_named) {
    setup();
    ck_assert_int_eq(gemm_choose("abacus"), WEFT_RUNTIME);
    ck_assert_ptr_nonnull(strstr(error_message(), "abacus"));
    ck_assert_int_eq(strncmp(gemm_blas_name(), "OpenBLAS 0.", 11), 0);
}
END_TEST

int main(void) {
    return run_suite(
        "gemm",
        TESTS(products_are_what_they_are_defined_to_be, empty_products_are_zero,
              bits_depend_on_neither_stride_nor_alignment_nor_repetition,
              a_part_has_the_bits_of_the_whole, a_list_gives_the_same_bits_on_any_number_of_threads,
              products_beyond_memory_are_what_they_are_defined_to_be, threads_multiply_side_by_side,
              what_is_packed_in_turns_has_the_bits_of_small_parts,
              each_element_is_told_of_once_when_it_is_done,
              a_list_that_is_filled_again_does_not_allocate, another_order_has_other_bits,
              a_kernel_that_is_not_there_is_named));
}
