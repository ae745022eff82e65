/* How much of the cores that this process may use others had for a while, by Linux's /proc/stat:
 * programs beside it, and other guests of the host. */
#ifndef WEFT_RUN_OTHERS_H
#define WEFT_RUN_OTHERS_H

#include <sched.h>
#include <stdio.h>

typedef struct {
    cpu_set_t cores;
    double since, busy, own; /* seconds; busy < 0: not known here */
} Others;

/* Seconds that these cores have worked for anybody, of the text of /proc/stat. */
double others_busy(FILE *stat, const cpu_set_t *cores);

void others_begin(Others *others);

/* Their part of all the time of these cores since then; 0 where it isn't known. */
double others_share(const Others *others);

#endif
