#include "comm/window_pages.h"

#include "base/memory.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* glibc 2.37 */
#endif

static uintptr_t up(uintptr_t x) {
    return (x + MEMORY_HUGE_PAGE - 1) / MEMORY_HUGE_PAGE * MEMORY_HUGE_PAGE;
}
static uintptr_t down(uintptr_t x) { return x / MEMORY_HUGE_PAGE * MEMORY_HUGE_PAGE; }

typedef struct {
    uintptr_t begin, end;
    uint64_t offset; /* in its file */
} Mapping;

/* The mapping of this process that `address` belongs to. */
static bool find_mapping(uintptr_t address, Mapping *mapping) {
    FILE *file = fopen("/proc/self/maps", "r");
    char line[512];
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file))
        found = sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %" SCNx64, &mapping->begin,
                       &mapping->end, &mapping->offset) == 3 &&
                mapping->begin <= address && address < mapping->end;
    if (file) fclose(file);
    return found;
}

void window_pages_open(WindowPages *pages, char *begin, char *end) {
    Mapping mapping;
    *pages = (WindowPages){.begin = begin, .end = end};
    if ((size_t)(end - begin) < MEMORY_HUGE_PAGE || !find_mapping((uintptr_t)begin, &mapping) ||
        mapping.end < (uintptr_t)end)
        return;
    size_t size = mapping.end - mapping.begin;
    char *room = mmap(NULL, size + 2 * MEMORY_HUGE_PAGE, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return;
    char *place =
        room + (up((uintptr_t)room) - (uintptr_t)room) + mapping.offset % MEMORY_HUGE_PAGE;
    char *old = begin - ((uintptr_t)begin - mapping.begin);
    /* An old size of 0 maps the same memory once more. */
    if (mremap(old, 0, size, MREMAP_MAYMOVE | MREMAP_FIXED, place) != place) {
        munmap(room, size + 2 * MEMORY_HUGE_PAGE);
        return;
    }
    pages->room = room;
    pages->size = size + 2 * MEMORY_HUGE_PAGE;
    pages->shift = place - old;
    (void)madvise(old, size, MADV_DONTNEED); /* its pages would count as this process's twice */
}

void window_pages_close(WindowPages *pages) {
    if (pages->room) munmap(pages->room, pages->size);
    *pages = (WindowPages){0};
}

char *window_pages_find(const WindowPages *pages, char *address) {
    bool inside = pages->begin <= address && address < pages->end;
    return pages->room && inside ? address + pages->shift : address;
}

void window_pages_collapse(const WindowPages *pages, char *address, size_t bytes) {
    if (!pages->room) return;
    uintptr_t first = (uintptr_t)(pages->begin + pages->shift);
    uintptr_t begin = down((uintptr_t)address), end = up((uintptr_t)address + bytes);
    uintptr_t last = down((uintptr_t)(pages->end + pages->shift));
    if (begin < first) begin = up(first);
    if (end > last) end = last;
    if (begin < end)
        (void)madvise(address - ((uintptr_t)address - begin), end - begin, MADV_COLLAPSE);
}
