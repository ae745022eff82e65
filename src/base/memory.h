/* Aligned memory and arenas.
 *
 * An Arena is laid out twice by the same code: first with no memory behind it, which only counts
 * (`plan` stops there), then after arena_allocate(), which hands out pointers. What was counted and
 * what is held are therefore the same number. All blocks are aligned to MEMORY_ALIGN bytes. */
#ifndef WEFT_BASE_MEMORY_H
#define WEFT_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#define MEMORY_ALIGN     64
#define MEMORY_HUGE_PAGE ((size_t)1 << 21)

/* bytes, up to a multiple of MEMORY_ALIGN. */
size_t memory_aligned(size_t bytes);

/* Zeroed, aligned, large blocks on huge pages where the system has some; NULL with the error set to
 * name `what` and the size. Free with free(). */
void *memory_allocate(size_t bytes, const char *what);

typedef struct {
    char *base;
    size_t used, capacity;
} Arena;

void arena_init(Arena *arena); /* counting */

/* Turns a counting arena into one with memory (zeroed) for what was counted, and rewinds it.
 * `what` names it in the message. Returns 0 or WEFT_RUNTIME. */
int arena_allocate(Arena *arena, const char *what);

/* count * size bytes. Returns NULL while counting. */
void *arena_take(Arena *arena, int64_t count, size_t size);

void arena_release(Arena *arena);

/* Largest resident set of this process so far, in bytes. */
int64_t memory_peak_resident(void);

#endif
