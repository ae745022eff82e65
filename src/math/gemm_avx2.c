/* Products for cores with AVX2 and FMA. */
#include "math/gemm_kernel.h"

#ifdef __x86_64__

#include <immintrin.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif

enum { TILE_ROWS = 6, TILE_VECTORS = 2 };

#ifdef WEFT_REAL64

typedef __m256d Vector;
enum { LANES = 4 };

static inline __m256i some(int count) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
}
static inline Vector vector_all(real x) { return _mm256_set1_pd(x); }
static inline Vector vector_load(const real *x) { return _mm256_loadu_pd(x); }
static inline void vector_store(real *x, Vector v) { _mm256_storeu_pd(x, v); }
static inline Vector vector_fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_pd(a, b, c); }
static inline Vector vector_times(Vector a, Vector b) { return _mm256_mul_pd(a, b); }
static inline Vector vector_load_some(const real *x, int count) {
    return _mm256_maskload_pd(x, some(count));
}
static inline void vector_store_some(real *x, int count, Vector v) {
    _mm256_maskstore_pd(x, some(count), v);
}

static inline void transpose(Vector v[LANES]) {
    Vector a = _mm256_unpacklo_pd(v[0], v[1]), b = _mm256_unpackhi_pd(v[0], v[1]);
    Vector c = _mm256_unpacklo_pd(v[2], v[3]), d = _mm256_unpackhi_pd(v[2], v[3]);
    v[0] = _mm256_permute2f128_pd(a, c, 0x20);
    v[1] = _mm256_permute2f128_pd(b, d, 0x20);
    v[2] = _mm256_permute2f128_pd(a, c, 0x31);
    v[3] = _mm256_permute2f128_pd(b, d, 0x31);
}

#else

typedef __m256 Vector;
enum { LANES = 8 };

static inline __m256i some(int count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline Vector vector_all(real x) { return _mm256_set1_ps(x); }
static inline Vector vector_load(const real *x) { return _mm256_loadu_ps(x); }
static inline void vector_store(real *x, Vector v) { _mm256_storeu_ps(x, v); }
static inline Vector vector_fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
static inline Vector vector_times(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
static inline Vector vector_load_some(const real *x, int count) {
    return _mm256_maskload_ps(x, some(count));
}
static inline void vector_store_some(real *x, int count, Vector v) {
    _mm256_maskstore_ps(x, some(count), v);
}

static inline void transpose(Vector v[LANES]) {
    Vector t[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_ps(v[2 * i], v[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(v[2 * i], v[2 * i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i += 4) {
        v[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        v[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        v[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        v[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(v[i], v[4 + i], 0x20);
        t[4 + i] = _mm256_permute2f128_ps(v[i], v[4 + i], 0x31);
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) v[i] = t[i];
}

#endif

#include "math/gemm_kernel.inc"

static bool runs_here(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

#ifdef __clang__
#pragma clang attribute pop
#endif

const GemmKernel gemm_avx2 = {"avx2",   TILE_ROWS, TILE_COLS, runs_here,
                              multiply, pack_rows, pack_cols};

#endif
