/* What a layout cuts, and into how many pieces at most: what `weft plan --net` says of limits, and
 * which layouts it leaves out. Integers, no MPI. */
#ifndef WEFT_RUN_SCALING_AXES_H
#define WEFT_RUN_SCALING_AXES_H

#include "config/config.h"

#include <stdbool.h>

typedef struct {
    const char *key;       /* of the config */
    int64_t units, shards; /* shards: as many as the grid has; min(shards, units) are made */
    bool of_data;          /* lies over data ranks; else over tensor ranks */
} ScalingAxis;

enum { SCALING_AXES = 4 };

void scaling_axes(const Config *config, ScalingAxis axis[SCALING_AXES]);

/* Units of the rank that has most, on so many ranks of the axis's kind (at most the grid's). */
int64_t scaling_axis_load(const ScalingAxis *axis, int ranks);

/* Whether so many tensor ranks (of_data: data ranks) leave the busiest less of anything than one
 * rank fewer does. A layout of which that is wrong isn't worth a prediction. */
bool scaling_axes_shrink(const Config *config, int ranks, bool of_data);

#endif
