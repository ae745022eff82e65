/* The lock around HDF5: training reads arrays while a thread of its saver writes a checkpoint.
 * Debian's HDF5 has a lock inside, builds of clusters often have none. Whoever calls HDF5 does so
 * in a section:
 *
 *     LIBRARY_SECTION; // from here to the end of the block no other thread is in HDF5
 *
 * A call that fails and the look at HDF5's error stack belong into one section. Sections may be
 * nested. Threads enter in the order in which they came, so that a writer who is back at once
 * doesn't keep training waiting; and they are kept short: a few MB, no fsync. */
#ifndef WEFT_BASE_LIBRARY_LOCK_H
#define WEFT_BASE_LIBRARY_LOCK_H

int library_enter(void);          /* returns 0 */
void library_leave(int *section); /* what library_enter returned */

#define LIBRARY_SECTION                                                                            \
    int library_section __attribute__((cleanup(library_leave), unused)) = library_enter()

#endif
