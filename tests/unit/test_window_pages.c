/* A shared mapping seen twice: one memory, at an address that huge pages fit, and gone when closed.
 */
#include "comm/window_pages.h"

#include "base/memory.h"
#include "support/support.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SIZE = 5 << 21, FIRST = 4096 + 64 }; /* the window begins somewhere in its mapping */

/* What MPI would hand out: `offset` into its file, at an address of one's own choice. */
typedef struct {
    char *mapping, *begin, *end;
    WindowPages pages;
} Rig;

static Rig rig_open(size_t offset, size_t misplaced) {
    Rig rig = {.mapping = NULL};
    int file = memfd_create("window", 0);
    ck_assert_int_ge(file, 0);
    ck_assert_int_eq(ftruncate(file, (off_t)(offset + SIZE)), 0);
    char *room =
        mmap(NULL, SIZE + 2 * MEMORY_HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert(room != MAP_FAILED);
    char *place = room + (MEMORY_HUGE_PAGE - (uintptr_t)room % MEMORY_HUGE_PAGE) + misplaced;
    rig.mapping =
        mmap(place, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, (off_t)offset);
    ck_assert_ptr_eq(rig.mapping, place);
    close(file);
    rig.begin = rig.mapping + FIRST;
    rig.end = rig.mapping + SIZE - 64;
    memset(rig.begin, 1, (size_t)(rig.end - rig.begin));
    window_pages_open(&rig.pages, rig.begin, rig.end);
    return rig;
}

/* What is written at either place is read at the other, in every page. */
static void assert_same_memory(const Rig *rig) {
    size_t size = (size_t)(rig->end - rig->begin);
    char *other = window_pages_find(&rig->pages, rig->begin);
    ck_assert_ptr_ne(other, rig->begin);
    for (size_t at = 0; at < size; at += 4096) {
        ck_assert_int_eq(other[at], 1);
        rig->begin[at] = 2;
        ck_assert_int_eq(other[at], 2);
        other[at] = 1;
        ck_assert_int_eq(rig->begin[at], 1);
    }
    ck_assert_int_eq(other[size - 1], 1);
}

START_TEST(both_addresses_are_one_memory) {
    static const size_t offset[] = {0, 4096, 3 << 20}, misplaced[] = {0, 4096, 1 << 20};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) {
            Rig rig = rig_open(offset[i], misplaced[k]);
            char *other = window_pages_find(&rig.pages, rig.begin);
            assert_same_memory(&rig);
            window_pages_collapse(&rig.pages, other, (size_t)(rig.end - rig.begin));
            assert_same_memory(&rig);
            /* An address and its place in the file agree within a huge page. */
            ck_assert_uint_eq((uintptr_t)other % MEMORY_HUGE_PAGE,
                              (offset[i] + FIRST) % MEMORY_HUGE_PAGE);
            window_pages_close(&rig.pages);
            ck_assert_ptr_eq(window_pages_find(&rig.pages, rig.begin), rig.begin);
            ck_assert_int_eq(rig.begin[0], 1);
            munmap(rig.mapping, SIZE);
        }
}
END_TEST

START_TEST(addresses_outside_stay) {
    Rig rig = rig_open(0, 0);
    char other[1];
    ck_assert_ptr_eq(window_pages_find(&rig.pages, rig.end), rig.end);
    ck_assert_ptr_eq(window_pages_find(&rig.pages, rig.begin - 1), rig.begin - 1);
    ck_assert_ptr_eq(window_pages_find(&rig.pages, other), other);
    window_pages_close(&rig.pages);
}
END_TEST

START_TEST(small_windows_stay_where_they_are) {
    Rig rig = rig_open(0, 0);
    WindowPages small;
    window_pages_open(&small, rig.begin, rig.begin + MEMORY_HUGE_PAGE - 1);
    ck_assert_ptr_eq(window_pages_find(&small, rig.begin), rig.begin);
    window_pages_collapse(&small, rig.begin, MEMORY_HUGE_PAGE - 1);
    window_pages_close(&small);
    window_pages_close(&rig.pages);
}
END_TEST

/* A window that lies across two mappings can't be had once more as one. */
START_TEST(a_window_across_mappings_stays) {
    Rig rig = rig_open(0, 0);
    window_pages_close(&rig.pages);
    ck_assert_int_eq(mprotect(rig.mapping + (2 << 21), 4096, PROT_READ), 0); /* cuts it in three */
    window_pages_open(&rig.pages, rig.begin, rig.end);
    ck_assert_ptr_eq(window_pages_find(&rig.pages, rig.begin), rig.begin);
    window_pages_close(&rig.pages);
}
END_TEST

int main(void) {
    return run_suite("window pages",
                     TESTS(both_addresses_are_one_memory, addresses_outside_stay,
                           small_windows_stay_where_they_are, a_window_across_mappings_stays));
}
