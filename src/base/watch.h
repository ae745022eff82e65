/* A rank's watch over its own progress: a thread that ends the process when nothing has moved for
 * too long. A collective whose other side is gone waits for ever, and only those who wait in it can
 * tell.
 *
 *     Watch *watch = watch_open(rank, seconds);
 *     watch_step(watch, step); watch_phase(watch, PHASE_FORWARD);   // signs of life
 *     watch_enter(watch, "broadcast", "all ranks"); ... watch_leave(watch);
 *     watch_close(watch);
 *
 * When there has been no sign for `seconds` (ten times as long in phases in which others may be
 * waiting for a disk: startup, data, load, save), the rank prints
 *     rank 1: no progress for 300 s: step 17, phase backward, waiting in exact sum over tensor
 * ranks (or "in no collective": then others wait for this rank), and if there is none for another
 * tenth of that (1 s at least, 30 s at most: others began to wait later, and should have their say)
 * ends the process with exit code 4 without a word to MPI: the launcher then ends the job. A sign
 * in between, and the rank says that it goes on.
 *
 * Only time in which the process could run counts: one that was stopped goes on. All functions take
 * a NULL watch and do nothing. Signs are cheap, a few plain stores, and come from one thread. */
#ifndef WEFT_BASE_WATCH_H
#define WEFT_BASE_WATCH_H

#include "base/fault.h"

#include <stdint.h>

typedef struct Watch Watch;

/* NULL when `seconds` is 0, or (with a warning) when no thread can be started. */
Watch *watch_open(int rank, double seconds);
void watch_close(Watch *watch);

void watch_step(Watch *watch, int64_t step); /* the one that begins; the first is 1 */
void watch_phase(Watch *watch, Phase phase);

/* `what` over `whom`: static texts. Calls nest: the inner one is told. */
void watch_enter(Watch *watch, const char *what, const char *whom);
void watch_leave(Watch *watch);

#endif
