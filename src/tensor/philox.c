#include "tensor/philox.h"

#include "base/wide.h"

#include <Random123/philox.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

static void counter_of(const PhiloxStream *stream, uint32_t row, uint32_t block,
                       uint32_t counter[4]) {
    counter[0] = block;
    counter[1] = row;
    counter[2] = stream->step;
    counter[3] = (uint32_t)stream->purpose << 26 | stream->layer << 16 | stream->microbatch;
}

void philox_block(const PhiloxStream *stream, uint32_t row, uint32_t block, uint32_t word[4]) {
    philox4x32_key_t key = {{(uint32_t)stream->seed, (uint32_t)(stream->seed >> 32)}};
    philox4x32_ctr_t counter;
    counter_of(stream, row, block, counter.v);
    philox4x32_ctr_t random = philox4x32(counter, key);
    for (int i = 0; i < 4; i++) word[i] = random.v[i];
}

/* ---- many blocks at a time ---- */

enum { TOGETHER = 16, FEW = 4 }; /* blocks; up to so many are made one by one */

#ifdef __AVX2__

/* A word each in the low half of 64 bits; what is in the high half is ignored. */
enum { LANES = 4, VECTORS = TOGETHER / LANES };
typedef uint64_t Lanes __attribute__((vector_size(8 * LANES)));

static inline Lanes lanes_all(uint32_t word) { return (Lanes){word, word, word, word}; }

/* The whole products of low halves. */
static inline Lanes lanes_times(Lanes x, uint32_t factor) {
    return (Lanes)_mm256_mul_epu32((__m256i)x, (__m256i)lanes_all(factor));
}

/* Words 0 to 3 of LANES blocks, block by block. */
static inline void lanes_store(const Lanes x[4], uint32_t *words) {
    const Lanes low = lanes_all(UINT32_MAX);
    Lanes first = (x[0] & low) | x[1] << 32, second = (x[2] & low) | x[3] << 32;
    Lanes out[2] = {__builtin_shufflevector(first, second, 0, 4, 1, 5),
                    __builtin_shufflevector(first, second, 2, 6, 3, 7)};
    memcpy(words, out, sizeof out);
}

/* The rounds of philox_block (Salmon et al., section 3.3) for `block` and those after it. */
WIDE static void blocks_together(const PhiloxStream *stream, uint32_t row, uint32_t block,
                                 uint32_t words[4 * TOGETHER]) {
    uint32_t counter[4], key0 = (uint32_t)stream->seed, key1 = (uint32_t)(stream->seed >> 32);
    counter_of(stream, row, block, counter);
    Lanes x[VECTORS][4];
    for (uint32_t v = 0; v < VECTORS; v++) {
        x[v][0] = lanes_all(block + LANES * v) + (Lanes){0, 1, 2, 3};
        for (int i = 1; i < 4; i++) x[v][i] = lanes_all(counter[i]);
    }
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) {
            Lanes a = lanes_times(x[v][0], PHILOX_M4x32_0);
            Lanes b = lanes_times(x[v][2], PHILOX_M4x32_1);
            x[v][0] = b >> 32 ^ x[v][1] ^ lanes_all(key0);
            x[v][1] = b;
            x[v][2] = a >> 32 ^ x[v][3] ^ lanes_all(key1);
            x[v][3] = a;
        }
        key0 += PHILOX_W32_0;
        key1 += PHILOX_W32_1;
    }
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) lanes_store(x[v], words + 4 * LANES * v);
}

#else

static void blocks_together(const PhiloxStream *stream, uint32_t row, uint32_t block,
                            uint32_t words[4 * TOGETHER]) {
    for (uint32_t b = 0; b < TOGETHER; b++) philox_block(stream, row, block + b, words + 4 * b);
}

#endif

void philox_words(const PhiloxStream *stream, uint32_t row, Range channels, uint32_t *words) {
    int64_t channel = channels.begin;
    while (channel < channels.end) {
        uint32_t word[4 * TOGETHER], block = (uint32_t)(channel / 4);
        int64_t skip = channel % 4, wanted = skip + channels.end - channel;
        bool many = wanted > 4 * FEW, direct = skip == 0 && wanted >= 4 * TOGETHER;
        int64_t made = many ? 4 * TOGETHER : 4, count = (wanted < made ? wanted : made) - skip;
        if (many)
            blocks_together(stream, row, block, direct ? words : word);
        else
            philox_block(stream, row, block, word);
        if (!direct) memcpy(words, word + skip, (size_t)count * sizeof *words);
        words += count;
        channel += count;
    }
}

/* Two normals from two words; (w + 1/2) / 2^32 is never 0 or 1. */
static void box_muller(uint32_t a, uint32_t b, double normal[2]) {
    double radius = sqrt(-2.0 * log(((double)a + 0.5) * 0x1p-32));
    double angle = 2.0 * M_PI * (((double)b + 0.5) * 0x1p-32);
    normal[0] = radius * cos(angle);
    normal[1] = radius * sin(angle);
}

void philox_normals(const PhiloxStream *stream, uint32_t row, Range channels, double *values) {
    int64_t channel = channels.begin;
    while (channel < channels.end) {
        uint32_t word[4];
        double normal[4];
        philox_block(stream, row, (uint32_t)(channel / 4), word);
        box_muller(word[0], word[1], normal);
        box_muller(word[2], word[3], normal + 2);
        for (int64_t i = channel % 4; i < 4 && channel < channels.end; i++, channel++)
            *values++ = normal[i];
    }
}
