#include "math/gemm.h"

#include "base/error.h"

#include <cblas.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef WEFT_REAL64
#define BLAS_GEMM     cblas_dgemm
#define UNIT_ROUNDOFF 0x1p-53
#else
#define BLAS_GEMM     cblas_sgemm
#define UNIT_ROUNDOFF 0x1p-24
#endif

const char *gemm_identity(void) {
    static _Thread_local char identity[128];
    char name[32] = "BLAS", version[32] = "?";
    sscanf(openblas_get_config(), "%31s %31s", name, version);
    snprintf(identity, sizeof identity, "%s %s %s", name, version, openblas_get_corename());
    return identity;
}

/* OpenBLAS is given at least a stride of 1, and no empty product: there C is only scaled. */
static void scale_result(const GemmCall *call) {
    for (int64_t i = 0; i < call->m; i++) {
        real *row = call->c + i * call->ldc;
        for (int64_t j = 0; j < call->n; j++) row[j] = call->beta == 0 ? 0 : call->beta * row[j];
    }
}

void gemm_call(const GemmCall *call) {
    if (call->m == 0 || call->n == 0) return;
    if (call->k == 0) {
        scale_result(call);
        return;
    }
    BLAS_GEMM(CblasRowMajor, call->form == GEMM_TN ? CblasTrans : CblasNoTrans,
              call->form == GEMM_NT ? CblasTrans : CblasNoTrans, (blasint)call->m, (blasint)call->n,
              (blasint)call->k, call->alpha, call->a, (blasint)call->lda, call->b,
              (blasint)call->ldb, call->beta, call->c, (blasint)call->ldc);
}

/* ---- tiles ---- */

enum { LEAST_ROWS = 512, LEAST_COLS = 768, MOST_ROWS = 1024, MOST_COLS = 1536, ENOUGH_TILES = 4 };

/* Size of the pieces when n is cut evenly into pieces of at most `most`, rounded up to whole
 * micro-tiles. */
static int64_t even_piece(int64_t n, int64_t most) {
    const int64_t micro = 16;
    int64_t pieces = (n + most - 1) / most;
    if (pieces <= 1) return n;
    int64_t size = (n + pieces - 1) / pieces;
    return (size + micro - 1) / micro * micro;
}

GemmTile gemm_tile(int64_t m, int64_t n) {
    int64_t rows = MOST_ROWS, cols = MOST_COLS;
    int64_t tiles = ((m + rows - 1) / rows) * ((n + cols - 1) / cols);
    if (tiles < ENOUGH_TILES) rows = LEAST_ROWS;
    tiles = ((m + rows - 1) / rows) * ((n + cols - 1) / cols);
    if (tiles < ENOUGH_TILES) cols = LEAST_COLS;
    return (GemmTile){even_piece(m, rows), even_piece(n, cols)};
}

/* ---- lists ---- */

void gemm_list_clear(GemmList *list) { list->count = 0; }

void gemm_list_release(GemmList *list) {
    free(list->call);
    *list = (GemmList){0};
}

static int list_append(GemmList *list, const GemmCall *call) {
    if (list->count == list->capacity) {
        int capacity = list->capacity ? 2 * list->capacity : 64;
        GemmCall *grown = realloc(list->call, (size_t)capacity * sizeof *grown);
        if (!grown) return error_set(WEFT_RUNTIME, "no memory for %d matrix products", capacity);
        list->call = grown;
        list->capacity = capacity;
    }
    list->call[list->count++] = *call;
    return 0;
}

static bool fits_int(int64_t x) { return 0 <= x && x <= INT_MAX; }

static int check_product(const GemmCall *p) {
    if (fits_int(p->m) && fits_int(p->n) && fits_int(p->k) && fits_int(p->lda) &&
        fits_int(p->ldb) && fits_int(p->ldc)) {
        return 0;
    }
    return error_set(WEFT_RUNTIME,
                     "matrix product %lld x %lld x %lld (strides %lld, %lld, %lld): a size is "
                     "negative or beyond BLAS's int",
                     (long long)p->m, (long long)p->n, (long long)p->k, (long long)p->lda,
                     (long long)p->ldb, (long long)p->ldc);
}

/* The call for the tile of C at (row, col). */
static GemmCall tile_call(const GemmCall *product, GemmTile tile, int64_t row, int64_t col) {
    GemmCall call = *product;
    call.m = product->m - row < tile.rows ? product->m - row : tile.rows;
    call.n = product->n - col < tile.cols ? product->n - col : tile.cols;
    call.a += product->form == GEMM_TN ? row : row * product->lda;
    call.b += product->form == GEMM_NT ? col * product->ldb : col;
    call.c += row * product->ldc + col;
    return call;
}

int gemm_list_add(GemmList *list, const GemmCall *product) {
    int code = check_product(product);
    if (code) return code;
    GemmTile tile = gemm_tile(product->m, product->n);
    for (int64_t row = 0; row < product->m; row += tile.rows) {
        for (int64_t col = 0; col < product->n; col += tile.cols) {
            GemmCall call = tile_call(product, tile, row, col);
            code = list_append(list, &call);
            if (code) return code;
        }
    }
    return 0;
}

void gemm_list_run(const GemmList *list, int threads) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1)
    for (int i = 0; i < list->count; i++) gemm_call(&list->call[i]);
}

/* ---- setup ---- */

enum { SELF_CHECK_MOST = 400 };

/* A fixed sequence of values in (-1, 1). */
static void fill_sequence(real *x, int64_t count, uint32_t state) {
    for (int64_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u; /* Numerical Recipes, section 7.1 */
        x[i] = (real)((double)(state >> 8) * 0x1p-23 - 1);
    }
}

/* Whether C agrees with plain loops over the call's inputs, C having been 1 before, to twice the
 * bound of a sum of k + 2 terms in any order (Higham, Accuracy and Stability, section 3.1): in the
 * f64 build both sides round. */
static bool product_is_right(const GemmCall *call) {
    for (int64_t i = 0; i < call->m; i++) {
        for (int64_t j = 0; j < call->n; j++) {
            double sum = call->beta, size = call->beta;
            for (int64_t p = 0; p < call->k; p++) {
                double a = call->a[call->form == GEMM_TN ? p * call->lda + i : i * call->lda + p];
                double b = call->b[call->form == GEMM_NT ? j * call->ldb + p : p * call->ldb + j];
                sum += call->alpha * a * b;
                size += fabs(call->alpha * a * b);
            }
            double error = fabs(call->c[i * call->ldc + j] - sum);
            if (!(error <= 2 * (double)(call->k + 2) * UNIT_ROUNDOFF * size)) return false;
        }
    }
    return true;
}

/* Small, odd and paneled shapes reach different kernels. */
static const struct {
    int m, n, k;
} self_check_shapes[] = {{1, 1, 1},    {3, 5, 7},    {1, 129, 33},   {65, 1, 129},
                         {33, 17, 65}, {64, 64, 64}, {100, 76, 400}, {131, 97, 86}};

static int self_check(real *a, real *b, real *c) {
    const char *form_name[] = {"NT", "NN", "TN"};
    int shapes = sizeof self_check_shapes / sizeof *self_check_shapes;
    for (int i = 0; i < 6 * shapes; i++) {
        int m = self_check_shapes[i / 6].m, n = self_check_shapes[i / 6].n;
        int k = self_check_shapes[i / 6].k;
        GemmForm form = (GemmForm)(i % 3);
        int lda = form == GEMM_TN ? m : k, ldb = form == GEMM_NT ? k : n;
        GemmCall call = {form, m, n, k, a, lda, b, ldb, (real)0.5, (real)(i / 3 % 2), c, n};
        for (int64_t j = 0; j < (int64_t)m * n; j++) c[j] = call.beta == 0 ? (real)NAN : 1;
        gemm_call(&call);
        if (product_is_right(&call)) continue;
        return error_set(WEFT_RUNTIME,
                         "%s multiplies wrongly on this machine (%s %s %dx%dx%d); try another "
                         "kernel: OPENBLAS_CORETYPE=Haswell in the environment",
                         gemm_identity(), REAL_NAME, form_name[form], m, n, k);
    }
    return 0;
}

static int run_self_check(void) {
    int64_t count = SELF_CHECK_MOST * SELF_CHECK_MOST;
    real *memory = malloc(3 * (size_t)count * sizeof *memory);
    if (!memory) return error_set(WEFT_RUNTIME, "no memory for the self-check of BLAS");
    fill_sequence(memory, 2 * count, 1);
    int code = self_check(memory, memory + count, memory + 2 * count);
    free(memory);
    return code;
}

int gemm_setup(int blas_threads) {
    openblas_set_num_threads(blas_threads);
    int threads = openblas_get_num_threads();
    if (threads != blas_threads) {
        return error_set(WEFT_RUNTIME,
                         "%s runs on %d threads although %d was asked for: results would depend "
                         "on it; use its pthread or serial build",
                         gemm_identity(), threads, blas_threads);
    }
    /* Its threaded product has a race, mended in 0.3.31; on one thread it is right. */
    if (threads > 1 && strstr(gemm_identity(), " 0.3.30 ")) {
        return error_set(WEFT_RUNTIME,
                         "%s computes wrong products on %d threads; use another version",
                         gemm_identity(), threads);
    }
    return run_self_check();
}
