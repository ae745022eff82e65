#include "run/ping.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdlib.h>

enum { SMALL = 8, LARGE = 4 << 20, SMALL_TIMES = 2001, LARGE_TIMES = 41 };

typedef struct {
    Grid *grid;
    char *out, *in; /* [LARGE] */
    double seconds[SMALL_TIMES];
} Ping;

/* There and back, or both ways at once. */
static double once(Ping *ping, size_t size, bool at_once) {
    int last = ping->grid->world_size - 1;
    const Piece piece[] = {{0, last, ping->out, ping->in, size},
                           {last, 0, ping->out, ping->in, size}};
    double start = clock_seconds();
    comm_move(ping->grid, GROUP_WORLD, piece, at_once ? 2 : 1);
    if (!at_once) comm_move(ping->grid, GROUP_WORLD, piece + 1, 1);
    return clock_seconds() - start;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The middle one of so many, after some to warm up. */
static double middle(Ping *ping, size_t size, bool at_once, int times) {
    comm_barrier(ping->grid, GROUP_WORLD);
    for (int i = -times / 4; i < times; i++) {
        double seconds = once(ping, size, at_once);
        if (i >= 0) ping->seconds[i] = seconds;
    }
    qsort(ping->seconds, (size_t)times, sizeof *ping->seconds, compare);
    return ping->seconds[times / 2];
}

static void measure(Ping *ping) {
    double latency = middle(ping, SMALL, false, SMALL_TIMES) / 2;
    double large = middle(ping, LARGE, true, LARGE_TIMES);
    double bandwidth = large > latency ? LARGE / (large - latency) : LARGE / large;
    log_print("latency         %.2f us, of a message of %d bytes\n", 1e6 * latency, SMALL);
    log_print("bandwidth       %.3f GB/s each way, both ways at once, in messages of %d MB\n",
              1e-9 * bandwidth, LARGE >> 20);
    if (ping->grid->node_last == ping->grid->world_size - 1)
        log_print("note: both ranks are on one node, so this is its memory (or loopback), not a "
                  "network;\nmpirun -n 2 --host A:1,B:1 weft ping measures one\n");
    log_print("--net %.2fus,%.3fGB/s\n", 1e6 * latency, 1e-9 * bandwidth);
}

int ping_run(Grid *grid) {
    Ping *ping = calloc(1, sizeof *ping);
    int status = ping ? 0 : error_set(WEFT_RUNTIME, "out of memory: times of messages");
    if (grid->world_size < 2)
        status = error_set(WEFT_USAGE, "ping: two ranks are needed, on two nodes: mpirun -n 2 "
                                       "--map-by node weft ping");
    if (!status) {
        *ping = (Ping){.grid = grid,
                       .out = memory_allocate(LARGE, "a message"),
                       .in = memory_allocate(LARGE, "a message")};
        status = ping->out && ping->in ? 0 : WEFT_RUNTIME;
    }
    status = comm_agree(grid, GROUP_WORLD, status);
    if (!status) measure(ping);
    if (ping) {
        free(ping->out);
        free(ping->in);
    }
    free(ping);
    return status;
}
