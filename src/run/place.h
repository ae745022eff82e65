/* Where a tool puts what it makes: a new file or directory that appears whole or not at all, and
 * never in the place of another.
 *
 *     place_choose(&place, out);          // nothing is there yet, and it may be put there
 *     place_begin(&place);                // `.tmp-NAME` beside it, empty and ours
 *     ... is made as place.aside, or as a file in it ...
 *     place_publish(&place, made);
 *     place_leave(&place, failed);        // always
 *
 * What is killed in between leaves `.tmp-NAME`, which the next one for the same place empties. */
#ifndef WEFT_RUN_PLACE_H
#define WEFT_RUN_PLACE_H

#include "base/files.h"

typedef struct {
    char out[FILES_PATH], parent[FILES_PATH]; /* without slashes at their ends */
    char aside[FILES_PATH];
    int claim;
} Place;

/* 0, or WEFT_USAGE naming --out: it exists, lies inside of a checkpoint, or has no parent. */
int place_choose(Place *place, const char *out);

/* 0; WEFT_USAGE when another process is at work there; or WEFT_RUNTIME. */
int place_begin(Place *place);

/* Syncs `made` (place->aside, or a file in it), renames it to place->out and syncs the parent. 0 or
 * WEFT_RUNTIME. */
int place_publish(const Place *place, const char *made);

/* Ends the claim; what a failure has left aside goes, its message stays. Safe without
 * place_begin. */
void place_leave(Place *place, bool failed);

#endif
