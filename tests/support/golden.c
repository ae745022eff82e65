#include "support/golden.h"

#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>

static hid_t open_file(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "tests/golden/%s", name);
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0)
        fprintf(stderr, "%s cannot be opened: run tests from the repository's root\n", path);
    return file;
}

static int read_dataset(hid_t dataset, GoldenArray *array) {
    hsize_t dim[GOLDEN_MAX_RANK] = {0};
    hid_t space = H5Dget_space(dataset);
    array->rank = H5Sget_simple_extent_ndims(space);
    if (array->rank >= 0 && array->rank <= GOLDEN_MAX_RANK) {
        H5Sget_simple_extent_dims(space, dim, NULL);
        array->count = H5Sget_simple_extent_npoints(space);
        array->data = calloc((size_t)array->count + 1, sizeof *array->data);
    }
    H5Sclose(space);
    for (int i = 0; i < GOLDEN_MAX_RANK; i++) array->dim[i] = (int64_t)dim[i];
    if (!array->data) return -1;
    return H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, array->data) < 0 ? -1
                                                                                               : 0;
}

int golden_read(const char *file, const char *dataset, GoldenArray *array) {
    *array = (GoldenArray){0};
    hid_t id = open_file(file);
    if (id < 0) return -1;
    hid_t data = H5Dopen(id, dataset, H5P_DEFAULT);
    int status = data < 0 ? -1 : read_dataset(data, array);
    if (status) fprintf(stderr, "%s: dataset %s cannot be read\n", file, dataset);
    if (data >= 0) H5Dclose(data);
    H5Fclose(id);
    if (status) golden_release(array);
    return status;
}

void golden_release(GoldenArray *array) {
    free(array->data);
    *array = (GoldenArray){0};
}

int golden_attribute(const char *file, const char *name, double *value) {
    hid_t id = open_file(file);
    if (id < 0) return -1;
    hid_t attribute = H5Aopen(id, name, H5P_DEFAULT);
    int status = attribute < 0 || H5Aread(attribute, H5T_NATIVE_DOUBLE, value) < 0 ? -1 : 0;
    if (status) fprintf(stderr, "%s: attribute %s cannot be read as a number\n", file, name);
    if (attribute >= 0) H5Aclose(attribute);
    H5Fclose(id);
    return status;
}

int64_t golden_count(const char *file, const char *group) {
    H5G_info_t info = {0};
    hid_t id = open_file(file);
    if (id < 0) return -1;
    herr_t status = H5Gget_info_by_name(id, group, &info, H5P_DEFAULT);
    if (status < 0) fprintf(stderr, "%s: there is no group %s\n", file, group);
    H5Fclose(id);
    return status < 0 ? -1 : (int64_t)info.nlinks;
}
