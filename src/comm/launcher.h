/* What the launcher (Open MPI's mpirun, srun by PMIx or PMI, flux) tells a process in its
 * environment, before MPI is started. */
#ifndef WEFT_COMM_LAUNCHER_H
#define WEFT_COMM_LAUNCHER_H

#include <stdbool.h>

bool launcher_present(void);    /* one that MPI can be started under */
int launcher_rank(void);        /* in the job; 0 when nobody says */
int launcher_local_ranks(void); /* of the job on this node; 1 when nobody says */

#endif
