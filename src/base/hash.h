/* Hashes. XXH3-128 (xxHash) for damage: shard digests. Hash128 sums for identity: an order-free
 * sum, modulo 2^128, of one well-mixed 128-bit hash per element, so that every owner of a part adds
 * up its own and the parts add up to the same value however the whole was cut. */
#ifndef WEFT_BASE_HASH_H
#define WEFT_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t high, low;
} Hash128;

#define HASH_TEXT 33 /* 32 hex digits and NUL */

Hash128 hash_bytes(const void *bytes, size_t size); /* XXH3-128 */
Hash128 hash_text(const char *text);

/* hash_bytes of what comes in pieces: begin, add ..., end. */
typedef struct HashStream HashStream;
HashStream *hash_stream_begin(void); /* NULL with the error set when memory is short */
void hash_stream_add(HashStream *stream, const void *bytes, size_t size);
Hash128 hash_stream_end(HashStream *stream); /* frees it; NULL gives zero */
Hash128 hash_add(Hash128 a, Hash128 b);      /* modulo 2^128 */
int hash_equal(Hash128 a, Hash128 b);
void hash_format(Hash128 hash, char text[HASH_TEXT]);
int hash_parse(const char *text, Hash128 *hash); /* exactly 32 hex digits; 0 or WEFT_INPUT */

/* Sum over i in [0, count) of the hash of (name, first + i, bits of values[i]); values are `width`
 * bytes each (4 or 8). `first` is the global row-major index of values[0]; the caller splits runs
 * that aren't contiguous globally. Element hash: two SplitMix64 finalizers (Steele, Lea, Flood
 * 2014) over name, index and bits. */
Hash128 hash_elements(Hash128 name, int64_t first, const void *values, int64_t count, size_t width);

#endif
