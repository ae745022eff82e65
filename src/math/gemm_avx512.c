/* Products for cores with AVX-512, whatever the rest of the program is compiled for. */
#include "math/gemm_kernel.h"

#ifdef __x86_64__

#include <immintrin.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f"))), apply_to = function)
#else
#pragma GCC target("avx512f")
#endif

enum { TILE_ROWS = 12, TILE_VECTORS = 2 };

#ifdef WEFT_REAL64

typedef __m512d Vector;
enum { LANES = 8 };

static inline Vector vector_all(real x) { return _mm512_set1_pd(x); }
static inline Vector vector_load(const real *x) { return _mm512_loadu_pd(x); }
static inline void vector_store(real *x, Vector v) { _mm512_storeu_pd(x, v); }
static inline Vector vector_fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_pd(a, b, c); }
static inline Vector vector_times(Vector a, Vector b) { return _mm512_mul_pd(a, b); }
static inline Vector vector_load_some(const real *x, int count) {
    return _mm512_maskz_loadu_pd((__mmask8)((1u << count) - 1), x);
}
static inline void vector_store_some(real *x, int count, Vector v) {
    _mm512_mask_storeu_pd(x, (__mmask8)((1u << count) - 1), v);
}

/* Pairs of rows, then of pairs, then of fours. */
static inline void transpose(Vector v[LANES]) {
    Vector t[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm512_unpacklo_pd(v[2 * i], v[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_pd(v[2 * i], v[2 * i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 2; i++) {
        v[i] = _mm512_shuffle_f64x2(t[i], t[2 + i], 0x88);
        v[2 + i] = _mm512_shuffle_f64x2(t[i], t[2 + i], 0xdd);
        v[4 + i] = _mm512_shuffle_f64x2(t[4 + i], t[6 + i], 0x88);
        v[6 + i] = _mm512_shuffle_f64x2(t[4 + i], t[6 + i], 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f64x2(v[i], v[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_f64x2(v[i], v[4 + i], 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) v[i] = t[i];
}

#else

typedef __m512 Vector;
enum { LANES = 16 };

static inline Vector vector_all(real x) { return _mm512_set1_ps(x); }
static inline Vector vector_load(const real *x) { return _mm512_loadu_ps(x); }
static inline void vector_store(real *x, Vector v) { _mm512_storeu_ps(x, v); }
static inline Vector vector_fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
static inline Vector vector_times(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
static inline Vector vector_load_some(const real *x, int count) {
    return _mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), x);
}
static inline void vector_store_some(real *x, int count, Vector v) {
    _mm512_mask_storeu_ps(x, (__mmask16)((1u << count) - 1), v);
}

static inline __m512d as_double(Vector v) { return _mm512_castps_pd(v); }
static inline Vector as_float(__m512d v) { return _mm512_castpd_ps(v); }

/* Pairs of rows, then of pairs, of fours, of eights. */
static inline void transpose(Vector v[LANES]) {
    Vector t[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i += 4) {
        v[i] = as_float(_mm512_unpacklo_pd(as_double(t[i]), as_double(t[i + 2])));
        v[i + 1] = as_float(_mm512_unpackhi_pd(as_double(t[i]), as_double(t[i + 2])));
        v[i + 2] = as_float(_mm512_unpacklo_pd(as_double(t[i + 1]), as_double(t[i + 3])));
        v[i + 3] = as_float(_mm512_unpackhi_pd(as_double(t[i + 1]), as_double(t[i + 3])));
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(v[i], v[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_f32x4(v[i], v[4 + i], 0xdd);
        t[8 + i] = _mm512_shuffle_f32x4(v[8 + i], v[12 + i], 0x88);
        t[12 + i] = _mm512_shuffle_f32x4(v[8 + i], v[12 + i], 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 8; i++) {
        v[i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0x88);
        v[8 + i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0xdd);
    }
}

#endif

#include "math/gemm_kernel.inc"

static bool runs_here(void) { return __builtin_cpu_supports("avx512f"); }

#ifdef __clang__
#pragma clang attribute pop
#endif

const GemmKernel gemm_avx512 = {"avx512", TILE_ROWS, TILE_COLS, runs_here,
                                multiply, pack_rows, pack_cols};

#endif
