/* Replicas that should hold the same bits: replicated tensors on all tensor ranks, every tensor on
 * all data-parallel ranks. */
#ifndef WEFT_RUN_DRIFT_H
#define WEFT_RUN_DRIFT_H

#include "comm/comm.h"
#include "param/param.h"

/* Compares values and moments of all replicas by hash. 0, or WEFT_RUNTIME on all ranks, naming
 * tensor and ranks. Collective over GROUP_GRID. */
int drift_check(Grid *grid, const ParamSet *set);

#endif
