/* HDF5 files as checkpoints need them: the same calls make the same bytes (no object times, format
 * bounds pinned to V110), closing leaves nothing open, what is written is on disk when hdf5_finish
 * returns, and every failing call gives a message with file, dataset and HDF5's own innermost
 * reason instead of HDF5's printed stack.
 *
 *     hdf5_create(&file, path); ... hdf5_finish(&file);     hdf5_open(&file, path); ...
 * hdf5_close(&file);
 *
 * hdf5_close is safe after a failure and after hdf5_finish. */
#ifndef WEFT_CHECKPOINT_HDF5_FILE_H
#define WEFT_CHECKPOINT_HDF5_FILE_H

#include "base/files.h"
#include "base/real.h"

#include <hdf5.h>
#include <stdbool.h>

typedef struct {
    hid_t id;
    char path[FILES_PATH];
    int code; /* of errors: WEFT_RUNTIME when writing, WEFT_INPUT when reading */
} Hdf5File;

/* `links`: roughly how many objects the root will hold. */
int hdf5_create(Hdf5File *file, const char *directory, const char *name, int links);
int hdf5_open(Hdf5File *file, const char *directory, const char *name);
int hdf5_finish(Hdf5File *file); /* flush, fsync, close */
void hdf5_close(Hdf5File *file);

/* Sets "PATH: dataset NAME: WHAT (HDF5's reason)" right after the failing HDF5 call; returns the
 * file's code. dataset may be NULL. */
int hdf5_error(const Hdf5File *file, const char *dataset, const char *what);

/* A creation property list without object times, e.g. for H5P_DATASET_CREATE. -1 on failure. */
hid_t hdf5_creation_list(hid_t kind);

int hdf5_make_group(const Hdf5File *file, const char *name, int links);

/* Exactly `count` names, given in any order, are linked in a group ("/" for the root)? WEFT_INPUT
 * names the first that is extra or missing. */
int hdf5_check_names(const Hdf5File *file, const char *group, const char *const *names, int count);

/* Closes any kind of id; negative ones are ignored. */
void hdf5_drop(hid_t id);

hid_t hdf5_file_type(void);   /* little-endian IEEE, of real */
hid_t hdf5_memory_type(void); /* native, of real */

/* Type and dimensions of a dataset are exactly these? `rank` numbers in dims. */
int hdf5_check_shape(const Hdf5File *file, hid_t dataset, const char *name, int rank,
                     const int64_t *dims);

/* Its `bytes` lie in this very file, in one run: an alien storage could read from other files, and
 * a hostile size from nowhere. 0 or WEFT_INPUT. */
int hdf5_check_storage(const Hdf5File *file, hid_t dataset, const char *name, hsize_t bytes);

/* A contiguous dataset of real without values; `rank` numbers in dims. Negative on failure, as HDF5
 * leaves it (hdf5_error). */
hid_t hdf5_create_dataset(const Hdf5File *file, const char *name, int rank, const int64_t *dims);

#endif
