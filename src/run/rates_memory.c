#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "comm/exchange.h"
#include "run/rates_quiet.h"
#include "run/team.h"

#include <stdlib.h>
#include <string.h>

/* Elements of the blocks; how often each is gone through; barriers that are timed together. */
static const int64_t block[2] = {1 << 18, 1 << 23};
static const int passes[2] = {51, 21};
enum { MOST_PASSES = 51, MOST_MEETS = 2000, BARRIERS = 20 };
/* Barriers take a turn of the scheduler each time that another program has one of the cores, and
 * microseconds between: many short passes, but none after so many seconds. */
static const double BARRIERS_SECONDS = 0.5;

/* One of the ranks, with two blocks: its own sum, and what the next one reads. */
typedef struct {
    real *memory;
    double add[2][MOST_PASSES], copy[2][MOST_PASSES], meet[MOST_MEETS];
} Guest;

typedef struct {
    Team team;
    int count, threads;
    int meets; /* passes of barriers: the first says when it is enough */
    Guest *guest;
} Room;

static void copy(real *to, const real *from, int64_t n, int threads) {
    enum { AT_A_TIME = 1 << 14 };
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t at = 0; at < n; at += AT_A_TIME)
        memcpy(to + at, from + at,
               sizeof(real) * (size_t)(n - at < AT_A_TIME ? n - at : AT_A_TIME));
}

/* What one rank has just written is read by its neighbour. */
static void visit(Room *room, int member, int size, int pass) {
    Guest *guest = &room->guest[member];
    int64_t n = block[size];
    double bytes = (double)n * sizeof(real);
    real *own = guest->memory;
    const real *other = room->guest[(member + 1) % room->count].memory + n;
    team_meet(&room->team);
    double start = clock_seconds();
    tree_add(own, other, n, room->threads);
    guest->add[size][pass] = (clock_seconds() - start) / bytes;
    team_meet(&room->team);
    start = clock_seconds();
    copy(own, other, n, room->threads);
    guest->copy[size][pass] = (clock_seconds() - start) / bytes;
    team_meet(&room->team);
    copy(own + n, own, n, room->threads);
}

/* The barrier before each pass lets all see what the first has said. */
static void time_barriers(Room *room, int member) {
    double begin = clock_seconds();
    for (int pass = 0; team_meet_awake(&room->team), pass < room->meets; pass++) {
        double start = clock_seconds();
        for (int i = 0; i < BARRIERS; i++) team_meet_awake(&room->team);
        double end = clock_seconds();
        room->guest[member].meet[pass] = (end - start) / BARRIERS;
        if (member == 0 && end - begin > BARRIERS_SECONDS) room->meets = pass + 1;
    }
}

static int run_guest(int member, void *context) {
    Room *room = context;
    for (int size = 0; size < 2; size++)
        for (int pass = 0; pass < passes[size]; pass++) visit(room, member, size, pass);
    time_barriers(room, member);
    return 0;
}

int rates_memory(RatesNode node, MemoryRates *rates) {
    Room room = {.count = node.at_once,
                 .threads = node.threads,
                 .meets = MOST_MEETS,
                 .guest = calloc((size_t)node.at_once, sizeof *room.guest)};
    int status = room.guest ? 0 : error_set(WEFT_RUNTIME, "out of memory: ranks to measure");
    for (int i = 0; i < node.at_once && !status; i++) {
        room.guest[i].memory = memory_allocate(2 * sizeof(real) * (size_t)block[1], "blocks");
        status = room.guest[i].memory ? 0 : WEFT_RUNTIME;
    }
    if (!status) status = team_run(&room.team, room.count, run_guest, &room);
    for (int size = 0; size < 2 && !status; size++) {
        rates->add[size] = rates_tenth(room.guest[0].add[size], passes[size]);
        rates->copy[size] = rates_tenth(room.guest[0].copy[size], passes[size]);
    }
    if (!status) rates->meet = rates_tenth(room.guest[0].meet, room.meets);
    for (int i = 0; i < node.at_once && room.guest; i++) free(room.guest[i].memory);
    free(room.guest);
    return status;
}
