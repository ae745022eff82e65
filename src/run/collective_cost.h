/* Seconds of a collective. The equations, and their sources, are in scaling.h. */
#ifndef WEFT_RUN_COLLECTIVE_COST_H
#define WEFT_RUN_COLLECTIVE_COST_H

#include "run/network.h"
#include "run/plan_traffic.h"
#include "run/rates.h"

/* How the ranks of a group reach each other. */
typedef struct {
    int ranks;
    bool one_node;
    double latency, seconds; /* of a message and of a byte, mean over a rank's partners */
    MemoryRates memory;      /* of a node */
} Link;

/* The group's slowest link: `ranks` ranks of which neighbours are `stride` apart, in a grid of
 * `total` ranks, `node_ranks` of them on each node. Ranks of a node share its network. */
Link link_of(int ranks, int stride, int total, int node_ranks, const Network *network,
             const MemoryRates *memory);

typedef struct {
    double latency; /* what stays when blocks are small: messages and barriers */
    double bytes;   /* what is moved and added */
} CollectiveCost;

/* Of all `calls` of it. */
CollectiveCost collective_cost(const Collective *collective, const Link *link);

#endif
