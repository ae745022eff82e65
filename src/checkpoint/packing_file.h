/* An HDF5 file with the weights of feed-forward networks in some packing (packing.h):
 *
 *     packing_create(&file, &packing, directory, name, notes);
 *     packing_write(&file, layer, projection, bias, block, data) ...
 *     hdf5_finish(&file.file);  packing_close(&file);
 *
 *     packing_open(&file, &packing, path);       // all names, types and shapes are as declared
 *     packing_read(&file, layer, projection, bias, block, data) ...
 *     packing_close(&file);
 *
 * What is read or written is a block of one projection in its own [out, in] coordinates, wherever
 * its channels lie. Datasets are contiguous and of this build's real; there is nothing else in the
 * file. Blocks are the caller's; a transposed layout holds one more of the largest. No MPI. */
#ifndef WEFT_CHECKPOINT_PACKING_FILE_H
#define WEFT_CHECKPOINT_PACKING_FILE_H

#include "checkpoint/hdf5_file.h"
#include "checkpoint/packing.h"
#include "checkpoint/packing_notes.h"
#include "param/param.h"

typedef struct {
    Hdf5File file;
    Packing packing;
    real *aside; /* [room]: a block turned round, for transposed layouts; kept between calls */
    int64_t room;
} PackingFile;

/* A new file with datasets that have no values yet, and `notes`, an object of texts, as attributes
 * of its root (packing_notes.h). 0 or a negative code. */
int packing_create(PackingFile *file, const Packing *packing, const char *directory,
                   const char *name, const json_t *notes);

/* The file holds exactly what `packing` declares. 0, or WEFT_INPUT naming file and dataset: missing
 * or undeclared, of another shape or type, not in the file, or ranks whose biases of down differ.
 */
int packing_open(PackingFile *file, const Packing *packing, const char *path);
void packing_close(PackingFile *file); /* safe after a failure, and after hdf5_finish */

/* data: [block.rows, block.cols] contiguous, of a projection's weight [out, in] or of its bias [1,
 * out]. 0, WEFT_RUNTIME, or WEFT_INPUT naming file and dataset. */
int packing_read(PackingFile *file, int layer, PackingProjection projection, bool bias,
                 ParamPiece block, real *data);
int packing_write(PackingFile *file, int layer, PackingProjection projection, bool bias,
                  ParamPiece block, const real *data);

/* Shows a dataset as it lies, whole, in blocks of whole rows (a vector is one row): data [rows,
 * cols]. `block` has room for `room` elements, at least a row. For what checks a layout by other
 * means than packing_run; the dataset must exist. 0 or WEFT_INPUT. */
typedef void PackingVisit(void *context, Range rows, int64_t cols, const real *data);
int packing_scan(const PackingFile *file, int layer, int group, PackingSlot slot, bool bias,
                 real *block, int64_t room, PackingVisit *visit, void *context);

#endif
