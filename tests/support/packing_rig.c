#include "support/packing_rig.h"

#include "base/error.h"
#include "support/checkpoint_pattern.h"
#include "support/model_checkpoint.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char scratch[SCRATCH_PATH];

void rig_begin(void) { scratch_make(scratch); }

void rig_end(void) { ck_assert_int_eq(files_remove_tree(scratch), 0); }

const char *rig_path(const char *name) {
    enum { CALLS = 8 };
    static char path[CALLS][FILES_PATH];
    static int call;
    call = (call + 1) % CALLS;
    snprintf(path[call], FILES_PATH, "%s/%s", scratch, name);
    return path[call];
}

void rig_checkpoint(const char *run, const char *const *settings) {
    ModelCheckpoint made;
    model_checkpoint_open(&made, settings);
    model_checkpoint_save(&made, rig_path(run));
    model_checkpoint_close(&made);
}

int rig_convert(const ConvertRequest *request) {
    ConvertRequest real_names = *request;
    real_names.source.path = rig_path(request->source.path);
    real_names.out = rig_path(request->out);
    if (request->against) real_names.against = rig_path(request->against);
    Capture printed[2];
    for (int i = 0; i < 2; i++) capture_begin(&printed[i], i + 1);
    int status = convert_weights(&real_names);
    for (int i = 1; i >= 0; i--) free(capture_end(&printed[i]));
    return status;
}

void rig_convert_to(const char *from, const char *to, const char *layout, int parts) {
    ConvertRequest request = {.source.path = from, .out = to, .layout = layout};
    if (!strcmp(layout, "packed_shard")) request.shards = parts;
    if (!strcmp(layout, "packed_ranks")) request.ranks = parts;
    int status = rig_convert(&request);
    ck_assert_msg(status == 0, "%s to %s: %s", from, layout, error_message());
}

int rig_compare(const char *a, const char *b) {
    Weights left, right;
    WeightsDeclaration named[] = {{.path = rig_path(a)}, {.path = rig_path(b)}};
    ck_assert_msg(weights_open(&left, &named[0]) == 0, "%s", error_message());
    ck_assert_msg(weights_open(&right, &named[1]) == 0, "%s", error_message());
    int status = convert_compare_rows(&left, &right);
    weights_close(&left);
    weights_close(&right);
    return status;
}

hid_t rig_edit(const char *name) {
    hid_t file = H5Fopen(rig_path(name), H5F_ACC_RDWR, H5P_DEFAULT);
    ck_assert_msg(file >= 0, "%s", name);
    return file;
}

void rig_make_foreign(const char *name) {
    hid_t file = rig_edit(name);
    char attribute[64];
    while (H5Aget_name_by_idx(file, "/", H5_INDEX_NAME, H5_ITER_INC, 0, attribute, sizeof attribute,
                              H5P_DEFAULT) > 0)
        ck_assert(H5Adelete(file, attribute) >= 0);
    H5Fclose(file);
}

real *rig_take(hid_t file, const char *dataset, hsize_t dims[2]) {
    hsize_t size[2] = {0, 1};
    hid_t id = H5Dopen2(file, dataset, H5P_DEFAULT);
    ck_assert_msg(id >= 0, "%s", dataset);
    hid_t space = H5Dget_space(id);
    H5Sget_simple_extent_dims(space, size, NULL);
    real *data = malloc(size[0] * size[1] * sizeof *data);
    ck_assert(H5Dread(id, hdf5_memory_type(), H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
    H5Sclose(space);
    H5Dclose(id);
    if (dims) memcpy(dims, size, sizeof size);
    return data;
}

void rig_put(hid_t file, const char *dataset, int rank, const hsize_t *dims, const real *data) {
    if (H5Lexists(file, dataset, H5P_DEFAULT) > 0) H5Ldelete(file, dataset, H5P_DEFAULT);
    hid_t space = H5Screate_simple(rank, dims, NULL);
    hid_t id =
        H5Dcreate2(file, dataset, hdf5_file_type(), space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert(H5Dwrite(id, hdf5_memory_type(), H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
    H5Sclose(space);
    H5Dclose(id);
}
