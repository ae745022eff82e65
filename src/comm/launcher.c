#include "comm/launcher.h"

#include <stddef.h>
#include <stdlib.h>

/* The first of these variables that is set; NULL when none is. The list ends with NULL. */
static const char *first_set(const char *const *names) {
    for (; *names; names++)
        if (getenv(*names)) return getenv(*names);
    return NULL;
}

static int number(const char *const *names, int otherwise) {
    const char *text = first_set(names);
    return text ? (int)strtol(text, NULL, 10) : otherwise;
}

bool launcher_present(void) {
    static const char *const names[] = {
        "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "PMIX_RANK", "PMI_RANK", "PMI_FD", NULL};
    return first_set(names) != NULL;
}

int launcher_rank(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID", NULL};
    return number(names, 0);
}

int launcher_local_ranks(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_LOCAL_SIZE",
                                        "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE", NULL};
    int ranks = number(names, 1);
    return ranks > 0 ? ranks : 1;
}
