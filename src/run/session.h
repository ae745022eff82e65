/* What every command that computes under MPI does first and last: threads, the same program and
 * config everywhere, the layout. */
#ifndef WEFT_RUN_SESSION_H
#define WEFT_RUN_SESSION_H

#include "comm/comm.h"
#include "config/config.h"

typedef struct {
    Grid *grid;
    int threads;
} Session;

/* Starts the watch over hangs (train.hang_timeout), sets threads, checks that all ranks run the
 * same build on the same kind of core under the same config, chooses the layout (tp, dp; 0: free)
 * and lays it out; prints it. Collective over the world; agreed errors. */
int session_open(Session *session, Grid *grid, const Config *config, int tp, int dp);

/* Ends the watch. All ranks meet here, surplus ones have been waiting; returns the common status.
 * Collective over the world. */
int session_close(Session *session, int status);

#endif
