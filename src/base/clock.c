#include "base/clock.h"

#include <errno.h>
#include <time.h>

double clock_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void clock_stamp(char *text, size_t capacity) {
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(text, capacity, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

void clock_sleep(double seconds) {
    struct timespec span = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&span, &span) && errno == EINTR) continue; /* a signal's handler has run */
}
