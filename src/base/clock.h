/* Time, for reports only: no value of a run depends on it. */
#ifndef WEFT_BASE_CLOCK_H
#define WEFT_BASE_CLOCK_H

#include <stddef.h>

double clock_seconds(void);                    /* monotonic */
void clock_stamp(char *text, size_t capacity); /* UTC, "2024-05-01T12:00:00Z" */
void clock_sleep(double seconds);

#endif
