/* A network between nodes, as a plan is told of it. */
#ifndef WEFT_RUN_NETWORK_H
#define WEFT_RUN_NETWORK_H

typedef struct {
    double latency; /* seconds that a message takes whatever its size */
    double
        seconds; /* of a byte more: 1 / (bytes a second that a node gets while it sends as many) */
} Network;

/* "2us,10GB/s": a number and ns, us, ms or s; a number and B/s, kB/s, MB/s, GB/s, or kbit/s,
 * Mbit/s, Gbit/s (powers of 1000). 0, or WEFT_USAGE with a message that says which half is wrong,
 * and how.
 */
int network_parse(const char *text, Network *network);

#endif
