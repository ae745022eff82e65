#include "base/hash.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

Hash128 hash_bytes(const void *bytes, size_t size) {
    XXH128_hash_t hash = XXH3_128bits(bytes, size);
    return (Hash128){hash.high64, hash.low64};
}

HashStream *hash_stream_begin(void) {
    XXH3_state_t *state = XXH3_createState();
    if (state)
        XXH3_128bits_reset(state);
    else
        error_set(WEFT_RUNTIME, "out of memory: digest");
    return (HashStream *)state;
}

void hash_stream_add(HashStream *stream, const void *bytes, size_t size) {
    XXH3_128bits_update((XXH3_state_t *)stream, bytes, size);
}

Hash128 hash_stream_end(HashStream *stream) {
    if (!stream) return (Hash128){0, 0};
    XXH128_hash_t hash = XXH3_128bits_digest((XXH3_state_t *)stream);
    XXH3_freeState((XXH3_state_t *)stream);
    return (Hash128){hash.high64, hash.low64};
}

Hash128 hash_text(const char *text) { return hash_bytes(text, strlen(text)); }

Hash128 hash_add(Hash128 a, Hash128 b) {
    uint64_t low = a.low + b.low;
    return (Hash128){a.high + b.high + (low < a.low), low};
}

int hash_equal(Hash128 a, Hash128 b) { return a.high == b.high && a.low == b.low; }

void hash_format(Hash128 hash, char text[HASH_TEXT]) {
    snprintf(text, HASH_TEXT, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
}

static int digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

int hash_parse(const char *text, Hash128 *hash) {
    uint64_t half[2] = {0, 0};
    for (int i = 0; i < 32; i++) {
        int value = digit(text[i]);
        if (value < 0)
            return error_set(WEFT_INPUT, "\"%.40s\": 32 lower-case hex digits expected", text);
        half[i / 16] = half[i / 16] << 4 | (uint64_t)value;
    }
    if (text[32])
        return error_set(WEFT_INPUT, "\"%.40s...\": 32 lower-case hex digits expected", text);
    *hash = (Hash128){half[0], half[1]};
    return 0;
}

/* SplitMix64's finalizer (Steele, Lea, Flood, OOPSLA'14; constants: Stafford's variant 13). */
static inline uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Where (name, index) and what (bits) are mixed in turn, twice with different keys. */
static inline Hash128 element(Hash128 name, uint64_t index, uint64_t bits) {
    uint64_t place = mix(name.low + index * UINT64_C(0x9e3779b97f4a7c15));
    uint64_t low = mix(place ^ bits);
    uint64_t high = mix(low + (place ^ name.high) + bits * UINT64_C(0xd1342543de82ef95));
    return (Hash128){high, low};
}

Hash128 hash_elements(Hash128 name, int64_t first, const void *values, int64_t count,
                      size_t width) {
    Hash128 sum = {0, 0};
    for (int64_t i = 0; i < count; i++) {
        uint64_t bits = 0;
        if (width == 4) {
            uint32_t word;
            memcpy(&word, (const char *)values + 4 * i, 4);
            bits = word;
        } else {
            memcpy(&bits, (const char *)values + 8 * i, 8);
        }
        sum = hash_add(sum, element(name, (uint64_t)(first + i), bits));
    }
    return sum;
}
