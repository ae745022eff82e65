/* Latency and bandwidth between two ranks, as weft's messages have them and `weft plan --net` takes
 * them. */
#ifndef WEFT_RUN_PING_H
#define WEFT_RUN_PING_H

#include "comm/comm.h"

/* Between the first rank and the last, which the launcher should have put on different nodes.
 * Prints (log_print) half the time of a small message there and back, the bytes a second that each
 * gets while it sends as many, and both as an option. Collective over the world; agreed errors. */
int ping_run(Grid *grid);

#endif
