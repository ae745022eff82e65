/* What a packed file says of itself in attributes of its root; packing_file.h hands it on. */
#ifndef WEFT_CHECKPOINT_PACKING_NOTES_H
#define WEFT_CHECKPOINT_PACKING_NOTES_H

#include "checkpoint/hdf5_file.h"

#include <jansson.h>

/* `notes`: an object of texts. 0 or WEFT_RUNTIME. */
int packing_write_notes(const Hdf5File *file, const json_t *notes);

/* The texts among the root's attributes, a new object. 0, or WEFT_INPUT when it is no HDF5 file. */
int packing_read_notes(const char *path, json_t **notes);

#endif
