/* The known row (known_row.h) through the FFNs of a packed file, as a system that has this layout
 * computes them: one product over each dataset as it lies, whose outputs it then takes apart in the
 * layout's order. Where a channel is to be found is told here by walking along, nothing by
 * packing_run: a mistake there shows. Serial, in bounded memory, no MPI. */
#ifndef WEFT_RUN_KNOWN_ROW_FILE_H
#define WEFT_RUN_KNOWN_ROW_FILE_H

#include "checkpoint/packing_file.h"
#include "run/known_row.h"

/* The way through the file, which must be open for as long as it's used. */
KnownRowPath known_row_file(PackingFile *file);

#endif
