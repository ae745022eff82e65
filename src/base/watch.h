/* A rank's watch over its own progress: a thread that ends the process when nothing has moved for
 * too long. A collective whose other side is gone waits for ever, and only those who wait in it can
 * tell.
 *
 *     Watch *watch = watch_open(rank, seconds);
 *     watch_step(watch, step); watch_phase(watch, PHASE_FORWARD);   // signs of life
 *     watch_enter(watch, "exact sum"); ... watch_leave(watch);      // around a collective
 *     watch_close(watch);
 *
 * When there has been no sign for `seconds` (ten times as long in the phases startup, load and
 * save, where others may be waiting for a disk), the rank prints
 *     rank 1: no progress for 300 s: step 17, phase backward, waiting in exact sum over tensor
 * ranks waits a little so that other ranks can say theirs, and ends the process with exit code 4
 * without another word to MPI: the launcher then ends the job. All functions take a NULL watch and
 * do nothing. Signs are cheap: an atomic store each. */
#ifndef WEFT_BASE_WATCH_H
#define WEFT_BASE_WATCH_H

#include "base/fault.h"

#include <stdint.h>

typedef struct Watch Watch;

/* NULL when `seconds` is 0, or (with a warning) when no thread can be started. */
Watch *watch_open(int rank, double seconds);
void watch_close(Watch *watch);

void watch_step(Watch *watch, int64_t step);
void watch_phase(Watch *watch, Phase phase);

/* `what`: static text. Calls nest: the inner one is told. */
void watch_enter(Watch *watch, const char *what);
void watch_leave(Watch *watch);

#endif
