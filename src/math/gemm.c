#include "math/gemm.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "math/gemm_engine.h"

#include <cblas.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef WEFT_REAL64
#define BLAS_GEMM cblas_dgemm
#else
#define BLAS_GEMM cblas_sgemm
#endif

extern const GemmKernel gemm_avx512, gemm_avx2, gemm_plain;

const GemmKernel *const gemm_kernels[] = {
#ifdef __x86_64__
    &gemm_avx512,
    &gemm_avx2,
#endif
    &gemm_plain,
    NULL,
};

static const GemmKernel *kernel = &gemm_plain; /* set once, by gemm_setup */

/* An empty sum is 0. */
static void clear_result(const GemmCall *call) {
    for (int64_t i = 0; i < call->m && !call->add; i++)
        memset(call->c + i * call->ldc, 0, (size_t)call->n * sizeof(real));
}

/* Whether there is nothing more to do. */
static bool is_empty(const GemmCall *call) {
    if (call->k == 0) clear_result(call);
    return call->m == 0 || call->n == 0 || call->k == 0;
}

static void multiply(const GemmCall *call, void *scratch) {
    GemmTeam team = {.kernel = kernel, .threads = 1, .memory = scratch, .bytes = gemm_scratch()};
    int64_t base = 0;
    gemm_group_run(&team, &(GemmGroup){.call = call, .count = 1}, &base);
}

void gemm_call(const GemmCall *call, void *scratch) {
    if (is_empty(call)) return;
    if (fault_on("blas-threads"))
        gemm_blas(call);
    else
        multiply(call, scratch);
}

/* ---- lists ---- */

void gemm_list_clear(GemmList *list) {
    list->count = 0;
    list->pairs = false;
    list->after = NULL;
}

void gemm_list_release(GemmList *list) {
    free(list->call);
    free(list->group);
    *list = (GemmList){0};
}

static int list_grow(GemmList *list) {
    int capacity = list->capacity ? 2 * list->capacity : 64;
    GemmCall *calls = realloc(list->call, (size_t)capacity * sizeof *calls);
    if (calls) list->call = calls;
    GemmGroup *groups = realloc(list->group, (size_t)capacity * sizeof *groups);
    if (groups) list->group = groups;
    if (!calls || !groups)
        return error_set(WEFT_RUNTIME, "no memory for %d matrix products", capacity);
    list->capacity = capacity;
    return 0;
}

int gemm_list_add(GemmList *list, const GemmCall *product) {
    if (list->count == list->capacity) {
        int status = list_grow(list);
        if (status) return status;
    }
    list->call[list->count++] = *product;
    return 0;
}

static bool same_a(const GemmCall *x, const GemmCall *y) {
    return x->a == y->a && x->lda == y->lda && x->m == y->m;
}

static bool same_b(const GemmCall *x, const GemmCall *y) {
    return x->b == y->b && x->ldb == y->ldb && x->n == y->n;
}

/* Whether the group takes the call in. */
static bool joins(GemmGroup *group, const GemmCall *call) {
    const GemmCall *first = group->call;
    if (first->form != call->form || first->k != call->k) return false;
    bool down = group->count > 1 ? group->down : !same_a(first, call);
    if (down ? !same_b(first, call) : !same_a(first, call)) return false;
    group->down = down;
    return true;
}

static void find_groups(GemmList *list) {
    list->groups = 0;
    GemmGroup *group = NULL;
    for (int i = 0; i < list->count; i++) {
        const GemmCall *call = &list->call[i];
        if (is_empty(call)) {
            group = NULL; /* a group's calls follow one another */
            continue;
        }
        if (!group || !joins(group, call)) {
            group = &list->group[list->groups++];
            *group = (GemmGroup){.call = call, .pairs = list->pairs};
        }
        group->count++;
    }
}

/* The same by BLAS. */
static void run_mistaken(const GemmList *list, void *memory) {
    for (int i = 0; i < list->count; i++) {
        const GemmCall *call = &list->call[i];
        gemm_call(call, memory);
        if (list->after && (!list->pairs || i % 2))
            list->after(list->context, i - list->pairs, (Range){0, call->m}, (Range){0, call->n});
    }
}

void gemm_list_run(GemmList *list, int threads, void *memory, size_t bytes) {
    if (fault_on("blas-threads")) {
        run_mistaken(list, memory);
        return;
    }
    find_groups(list);
    GemmTeam team = {kernel, threads, 0, memory, bytes, list};
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
#pragma omp single
        team.threads = omp_get_num_threads();
        int64_t base = 0;
        for (int i = 0; i < list->groups; i++) gemm_group_run(&team, &list->group[i], &base);
    }
}

/* ---- BLAS ---- */

const char *gemm_blas_name(void) {
    static _Thread_local char identity[128];
    char name[32] = "BLAS", version[32] = "?";
    sscanf(openblas_get_config(), "%31s %31s", name, version);
    snprintf(identity, sizeof identity, "%s %s %s", name, version, openblas_get_corename());
    return identity;
}

const char *gemm_blas_better_core(void) {
    if (getenv("OPENBLAS_CORETYPE") || strcmp(openblas_get_corename(), "Prescott") != 0)
        return NULL;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f")) return "SkylakeX";
    if (__builtin_cpu_supports("avx2")) return "Haswell";
#endif
    return NULL;
}

void gemm_blas(const GemmCall *call) {
    BLAS_GEMM(CblasRowMajor, call->form == GEMM_TN ? CblasTrans : CblasNoTrans,
              call->form == GEMM_NT ? CblasTrans : CblasNoTrans, (blasint)call->m, (blasint)call->n,
              (blasint)call->k, call->alpha, call->a, (blasint)call->lda, call->b,
              (blasint)call->ldb, call->add ? 1 : 0, call->c, (blasint)call->ldc);
}

int gemm_blas_threads(int threads) {
    openblas_set_num_threads(threads);
    return openblas_get_num_threads();
}

/* ---- setup ---- */

enum { SELF_CHECK_MOST = 64 * 512 }; /* elements of the largest operand of self_check_shapes */

/* A fixed sequence of values in (-1, 1). */
static void fill_sequence(real *x, int64_t count, uint32_t state) {
    for (int64_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u; /* Numerical Recipes, section 7.1 */
        x[i] = (real)((double)(state >> 8) * 0x1p-23 - 1);
    }
}

static const struct {
    int m, n, k;
} self_check_shapes[] = {{1, 1, 1}, {3, 5, 7}, {13, 33, 257}, {65, 1, 129}, {24, 64, 512}};

/* memory: a, b, c and what c should be, SELF_CHECK_MOST each. */
static int self_check(real *memory, void *scratch) {
    const char *form_name[] = {"NT", "NN", "TN"};
    const int64_t block = SELF_CHECK_MOST;
    const GemmKernel *chosen = kernel;
    int shapes = sizeof self_check_shapes / sizeof *self_check_shapes;
    for (int i = 0; i < 6 * shapes; i++) {
        int m = self_check_shapes[i / 6].m, n = self_check_shapes[i / 6].n;
        int k = self_check_shapes[i / 6].k;
        GemmForm form = (GemmForm)(i % 3);
        int lda = form == GEMM_TN ? m : k, ldb = form == GEMM_NT ? k : n;
        GemmCall call = {form,
                         m,
                         n,
                         k,
                         memory,
                         lda,
                         memory + block,
                         ldb,
                         (real)0.75,
                         i / 3 % 2,
                         memory + 2 * block,
                         n};
        fill_sequence(memory, 4 * block, (uint32_t)i);
        memcpy(memory + 3 * block, call.c, (size_t)(m * n) * sizeof(real));
        multiply(&call, scratch);
        kernel = &gemm_plain;
        call.c = memory + 3 * block;
        multiply(&call, scratch);
        kernel = chosen;
        if (memcmp(call.c, memory + 2 * block, (size_t)(m * n) * sizeof(real)))
            return error_set(WEFT_RUNTIME,
                             "the %s kernel multiplies wrongly on this machine (%s %s %dx%dx%d)",
                             kernel->name, REAL_NAME, form_name[form], m, n, k);
    }
    return 0;
}

int gemm_setup(void) {
    gemm_blas_threads(fault_on("blas-threads") ? 2 : 1);
    int i = 0;
    while (!gemm_kernels[i]->runs_here()) i++;
    while (fault_on("other-core") && gemm_kernels[i + 1]) i++;
    kernel = gemm_kernels[i];
    size_t block = SELF_CHECK_MOST * sizeof(real);
    char *memory = memory_allocate(4 * block + gemm_scratch(), "the self-check of products");
    if (!memory) return WEFT_RUNTIME;
    int status = self_check((real *)(void *)memory, memory + 4 * block);
    free(memory);
    return status;
}

int gemm_choose(const char *name) {
    for (int i = 0; gemm_kernels[i]; i++) {
        if (strcmp(gemm_kernels[i]->name, name) || !gemm_kernels[i]->runs_here()) continue;
        kernel = gemm_kernels[i];
        return 0;
    }
    return error_set(WEFT_RUNTIME, "kernel %s: this core or program has none of that name", name);
}

const GemmKernel *gemm_kernel(void) { return kernel; }

const char *gemm_kernel_name(void) { return kernel->name; }
