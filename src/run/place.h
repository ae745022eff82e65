/* Where a tool puts what it makes: a new file or directory that appears whole or not at all, and
 * never in the place of another.
 *
 *     place_choose(&place, out);          // nothing is there yet, and it may be put there
 *     place_check_source(&place, path);   // for each thing that is read
 *     place_begin(&place);                // `.tmp-NAME-PID-TOKEN` beside it, which no other has
 *     ... is made at place.made, in place.aside ...
 *     place_publish(&place);
 *     place_leave(&place);                // always
 *
 * What is killed in between leaves its directory aside, which the next one for the same place
 * clears: it holds a `.claim` that says that it is weft's, and no process has that file locked.
 * Nothing else beside the place is touched, whatever its name. */
#ifndef WEFT_RUN_PLACE_H
#define WEFT_RUN_PLACE_H

#include "base/files.h"

typedef struct {
    char out[FILES_PATH], parent[FILES_PATH]; /* without slashes at their ends */
    char stem[256];                           /* how the names of directories aside begin */
    char aside[FILES_PATH];                   /* "": there is none */
    char made[FILES_PATH];
    int claim;
} Place;

/* 0, or WEFT_USAGE naming --out: it exists, lies inside of a checkpoint, or has no parent. */
int place_choose(Place *place, const char *out);

/* 0, or WEFT_USAGE: the path lies in what place_begin may clear. NULL is no path. */
int place_check_source(const Place *place, const char *path);

/* Whether so many bytes have room beside it. 0 (also when nobody can tell), or WEFT_RUNTIME. */
int place_check_space(const Place *place, int64_t needed);

/* 0; WEFT_USAGE naming the process that is making the same; or WEFT_RUNTIME. */
int place_begin(Place *place);

/* Syncs place->made, renames it to place->out and syncs the parent. 0; WEFT_USAGE when something
 * has appeared there meanwhile; or WEFT_RUNTIME. */
int place_publish(const Place *place);

/* Clears what is aside; a failure's message stays. Safe on zeroed memory and without
 * place_begin. */
void place_leave(Place *place);

#endif
