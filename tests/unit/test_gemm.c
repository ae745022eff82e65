#include "math/gemm.h"

#include "base/error.h"
#include "support/arrays.h"
#include "support/support.h"

#include <limits.h>
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
static Product product_make(GemmForm form, int64_t m, int64_t n, int64_t k, real beta,
                            int64_t slack) {
    Product p = {.call = {form, m, n, k, NULL, 0, NULL, 0, (real)0.5, beta, NULL, 0}};
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
        for (int64_t j = 0; beta == 0 && j < n; j++) row[j] = (real)NAN;
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
    double sum = p->beta == 0 ? 0 : p->beta * c_before;
    *size = fabs(sum);
    for (int64_t q = 0; q < p->k; q++) {
        double a = p->form == GEMM_TN ? p->a[q * p->lda + i] : p->a[i * p->lda + q];
        double b = p->form == GEMM_NT ? p->b[j * p->ldb + q] : p->b[q * p->ldb + j];
        sum += p->alpha * a * b;
        *size += fabs(p->alpha * a * b);
    }
    return sum;
}

/* Runs the product through a list and compares every element with plain loops. */
static void check_product(GemmForm form, int64_t m, int64_t n, int64_t k, real beta) {
    Product before = product_make(form, m, n, k, beta, 3), p = product_make(form, m, n, k, beta, 3);
    GemmList list = {0};
    ck_assert_int_eq(gemm_list_add(&list, &p.call), 0);
    gemm_list_run(&list, 2);
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            double size, got = p.call.c[i * p.call.ldc + j];
            double want = element(&p.call, i, j, before.call.c[i * p.call.ldc + j], &size);
            double bound = 2 * (double)(k + 2) * ROUNDOFF * size;
            ck_assert_msg(fabs(got - want) <= bound, "form %d %dx%dx%d (%d, %d): %g, not %g", form,
                          (int)m, (int)n, (int)k, (int)i, (int)j, got, want);
        }
        ck_assert_msg(p.call.c[i * p.call.ldc + n] == 0, "wrote beyond a row");
    }
    gemm_list_release(&list);
    product_free(&p);
    product_free(&before);
}

START_TEST(products_agree_with_plain_loops) {
    static const int shape[][3] = {{1, 1, 1},    {2, 3, 1},      {5, 1, 9},    {1, 17, 64},
                                   {7, 13, 31},  {16, 16, 16},   {33, 65, 47}, {64, 43, 172},
                                   {96, 22, 64}, {100, 86, 128}, {3, 1600, 5}, {1030, 9, 21}};
    ck_assert_int_eq(gemm_setup(1), 0);
    for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) {
        for (int form = 0; form < FORMS; form++) {
            check_product((GemmForm)form, shape[s][0], shape[s][1], shape[s][2], 0);
            check_product((GemmForm)form, shape[s][0], shape[s][1], shape[s][2], 1);
        }
    }
}
END_TEST

START_TEST(empty_products_scale_the_result) {
    ck_assert_int_eq(gemm_setup(1), 0);
    for (int form = 0; form < FORMS; form++) {
        real c[2] = {(real)NAN, 3};
        GemmCall call = {(GemmForm)form, 1, 1, 0, NULL, 0, NULL, 0, 1, 0, c, 1};
        gemm_call(&call);
        ck_assert(c[0] == 0 && c[1] == 3);
        call.c = c + 1;
        call.beta = 1;
        gemm_call(&call);
        ck_assert(c[1] == 3);
        call.m = 0;
        gemm_call(&call);
        ck_assert(c[1] == 3);
    }
}
END_TEST

START_TEST(tiles_cover_and_are_not_small) {
    static const struct {
        int64_t m, n, rows, cols;
    } row[] = {
        {1, 1, 1, 1},           {512, 256, 512, 256},     {513, 256, 272, 256},
        {1024, 256, 512, 256},  {1024, 768, 512, 768},    {1024, 1024, 512, 512},
        {512, 2048, 512, 688},  {1024, 2048, 512, 1024},  {2048, 2816, 1024, 1408},
        {4096, 256, 1024, 256}, {2048, 2048, 1024, 1024}, {8192, 4096, 1024, 1376},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        GemmTile tile = gemm_tile(row[i].m, row[i].n);
        ck_assert_int_eq(tile.rows, row[i].rows);
        ck_assert_int_eq(tile.cols, row[i].cols);
    }
}
END_TEST

static bool same_result(const GemmCall *x, const GemmCall *y) {
    for (int64_t i = 0; i < x->m; i++) {
        if (!array_same(x->c + i * x->ldc, y->c + i * y->ldc, x->n)) return false;
    }
    return true;
}

START_TEST(bits_depend_on_neither_stride_nor_alignment_nor_repetition) {
    static const int shape[][3] = {{64, 43, 172}, {300, 256, 96}, {129, 65, 700}, {1, 256, 64}};
    ck_assert_int_eq(gemm_setup(1), 0);
    for (int i = 0; i < 4 * FORMS * 2; i++) {
        const int *s = shape[i / 6];
        GemmForm form = (GemmForm)(i % 3);
        real beta = (real)(i / 3 % 2);
        Product first = product_make(form, s[0], s[1], s[2], beta, 0);
        gemm_call(&first.call);
        for (int64_t slack = 0; slack < 20; slack += 1 + slack / 4) {
            Product p = product_make(form, s[0], s[1], s[2], beta, slack);
            gemm_call(&p.call);
            ck_assert_msg(same_result(&first.call, &p.call), "form %d %dx%dx%d slack %d", form,
                          s[0], s[1], s[2], (int)slack);
            product_free(&p);
        }
        product_free(&first);
    }
}
END_TEST

START_TEST(a_list_gives_the_same_bits_on_any_number_of_threads) {
    GemmList list = {0};
    ck_assert_int_eq(gemm_setup(1), 0);
    for (int form = 0; form < FORMS; form++) {
        Product first = product_make((GemmForm)form, 1100, 1700, 96, 1, 1);
        ck_assert_int_eq(gemm_list_add(&list, &first.call), 0);
        ck_assert_int_ge(list.count, 4);
        gemm_list_run(&list, 1);
        for (int threads = 2; threads <= 4; threads++) {
            Product p = product_make((GemmForm)form, 1100, 1700, 96, 1, 0);
            gemm_list_clear(&list);
            ck_assert_int_eq(gemm_list_add(&list, &p.call), 0);
            gemm_list_run(&list, threads);
            ck_assert_msg(same_result(&first.call, &p.call), "%d threads, form %d", threads, form);
            product_free(&p);
        }
        gemm_list_clear(&list);
        product_free(&first);
    }
    gemm_list_release(&list);
}
END_TEST

START_TEST(a_list_that_is_filled_again_does_not_allocate) {
    GemmList list = {0};
    Product p = product_make(GEMM_NN, 5, 6, 7, 0, 0);
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

/* The control of the two tests above: BLAS's own threads do change bits. K is such that OpenBLAS
 * cuts it into other panels when threaded; kernels with one chain of fused adds (SkylakeX) differ
 * in nothing else. */
START_TEST(threads_of_blas_change_bits) {
    Product one = product_make(GEMM_NT, 512, 512, 500, 0, 0);
    Product two = product_make(GEMM_NT, 512, 512, 500, 0, 0);
    ck_assert_int_eq(gemm_setup(1), 0);
    gemm_call(&one.call);
    ck_assert_int_eq(gemm_setup(2), 0);
    gemm_call(&two.call);
    ck_assert(!same_result(&one.call, &two.call));
    product_free(&one);
    product_free(&two);
}
END_TEST

START_TEST(sizes_beyond_int_are_refused) {
    GemmList list = {0};
    GemmCall call = {GEMM_NN, (int64_t)INT_MAX + 1, 1, 1, NULL, 1, NULL, 1, 1, 0, NULL, 1};
    ck_assert_int_eq(gemm_list_add(&list, &call), WEFT_RUNTIME);
    ck_assert_ptr_nonnull(strstr(error_message(), "2147483648"));
    call.m = 1;
    call.ldb = -1;
    ck_assert_int_eq(gemm_list_add(&list, &call), WEFT_RUNTIME);
    ck_assert_int_eq(list.count, 0);
    gemm_list_release(&list);
}
END_TEST

START_TEST(setup_names_the_library_and_insists_on_the_threads) {
    ck_assert_int_eq(gemm_setup(1), 0);
    ck_assert_int_eq(strncmp(gemm_identity(), "OpenBLAS 0.", 11), 0);
    ck_assert_int_eq(gemm_setup(1 << 20), WEFT_RUNTIME);
    ck_assert_ptr_nonnull(strstr(error_message(), gemm_identity()));
}
END_TEST

int main(void) {
    return run_suite("gemm", TESTS(products_agree_with_plain_loops, empty_products_scale_the_result,
                                   tiles_cover_and_are_not_small,
                                   bits_depend_on_neither_stride_nor_alignment_nor_repetition,
                                   a_list_gives_the_same_bits_on_any_number_of_threads,
                                   a_list_that_is_filled_again_does_not_allocate,
                                   threads_of_blas_change_bits, sizes_beyond_int_are_refused,
                                   setup_names_the_library_and_insists_on_the_threads));
}
