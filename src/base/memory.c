#include "base/memory.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

size_t memory_aligned(size_t bytes) {
    return (bytes + MEMORY_ALIGN - 1) / MEMORY_ALIGN * MEMORY_ALIGN;
}

/* Large blocks lie on huge pages as far as they fill them, where the system has some. */
static void *take(size_t size) {
    void *block = NULL;
    if (posix_memalign(&block, size < MEMORY_HUGE_PAGE ? MEMORY_ALIGN : MEMORY_HUGE_PAGE, size))
        return NULL;
    if (size >= MEMORY_HUGE_PAGE)
        (void)madvise(block, size / MEMORY_HUGE_PAGE * MEMORY_HUGE_PAGE, MADV_HUGEPAGE);
    return block;
}

void *memory_allocate(size_t bytes, const char *what) {
    size_t size = memory_aligned(bytes ? bytes : 1);
    void *block = size < bytes ? NULL : take(size);
    if (!block) {
        error_set(WEFT_RUNTIME, "out of memory: %s needs %.1f MB", what, (double)bytes / 1e6);
        return NULL;
    }
    return memset(block, 0, size);
}

void arena_init(Arena *arena) { *arena = (Arena){0}; }

int arena_allocate(Arena *arena, const char *what) {
    size_t needed = arena->used;
    arena->base = memory_allocate(needed, what);
    if (!arena->base) return WEFT_RUNTIME;
    arena->capacity = needed;
    arena->used = 0;
    return 0;
}

void *arena_take(Arena *arena, int64_t count, size_t size) {
    size_t bytes = memory_aligned((size_t)count * size);
    size_t start = arena->used;
    arena->used += bytes;
    if (!arena->base) return NULL;
    return arena->used <= arena->capacity ? arena->base + start : NULL;
}

void arena_release(Arena *arena) {
    free(arena->base);
    *arena = (Arena){0};
}

int64_t memory_peak_resident(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (int64_t)usage.ru_maxrss * 1024;
}
