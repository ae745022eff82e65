#include "support/array_file.h"

#include "support/support.h"

#include <stdlib.h>
#include <unistd.h>

ArrayFile array_file_begin(hsize_t user_block) {
    ArrayFile file = {.path = "/tmp/weft-test-XXXXXX"};
    file.descriptor = mkstemp(file.path);
    ck_assert_int_ge(file.descriptor, 0);
    hid_t list = H5Pcreate(H5P_FILE_CREATE);
    ck_assert_int_ge(H5Pset_userblock(list, user_block), 0);
    file.id = H5Fcreate(file.path, H5F_ACC_TRUNC, list, H5P_DEFAULT);
    ck_assert_int_ge(file.id, 0);
    H5Pclose(list);
    return file;
}

void array_file_end(ArrayFile *file) { ck_assert_int_ge(H5Fclose(file->id), 0); }

void array_file_close(ArrayFile *file) {
    unlink(file->path);
    close(file->descriptor);
}

static hid_t layout_list(ArrayLayout layout, int rank, const hsize_t *dims) {
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t chunk[H5S_MAX_RANK];
    for (int i = 0; i < rank; i++) chunk[i] = dims[i] > 3 ? 3 : dims[i];
    if (layout == LAYOUT_COMPACT) H5Pset_layout(list, H5D_COMPACT);
    if (layout >= LAYOUT_CHUNKED) ck_assert_int_ge(H5Pset_chunk(list, rank, chunk), 0);
    if (layout == LAYOUT_PACKED)
        ck_assert(H5Pset_shuffle(list) >= 0 && H5Pset_deflate(list, 4) >= 0 &&
                  H5Pset_fletcher32(list) >= 0);
    return list;
}

void array_file_add(const ArrayFile *file, const char *name, hid_t type, int rank,
                    const hsize_t *dims, ArrayLayout layout, const double *values) {
    hid_t space = H5Screate_simple(rank, dims, NULL), list = layout_list(layout, rank, dims);
    hid_t dataset = H5Dcreate2(file->id, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    ck_assert_int_ge(dataset, 0);
    if (values)
        ck_assert_int_ge(
            H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), 0);
    H5Dclose(dataset);
    H5Pclose(list);
    H5Sclose(space);
}

/* Sign, 5 bits of exponent, 10 of mantissa (IEEE 754-2008, binary16). */
hid_t array_file_half(void) {
    hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    ck_assert(H5Tset_fields(type, 15, 10, 5, 0, 10) >= 0 && H5Tset_size(type, 2) >= 0 &&
              H5Tset_ebias(type, 15) >= 0);
    return type;
}
