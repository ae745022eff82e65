/* checkpoint.h5: one virtual dataset per tensor and role over the pieces in the shard files, so
 * that h5dump, h5py and HDFView show whole tensors: values as NAME, moments as moment1/NAME and
 * moment2/NAME. Source names are relative. HDF5 reads a missing or broken source as fill values
 * (NaN here) without an error: a convenience for people, never what weft loads. */
#ifndef WEFT_CHECKPOINT_VIEW_H
#define WEFT_CHECKPOINT_VIEW_H

#include "checkpoint/catalog.h"
#include "checkpoint/hdf5_file.h"

#define VIEW_FILE "checkpoint.h5"

/* Writes the file and sets catalog->view_digest. 0 or WEFT_RUNTIME. */
int view_write(Catalog *catalog, const char *directory);

/* Opens it once its bytes have the catalog's digest: HDF5 1.10.8 crashes on damaged lists of
 * sources. */
int view_open(Hdf5File *file, const Catalog *catalog, const char *directory);

/* The names in the view are the catalog's, none missing and none extra. 0 or WEFT_INPUT. */
int view_check_names(const Hdf5File *file, const Catalog *catalog);

/* One dataset of the view: its shape, type and sources are those of the catalog; *hash receives its
 * fingerprint part as it reads, through the sources. 0 or WEFT_INPUT naming the dataset. */
int view_check(const Hdf5File *file, const Catalog *catalog, int role, int tensor, Hash128 *hash);

/* The same without reading through it. */
int view_check_structure(const Hdf5File *file, const Catalog *catalog, int role, int tensor);

#endif
