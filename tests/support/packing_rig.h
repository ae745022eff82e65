/* For tests of packed files: a scratch directory, conversions that print nothing, and files as
 * another system would have made them. */
#ifndef WEFT_TESTS_PACKING_RIG_H
#define WEFT_TESTS_PACKING_RIG_H

#include "run/convert.h"

#include <hdf5.h>

void rig_begin(void);
void rig_end(void);
const char *rig_path(const char *name); /* in the scratch directory; for a few calls */

/* A checkpoint of model_checkpoint's small model under these settings, NULL at their end. */
void rig_checkpoint(const char *run, const char *const *settings);

/* convert_weights with names in the scratch directory for source, out and against; silently. */
int rig_convert(const ConvertRequest *request);

/* The same, which must succeed: `to` in a layout of so many parts, by its own names. */
void rig_convert_to(const char *from, const char *to, const char *layout, int parts);

/* 0 or WEFT_CHECK: the known row through two of weft's checkpoints or files. */
int rig_compare(const char *a, const char *b);

/* Takes away what weft writes about a file: it is anybody's then. */
void rig_make_foreign(const char *name);

/* The file, opened to be changed; H5Fclose. */
hid_t rig_edit(const char *name);

/* A dataset's values and shape; free(). `dims` may be NULL. And a dataset in its place, of real. */
real *rig_take(hid_t file, const char *dataset, hsize_t dims[2]);
void rig_put(hid_t file, const char *dataset, int rank, const hsize_t *dims, const real *data);

#endif
