#include "base/watch.h"

#include <stddef.h>

Watch *watch_open(int rank, double seconds) {
    (void)rank, (void)seconds;
    return NULL;
}

void watch_close(Watch *watch) { (void)watch; }
void watch_step(Watch *watch, int64_t step) { (void)watch, (void)step; }
void watch_phase(Watch *watch, Phase phase) { (void)watch, (void)phase; }
void watch_enter(Watch *watch, const char *what) { (void)watch, (void)what; }
void watch_leave(Watch *watch) { (void)watch; }
