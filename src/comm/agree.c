/* Agreement: an error that one rank has seen becomes everybody's, and texts are compared. */
#include "base/error.h"
#include "comm/mpi_grid.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAILURE_TEXT = 2000, QUOTE = 400 };

typedef struct {
    int code;
    char text[FAILURE_TEXT];
} Failure;

/* The rank is named when it matters who it was, and once only: a smaller group may have agreed. */
static Failure describe_failure(const Grid *grid, int status, bool all_failed) {
    Failure failure = {.code = status};
    const char *message = error_message();
    bool named = error_is_agreed() && strncmp(message, "rank ", 5) == 0;
    if (all_failed || named)
        snprintf(failure.text, sizeof failure.text, "%s", message);
    else
        snprintf(failure.text, sizeof failure.text, "rank %d: %s", grid->world_rank, message);
    return failure;
}

int comm_agree(Grid *grid, Group group, int status) {
    int rank = group_rank(grid, group), size = group_size(grid, group);
    if (!group_meets(grid, group)) {
        if (status) error_set_agreed(true);
        return status;
    }
    double start = comm_enter(grid, group, "agreement on errors");
    MPI_Comm comm = comm_of(grid, group);
    struct {
        int first, all;
    } failed = {status ? rank : size, status != 0};
    MPI_Allreduce(MPI_IN_PLACE, &failed, 2, MPI_INT, MPI_MIN, comm);
    comm_leave(grid, sizeof failed, start);
    if (failed.first == size) return 0;

    Failure failure;
    if (rank == failed.first) failure = describe_failure(grid, status, failed.all);
    comm_broadcast(grid, group, &failure, sizeof failure, failed.first);
    error_set(failure.code, "%s", failure.text);
    error_set_agreed(true);
    return failure.code;
}

/* A line of a text, for a message. */
typedef struct {
    const char *text;
    int length;
} Line;

static Line line_at(const char *text) {
    size_t length = strcspn(text, "\n");
    return (Line){text, length < QUOTE ? (int)length : QUOTE};
}

/* Texts of many lines are shown from the line in which they part. */
static int compare_texts(const char *what, const char *mine, const char *first) {
    if (strcmp(mine, first) == 0) return 0;
    size_t start = 0;
    for (size_t i = 0; mine[i] && mine[i] == first[i]; i++)
        if (mine[i] == '\n') start = i + 1;
    Line here = line_at(mine + start), there = line_at(first + start);
    return error_set(WEFT_RUNTIME,
                     "%s differs: \"%.*s\" here, \"%.*s\" on the first rank; all ranks must have "
                     "the same",
                     what, here.length, here.text, there.length, there.text);
}

int comm_same_text(Grid *grid, Group group, const char *what, const char *text) {
    if (!group_meets(grid, group)) return 0;
    uint64_t size = strlen(text) + 1;
    comm_broadcast(grid, group, &size, sizeof size, 0);
    char *first = malloc(size);
    int status = first ? 0 : error_set(WEFT_RUNTIME, "out of memory comparing %s", what);
    status = comm_agree(grid, group, status);
    if (status) goto done;
    if (group_rank(grid, group) == 0) memcpy(first, text, size);
    comm_broadcast(grid, group, first, size, 0);
    status = comm_agree(grid, group, compare_texts(what, text, first));
done:
    free(first);
    return status;
}
