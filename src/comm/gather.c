#include "comm/gather.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "comm/exchange_internal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct Gather {
    Grid *grid;
    Group group;
    AxisLayout rows;
    int rank, threads;
    size_t bytes;
    Tensor whole;
    real *memory; /* private; NULL when there is a window */
    Window window;
};

/* Rows travel as whole words, whatever is in them. */
#ifdef WEFT_REAL64
#define MPI_REAL_BITS MPI_UINT64_T
#else
#define MPI_REAL_BITS MPI_UINT32_T
#endif

static bool by_window(const Gather *gather) { return gather->window.window != MPI_WIN_NULL; }

static int64_t own_elements(const AxisLayout *rows, int64_t cols, int rank) {
    return range_size(axis_owned_units(rows, rank)) * cols;
}

static size_t window_bytes(const GatherSpec *spec, int rank) {
    return (rank == 0 ? window_overhead() : 0) +
           (size_t)own_elements(spec->rows, spec->cols, rank) * sizeof(real);
}

static size_t whole_bytes(const GatherSpec *spec) {
    return (size_t)(spec->rows->units * spec->cols) * sizeof(real);
}

static bool wants_window(const GatherSpec *spec) {
    return spec->rows->ranks > 1 && spec->reduction == REDUCTION_EXACT &&
           spec->transport != TRANSPORT_MESSAGES;
}

static int check_spec(const Grid *grid, const GatherSpec *spec) {
    int ranks = group_size(grid, spec->group);
    if (spec->rows->ranks != ranks || spec->rows->units < 1 || spec->cols < 1)
        return error_set(WEFT_USAGE,
                         "rows to gather: [%lld, %lld] on %d ranks, the group has %d; none may be "
                         "0",
                         (long long)spec->rows->units, (long long)spec->cols, spec->rows->ranks,
                         ranks);
    if (spec->rows->units * spec->cols > INT_MAX)
        return error_set(WEFT_USAGE, "rows to gather: %lld elements; at most %d are possible",
                         (long long)(spec->rows->units * spec->cols), INT_MAX);
    return 0;
}

/* *window: whether there will be one, the same on all ranks. Collective over the grid. */
static int choose(Grid *grid, const GatherSpec *spec, bool *window) {
    *window = false;
    if (!wants_window(spec) || grid->alone) return 0;
    size_t bytes = window_bytes(spec, group_rank(grid, spec->group));
    return window_choose(grid, spec->group, bytes, spec->transport == TRANSPORT_WINDOW, "rows",
                         window);
}

static int open_on_group(Gather *gather, Grid *grid, const GatherSpec *spec) {
    bool window;
    gather->grid = grid;
    gather->group = spec->group;
    gather->rows = *spec->rows;
    gather->rank = group_rank(grid, spec->group);
    gather->threads = spec->threads > 1 ? spec->threads : 1;
    int status = comm_agree(grid, GROUP_GRID, choose(grid, spec, &window));
    if (status) return status;
    if (!window) {
        gather->bytes = whole_bytes(spec);
        gather->memory = memory_allocate(gather->bytes, "rows of all ranks");
        status = comm_agree(grid, GROUP_GRID, gather->memory ? 0 : WEFT_RUNTIME);
        gather->whole = tensor_view(gather->memory, spec->rows->units, spec->cols);
        return status;
    }
    gather->bytes = window_bytes(spec, gather->rank);
    window_open(&gather->window, grid, spec->group, gather->bytes, true, gather->threads);
    gather->whole = tensor_view(window_memory(&gather->window, 0), spec->rows->units, spec->cols);
    return 0;
}

int gather_open(Gather **out, Grid *grid, const GatherSpec *spec) {
    *out = NULL;
    Gather *gather = calloc(1, sizeof *gather);
    int status =
        gather ? check_spec(grid, spec) : error_set(WEFT_RUNTIME, "out of memory for a gather");
    status = comm_agree(grid, GROUP_GRID, status);
    if (gather) gather->window.window = MPI_WIN_NULL;
    if (!status) status = open_on_group(gather, grid, spec);
    if (!status)
        *out = gather;
    else
        gather_close(gather);
    return status;
}

void gather_close(Gather *gather) {
    if (!gather) return;
    if (gather->grid) comm_tell(gather->grid, gather->group, "closing of a window");
    window_close(&gather->window);
    if (gather->grid) watch_leave(gather->grid->watch);
    free(gather->memory);
    free(gather);
}

Tensor gather_whole(const Gather *gather) { return gather->whole; }

void gather_begin(Gather *gather) {
    if (!gather || !by_window(gather)) return;
    comm_tell(gather->grid, gather->group, "gather of rows");
    double start = clock_seconds();
    window_meet(&gather->window);
    gather->grid->counters.seconds += clock_seconds() - start;
    watch_leave(gather->grid->watch);
}

/* Elements of each rank's rows, and where they begin. */
static void list_parts(const Gather *gather, int count[SHARD_MAX], int place[SHARD_MAX]) {
    int64_t cols = gather->whole.cols;
    for (int rank = 0; rank < gather->rows.ranks; rank++) {
        count[rank] = (int)own_elements(&gather->rows, cols, rank);
        place[rank] = (int)(axis_owned_units(&gather->rows, rank).begin * cols);
    }
}

static int64_t received(const AxisLayout *rows, int64_t cols, int rank) {
    if (rows->ranks == 1) return 0;
    return (rows->units * cols - own_elements(rows, cols, rank)) * (int64_t)sizeof(real);
}

static int64_t scatter_received(const AxisLayout *rows, int64_t cols, int rank) {
    return rows->ranks == 1 ? 0 : own_elements(rows, cols, rank) * (int64_t)sizeof(real);
}

/* For tests: the last rank's rows never come. */
static void lose_rows(const Gather *gather) {
    Range own = axis_owned_units(&gather->rows, gather->rank);
    if (gather->rank < gather->rows.ranks - 1 || !fault_on("rows-not-gathered")) return;
    for (int64_t t = own.begin; t < own.end; t++)
        memset(tensor_row(gather->whole, t), 0, (size_t)gather->whole.cols * sizeof(real));
}

void gather_rows(Gather *gather) {
    if (!gather || !group_meets(gather->grid, gather->group)) return;
    lose_rows(gather);
    int count[SHARD_MAX] = {0}, place[SHARD_MAX] = {0};
    double start = comm_enter(gather->grid, gather->group, "gather of rows");
    if (by_window(gather)) {
        window_meet(&gather->window);
    } else {
        list_parts(gather, count, place);
        MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, gather->whole.data, count, place,
                       MPI_REAL_BITS, comm_of(gather->grid, gather->group));
    }
    comm_leave(gather->grid, received(&gather->rows, gather->whole.cols, gather->rank), start);
}

/* By messages what others write is zero here, and all meet in a bitwise or. */
void gather_begin_scatter(Gather *gather) {
    gather_begin(gather);
    if (!by_window(gather) && gather->rows.ranks > 1) memset(gather->memory, 0, gather->bytes);
}

void gather_scatter(Gather *gather, Tensor own) {
    int count[SHARD_MAX] = {0}, place[SHARD_MAX] = {0};
    list_parts(gather, count, place);
    const real *rows = gather->whole.data + place[gather->rank];
    if (!group_meets(gather->grid, gather->group)) {
        tree_copy(own.data, rows, count[gather->rank], gather->threads);
        return;
    }
    double start = comm_enter(gather->grid, gather->group, "scatter of rows");
    if (by_window(gather)) {
        window_meet(&gather->window);
        tree_copy(own.data, rows, count[gather->rank], gather->threads);
    } else {
        MPI_Reduce_scatter(gather->whole.data, own.data, count, MPI_REAL_BITS, MPI_BOR,
                           comm_of(gather->grid, gather->group));
    }
    comm_leave(gather->grid, scatter_received(&gather->rows, gather->whole.cols, gather->rank),
               start);
}

const char *gather_transport(const Gather *gather) {
    if (gather->rows.ranks == 1) return "none";
    return by_window(gather) ? "window" : "messages";
}

size_t gather_bytes(const Gather *gather) { return gather->bytes; }

size_t gather_bytes_predicted(const GatherSpec *spec, int rank) {
    return wants_window(spec) ? window_bytes(spec, rank) : whole_bytes(spec);
}

int64_t gather_received_predicted(const GatherSpec *spec, int rank) {
    return received(spec->rows, spec->cols, rank);
}

int64_t gather_scatter_received_predicted(const GatherSpec *spec, int rank) {
    return scatter_received(spec->rows, spec->cols, rank);
}
