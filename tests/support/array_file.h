/* HDF5 files of arrays for tests. */
#ifndef WEFT_TESTS_ARRAY_FILE_H
#define WEFT_TESTS_ARRAY_FILE_H

#include <hdf5.h>
#include <stdint.h>

typedef enum {
    LAYOUT_CONTIGUOUS,
    LAYOUT_COMPACT,
    LAYOUT_CHUNKED,
    LAYOUT_PACKED,
    LAYOUT_COUNT
} ArrayLayout;

typedef struct {
    int descriptor; /* of the same file, to damage it */
    char path[64];
    hid_t id; /* open until array_file_end */
} ArrayFile;

/* user_block: bytes before the HDF5 file begins, 0 or a power of two from 512 on. */
ArrayFile array_file_begin(hsize_t user_block);
void array_file_end(ArrayFile *file);
void array_file_close(ArrayFile *file); /* after the end: it is removed */

/* A dataset of `rank` dims of a type of the file; values in the order of its elements.
 * LAYOUT_PACKED is chunked, shuffled, deflated and with checksums. */
void array_file_add(const ArrayFile *file, const char *name, hid_t type, int rank,
                    const hsize_t *dims, ArrayLayout layout, const double *values);

/* IEEE 754 half precision, little-endian, as h5py writes it. */
hid_t array_file_half(void);

#endif
