#include "run/collective_cost.h"

/* All-gathers are a ring from here on (Thakur et al. 2005, section 4.1). */
static const double RING_BYTES = 512 << 10;
/* Above it a rank reads from memory, below from a cache (rates.h). */
static const double LARGE_BYTES = 4 << 20;

/* Of a message on a node beside the barrier's time (weft ping, Open MPI 4.1: 1.2 us in all). */
static const double NODE_LATENCY = 1e-6;

static const double WINDOW_SUM_BARRIERS = 3, WINDOW_ROWS_BARRIERS = 2;

/* ---- links ---- */

/* Partners of a rank that are on other nodes, of the rank that has most. */
static int most_far(int ranks, int stride, int total, int node_ranks) {
    int most = 0;
    for (int first = 0; first < total; first++) {
        int far = 0;
        if (first / stride % ranks != 0) continue; /* not the first of its group */
        for (int i = 1; i < ranks; i++)
            far += (first + i * stride) / node_ranks != first / node_ranks;
        if (far > most) most = far;
        far = 0;
        int last = first + (ranks - 1) * stride;
        for (int i = 0; i < ranks - 1; i++)
            far += (first + i * stride) / node_ranks != last / node_ranks;
        if (far > most) most = far;
    }
    return most;
}

/* On a node a message is two copies, into a common place and out of it. */
Link link_of(int ranks, int stride, int total, int node_ranks, const Network *network,
             const MemoryRates *memory) {
    Link link = {.ranks = ranks, .one_node = true, .memory = *memory};
    if (ranks == 1) return link;
    double far = most_far(ranks, stride, total, node_ranks), share = far / (ranks - 1);
    int sharing = node_ranks < total ? node_ranks : total;
    link.one_node = far == 0;
    link.latency = share * network->latency + (1 - share) * (NODE_LATENCY + memory->meet);
    link.seconds = share * network->seconds * sharing + (1 - share) * 2 * memory->copy[1];
    return link;
}

/* ---- collectives ---- */

static double log2_steps(int ranks) {
    int steps = 0;
    while ((1LL << steps) < ranks) steps++;
    return steps;
}

static double gather_messages(const Link *link, double block) {
    return block < RING_BYTES ? log2_steps(link->ranks) : link->ranks - 1;
}

static bool is_large(const Collective *collective) {
    return (double)collective->block > LARGE_BYTES;
}

/* A rank's part of the block. */
static double part_of(const Collective *collective, const Link *link) {
    return (double)collective->block / link->ranks;
}

/* Summing this rank's part of all partials. */
static double adding(const Collective *collective, const Link *link) {
    int leaves = collective->sends + collective->receives;
    return (leaves - 1) * part_of(collective, link) * link->memory.add[is_large(collective)];
}

static CollectiveCost window_cost(const Collective *collective, const Link *link) {
    double copy = link->memory.copy[is_large(collective)], block = (double)collective->block;
    double part = part_of(collective, link), meet = link->memory.meet;
    switch (collective->form) {
    case COLLECTIVE_SUM:
        return (CollectiveCost){WINDOW_SUM_BARRIERS * meet,
                                adding(collective, link) + block * copy};
    case COLLECTIVE_SUM_OWN:
        return (CollectiveCost){WINDOW_ROWS_BARRIERS * meet, adding(collective, link)};
    case COLLECTIVE_SCATTER: return (CollectiveCost){WINDOW_ROWS_BARRIERS * meet, part * copy};
    default: return (CollectiveCost){WINDOW_ROWS_BARRIERS * meet, 0};
    }
}

/* The faster of recursive doubling and of a reduce-scatter with an all-gather. */
static CollectiveCost reduce_cost(const Collective *collective, const Link *link) {
    double block = (double)collective->block, steps = log2_steps(link->ranks);
    double add = link->memory.add[is_large(collective)], others = (link->ranks - 1.0) / link->ranks;
    CollectiveCost doubling = {steps * link->latency, steps * block * (link->seconds + add)};
    CollectiveCost halving = {2 * steps * link->latency,
                              others * block * (2 * link->seconds + add)};
    bool short_one = doubling.latency + doubling.bytes <= halving.latency + halving.bytes;
    return short_one ? doubling : halving;
}

/* Messages of one exact sum's first half: a rank sends and receives at the same time. */
static double partial_messages(const Collective *collective, const Link *link) {
    double sends = collective->sends * (link->ranks - 1.0);
    return sends > collective->receives ? sends : collective->receives;
}

static CollectiveCost message_cost(const Collective *collective, const Link *link) {
    double block = (double)collective->block;
    double received = (double)collective->bytes / (double)collective->calls * link->seconds;
    double others = (link->ranks - 1.0) / link->ranks;
    double gather = gather_messages(link, block) * link->latency;
    double scatter = partial_messages(collective, link) * link->latency;
    switch (collective->form) {
    case COLLECTIVE_SUM:
        return (CollectiveCost){scatter + gather, received + adding(collective, link)};
    case COLLECTIVE_SUM_OWN: return (CollectiveCost){scatter, received + adding(collective, link)};
    case COLLECTIVE_SCATTER:
        return (CollectiveCost){log2_steps(link->ranks) * link->latency,
                                others * block *
                                    (link->seconds + link->memory.add[is_large(collective)])};
    case COLLECTIVE_GATHER: return (CollectiveCost){gather, received};
    default: return reduce_cost(collective, link);
    }
}

CollectiveCost collective_cost(const Collective *collective, const Link *link) {
    if (link->ranks == 1) return (CollectiveCost){0, 0};
    bool window = collective->window && link->one_node;
    CollectiveCost one = window ? window_cost(collective, link) : message_cost(collective, link);
    double calls = (double)collective->calls;
    return (CollectiveCost){calls * one.latency, calls * one.bytes};
}
