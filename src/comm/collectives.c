/* The few collectives that aren't sums of reals: all exact. */
#include "base/clock.h"
#include "comm/mpi_grid.h"

#include <math.h>
#include <string.h>

void comm_tell(const Grid *grid, Group group, const char *what) {
    static const char *const whom[GROUP_COUNT] = {"all ranks", "all ranks of the grid",
                                                  "tensor ranks", "data ranks"};
    watch_enter(grid->watch, what, whom[group]);
}

double comm_enter(Grid *grid, Group group, const char *what) {
    comm_tell(grid, group, what);
    stopwatch_begin(grid->stopwatch, STEP_EXCHANGE);
    return clock_seconds();
}

void comm_leave(Grid *grid, int64_t bytes, double start) {
    watch_leave(grid->watch);
    stopwatch_end(grid->stopwatch);
    grid->counters.collectives++;
    grid->counters.bytes += bytes;
    grid->counters.seconds += clock_seconds() - start;
}

void comm_counters_reset(Grid *grid) { memset(&grid->counters, 0, sizeof grid->counters); }

static int chunk_of(int64_t left) { return (int)(left < COMM_CHUNK ? left : COMM_CHUNK); }

void comm_barrier(Grid *grid, Group group) {
    if (!group_meets(grid, group)) return;
    double start = comm_enter(grid, group, "barrier");
    MPI_Barrier(comm_of(grid, group));
    comm_leave(grid, 0, start);
}

void comm_broadcast(Grid *grid, Group group, void *bytes, size_t size, int root) {
    if (!group_meets(grid, group)) return;
    double start = comm_enter(grid, group, "broadcast");
    int64_t total = (int64_t)size;
    for (int64_t at = 0; at < total; at += COMM_CHUNK)
        MPI_Bcast((char *)bytes + at, chunk_of(total - at), MPI_BYTE, root, comm_of(grid, group));
    comm_leave(grid, group_rank(grid, group) == root ? 0 : total, start);
}

void comm_await(Grid *grid, Group group, int64_t *number) {
    static const double nap = 0.5e-3;
    if (!group_meets(grid, group)) return;
    MPI_Request request;
    int done = 0;
    comm_tell(grid, group, "waiting for the first rank's number");
    MPI_Ibcast(number, 1, MPI_INT64_T, 0, comm_of(grid, group), &request);
    while (MPI_Test(&request, &done, MPI_STATUS_IGNORE), !done) clock_sleep(nap);
    watch_leave(grid->watch);
}

/* Element by element over the ranks, in place; only for operations whose order doesn't matter. */
static void reduce(Grid *grid, Group group, const char *what, void *values, int64_t count,
                   MPI_Datatype type, MPI_Op operation) {
    if (!group_meets(grid, group)) return;
    double start = comm_enter(grid, group, what);
    int width;
    MPI_Type_size(type, &width);
    for (int64_t at = 0; at < count; at += COMM_CHUNK)
        MPI_Allreduce(MPI_IN_PLACE, (char *)values + at * width, chunk_of(count - at), type,
                      operation, comm_of(grid, group));
    comm_leave(grid, count * width, start);
}

void comm_assemble(Grid *grid, Group group, void *words, int64_t count) {
    reduce(grid, group, "gather of words", words, count, MPI_UINT64_T, MPI_BOR);
}

void comm_max_int64(Grid *grid, Group group, int64_t *values, int64_t count) {
    reduce(grid, group, "maximum", values, count, MPI_INT64_T, MPI_MAX);
}

void comm_sum_int64(Grid *grid, Group group, int64_t *values, int64_t count) {
    reduce(grid, group, "sum of counts", values, count, MPI_INT64_T, MPI_SUM);
}

/* MPI_MAX on floats depends on the order for NaN and for +0 against -0; on integers it doesn't.
 * Bits of positive floats ascend as integers; those of negative ones descend, hence the flip,
 * which is its own inverse. */
#ifdef WEFT_REAL64
typedef int64_t Key;
#define KEY_MAX INT64_MAX
#define KEY_MPI MPI_INT64_T
#else
typedef int32_t Key;
#define KEY_MAX INT32_MAX
#define KEY_MPI MPI_INT32_T
#endif

static Key flip(Key bits) { return bits < 0 ? bits ^ KEY_MAX : bits; }

static void flip_all(real *values, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        Key key;
        memcpy(&key, &values[i], sizeof key);
        key = flip(key);
        memcpy(&values[i], &key, sizeof key);
    }
}

void comm_max_real(Grid *grid, Group group, real *values, int64_t count) {
    if (!group_meets(grid, group)) return;
    for (int64_t i = 0; i < count; i++)
        if (isnan(values[i])) values[i] = (real)fabs(NAN); /* one NaN, above infinity */
    flip_all(values, count);
    reduce(grid, group, "maximum", values, count, KEY_MPI, MPI_MAX);
    flip_all(values, count);
}

/* Four 32-bit limbs in 64-bit words: no carry is lost for up to 2^32 ranks. */
enum { LIMBS = 4, HASHES_AT_ONCE = 256 };

static void spread(Hash128 hash, uint64_t limb[LIMBS]) {
    limb[0] = hash.low & UINT32_MAX;
    limb[1] = hash.low >> 32;
    limb[2] = hash.high & UINT32_MAX;
    limb[3] = hash.high >> 32;
}

static Hash128 gather(uint64_t limb[LIMBS]) {
    for (int i = 0; i < LIMBS - 1; i++) {
        limb[i + 1] += limb[i] >> 32;
        limb[i] &= UINT32_MAX;
    }
    return (Hash128){.low = limb[1] << 32 | limb[0], .high = limb[3] << 32 | limb[2]};
}

void comm_sum_hashes(Grid *grid, Group group, Hash128 *hashes, int64_t count) {
    uint64_t limb[HASHES_AT_ONCE][LIMBS];
    for (int64_t at = 0; at < count; at += HASHES_AT_ONCE) {
        int64_t n = count - at < HASHES_AT_ONCE ? count - at : HASHES_AT_ONCE;
        for (int64_t i = 0; i < n; i++) spread(hashes[at + i], limb[i]);
        reduce(grid, group, "sum of hashes", limb, n * LIMBS, MPI_UINT64_T, MPI_SUM);
        for (int64_t i = 0; i < n; i++) hashes[at + i] = gather(limb[i]);
    }
}

void comm_sum_hash(Grid *grid, Group group, Hash128 *hash) {
    comm_sum_hashes(grid, group, hash, 1);
}

void comm_gather_all(Grid *grid, Group group, const void *mine, size_t size, void *all) {
    int ranks = group_size(grid, group);
    if (!group_meets(grid, group)) {
        memcpy(all, mine, size);
        return;
    }
    double start = comm_enter(grid, group, "all-gather");
    MPI_Allgather(mine, (int)size, MPI_BYTE, all, (int)size, MPI_BYTE, comm_of(grid, group));
    comm_leave(grid, (int64_t)size * (ranks - 1), start);
}

enum { MOVES_AT_ONCE = 64 };

typedef struct {
    MPI_Comm comm;
    MPI_Request request[MOVES_AT_ONCE];
    int count;
} Moves;

static void moves_finish(Moves *moves) {
    if (moves->count == 0) return;
    MPI_Waitall(moves->count, moves->request, MPI_STATUSES_IGNORE);
    moves->count = 0;
}

/* One tag will do: messages between two ranks don't overtake, and both have the list in the same
 * order. For the same reason nobody waits in a circle: of all unfinished messages the first in
 * the list has been started at both ends. */
static void move_piece(Moves *moves, const Piece *piece, bool sends) {
    int64_t total = (int64_t)piece->size;
    for (int64_t at = 0; at < total; at += COMM_CHUNK) {
        if (moves->count == MOVES_AT_ONCE) moves_finish(moves);
        MPI_Request *request = &moves->request[moves->count++];
        int size = chunk_of(total - at);
        if (sends)
            MPI_Isend((const char *)piece->from + at, size, MPI_BYTE, piece->target, 0, moves->comm,
                      request);
        else
            MPI_Irecv((char *)piece->to + at, size, MPI_BYTE, piece->source, 0, moves->comm,
                      request);
    }
}

void comm_move(Grid *grid, Group group, const Piece *pieces, int64_t count) {
    int rank = group_rank(grid, group);
    bool meets = group_meets(grid, group);
    double start = meets ? comm_enter(grid, group, "exchange of pieces") : 0;
    int64_t received = 0;
    Moves moves = {.comm = meets ? comm_of(grid, group) : MPI_COMM_NULL};
    for (const Piece *piece = pieces; piece < pieces + count; piece++) {
        bool sends = piece->source == rank, receives = piece->target == rank;
        if (sends && receives) {
            if (piece->size) memmove(piece->to, piece->from, piece->size);
        } else if (meets && (sends || receives)) {
            move_piece(&moves, piece, sends);
            if (receives) received += (int64_t)piece->size;
        }
    }
    moves_finish(&moves);
    if (meets) comm_leave(grid, received, start);
}
