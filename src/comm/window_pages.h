/* Inside comm only: the memory of a shared window on huge pages.
 *
 * A window lies on small ones: what systems say about huge pages in shared memory is `never`, and
 * MPI takes any address. A product whose rows are written there misses the TLB at every row. So
 * each process maps the same memory once more, at an address that fits, and asks for huge pages by
 * MADV_COLLAPSE (Linux 6.1), which needs nobody's leave. Where any of it fails the window serves as
 * it is. Nothing here is collective. */
#ifndef WEFT_COMM_WINDOW_PAGES_H
#define WEFT_COMM_WINDOW_PAGES_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    char *room; /* addresses that were taken; NULL: none */
    size_t size;
    char *begin, *end; /* the window as MPI mapped it */
    intptr_t shift;    /* from there to here */
} WindowPages;

/* [begin, end): the segments of all ranks. Small windows are left as they are. */
void window_pages_open(WindowPages *pages, char *begin, char *end);
void window_pages_close(WindowPages *pages); /* before MPI's window is freed */

/* Where `address` of MPI's mapping lies here. */
char *window_pages_find(const WindowPages *pages, char *address);

/* Asks for huge pages under what find() returned, all of it written before; and what lies on the
 * same ones. */
void window_pages_collapse(const WindowPages *pages, char *address, size_t bytes);

#endif
