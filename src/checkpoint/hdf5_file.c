#include "checkpoint/hdf5_file.h"

#include "base/error.h"
#include "base/library_lock.h"
#include "param/param.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

hid_t hdf5_file_type(void) {
    LIBRARY_SECTION;
    return sizeof(real) == 8 ? H5T_IEEE_F64LE : H5T_IEEE_F32LE;
}

hid_t hdf5_memory_type(void) {
    LIBRARY_SECTION;
    return sizeof(real) == 8 ? H5T_NATIVE_DOUBLE : H5T_NATIVE_FLOAT;
}

void hdf5_drop(hid_t id) {
    LIBRARY_SECTION;
    if (id >= 0) H5Idec_ref(id);
}

enum { REASON = 512 };

/* Upward from where the error arose: the first message is the reason. Of a failed system call HDF5
 * tells much; the system's own words in it say all. */
static herr_t take_reason(unsigned level, const H5E_error2_t *error, void *text) {
    static const char mark[] = "error message = '";
    (void)level;
    const char *told = error->desc ? error->desc : "", *words = strstr(told, mark);
    if (words) told = words + strlen(mark);
    snprintf(text, REASON, "%.*s", (int)strcspn(told, words ? "'" : "\n"), told);
    return 1;
}

int hdf5_error(const Hdf5File *file, const char *dataset, const char *what) {
    char reason[REASON] = "";
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_reason, reason);
    return error_set(file->code, "%s: %s%s%s%s%s%s%s", file->path, dataset ? "dataset " : "",
                     dataset ? dataset : "", dataset ? ": " : "", what, reason[0] ? " (" : "",
                     reason, reason[0] ? ")" : "");
}

/* Object times off: else the same state makes other bytes a second later. */
hid_t hdf5_creation_list(hid_t kind) {
    LIBRARY_SECTION;
    hid_t list = H5Pcreate(kind);
    if (list >= 0 && H5Pset_obj_track_times(list, false) >= 0) return list;
    hdf5_drop(list);
    return -1;
}

/* For a group (the root: H5P_FILE_CREATE) of so many links. They stay in the object header, which
 * has a checksum, and in which room for them is made at once: HDF5 1.10.8 would keep more than
 * eight in a heap and crashes when that is damaged. */
static hid_t group_list(hid_t kind, int links) {
    enum { COMPACT_LINKS = 65535, LINK_NAME = 48 /* what a tensor's name takes, roughly */ };
    hid_t list = hdf5_creation_list(kind);
    unsigned expected = (unsigned)(links < COMPACT_LINKS ? links : COMPACT_LINKS);
    if (list >= 0 && H5Pset_link_phase_change(list, COMPACT_LINKS, 0) >= 0 &&
        H5Pset_est_link_info(list, expected, LINK_NAME) >= 0)
        return list;
    hdf5_drop(list);
    return -1;
}

/* Files that a view keeps open: else it opens the file anew for each piece that it reads. */
enum { SOURCES_OPEN = 256 };

/* Nothing stays open behind a closed file; no lock, which some network file systems can't give and
 * a directory that is published by rename doesn't need. */
static hid_t access_list(bool writing) {
    hid_t list = H5Pcreate(H5P_FILE_ACCESS);
    if (list < 0) return list;
    bool good = H5Pset_fclose_degree(list, H5F_CLOSE_STRONG) >= 0 &&
                H5Pset_file_locking(list, false, true) >= 0 &&
                H5Pset_elink_file_cache_size(list, SOURCES_OPEN) >= 0 &&
                (!writing || H5Pset_libver_bounds(list, H5F_LIBVER_V110, H5F_LIBVER_V110) >= 0);
    if (good) return list;
    hdf5_drop(list);
    return -1;
}

static int begin(Hdf5File *file, const char *directory, const char *name, int code) {
    file->id = -1;
    file->code = code;
    H5dont_atexit(); /* after a failed write HDF5 1.10 crashes when it cleans up at exit */
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    return files_join(file->path, sizeof file->path, directory, name);
}

int hdf5_create(Hdf5File *file, const char *directory, const char *name, int links) {
    LIBRARY_SECTION;
    int status = begin(file, directory, name, WEFT_RUNTIME);
    if (status) return status;
    hid_t access = access_list(true), creation = group_list(H5P_FILE_CREATE, links);
    if (access < 0 || creation < 0)
        status = hdf5_error(file, NULL, "can't set file properties");
    else if ((file->id = H5Fcreate(file->path, H5F_ACC_EXCL, creation, access)) < 0)
        status = hdf5_error(file, NULL, "can't create");
    hdf5_drop(creation);
    hdf5_drop(access);
    return status;
}

int hdf5_open(Hdf5File *file, const char *directory, const char *name) {
    LIBRARY_SECTION;
    int status = begin(file, directory, name, WEFT_INPUT);
    if (status) return status;
    if (files_exists(file->path) && !files_is_regular(file->path))
        return error_set(WEFT_INPUT, "%s: is no regular file", file->path);
    hid_t access = access_list(false);
    if (access < 0)
        status = hdf5_error(file, NULL, "can't set file properties");
    else if ((file->id = H5Fopen(file->path, H5F_ACC_RDONLY, access)) < 0)
        status = hdf5_error(file, NULL, "can't open");
    hdf5_drop(access);
    return status;
}

/* All bytes are the system's. */
static int flush(const Hdf5File *file, int *descriptor) {
    LIBRARY_SECTION;
    int *handle = NULL;
    if (H5Fflush(file->id, H5F_SCOPE_GLOBAL) < 0) return hdf5_error(file, NULL, "can't flush");
    if (H5Fget_vfd_handle(file->id, H5P_DEFAULT, (void **)&handle) < 0)
        return hdf5_error(file, NULL, "can't get its descriptor");
    *descriptor = *handle;
    return 0;
}

int hdf5_finish(Hdf5File *file) {
    int descriptor = -1, status = flush(file, &descriptor);
    if (status) return status;
    if (fsync(descriptor))
        return error_set(file->code, "%s: fsync failed: %s", file->path, strerror(errno));
    LIBRARY_SECTION;
    hid_t id = file->id;
    file->id = -1;
    return H5Fclose(id) < 0 ? hdf5_error(file, NULL, "can't close") : 0;
}

void hdf5_close(Hdf5File *file) {
    LIBRARY_SECTION;
    if (file->id >= 0) H5Fclose(file->id);
    file->id = -1;
}

int hdf5_make_group(const Hdf5File *file, const char *name, int links) {
    LIBRARY_SECTION;
    hid_t list = group_list(H5P_GROUP_CREATE, links), group = -1;
    int status = 0;
    if (list < 0 || (group = H5Gcreate2(file->id, name, H5P_DEFAULT, list, H5P_DEFAULT)) < 0)
        status = hdf5_error(file, name, "can't create group");
    hdf5_drop(group);
    hdf5_drop(list);
    return status;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Links of a group come in increasing order of their names, as the sorted names do. */
typedef struct {
    const Hdf5File *file;
    const char *group, **name;
    int count, next, status;
} NameCheck;

static int missing(NameCheck *check) {
    return error_set(WEFT_INPUT, "%s: %s is missing in group %s", check->file->path,
                     check->name[check->next], check->group);
}

static herr_t check_link(hid_t group, const char *link, const H5L_info_t *info, void *context) {
    (void)group, (void)info;
    NameCheck *check = context;
    int order = check->next < check->count ? strcmp(link, check->name[check->next]) : -1;
    if (order < 0)
        check->status = error_set(WEFT_INPUT, "%s: %s in group %s is extra", check->file->path,
                                  link, check->group);
    if (order > 0) check->status = missing(check);
    check->next++;
    return check->status ? 1 : 0;
}

int hdf5_check_names(const Hdf5File *file, const char *group, const char *const *names, int count) {
    LIBRARY_SECTION;
    NameCheck check = {.file = file, .group = group, .count = count};
    check.name = malloc(((size_t)count + 1) * sizeof *check.name);
    if (!check.name) return error_set(WEFT_RUNTIME, "out of memory: %d names", count);
    for (int i = 0; i < count; i++) check.name[i] = names[i];
    qsort(check.name, (size_t)count, sizeof *check.name, compare_names);
    hid_t id = H5Gopen2(file->id, group, H5P_DEFAULT);
    if (id < 0)
        check.status = hdf5_error(file, group, "can't open group");
    else if (H5Literate(id, H5_INDEX_NAME, H5_ITER_INC, NULL, check_link, &check) < 0)
        check.status = hdf5_error(file, group, "can't list group");
    else if (!check.status && check.next < count)
        check.status = missing(&check);
    hdf5_drop(id);
    free(check.name);
    return check.status;
}

static int refuse_shape(const Hdf5File *file, const char *name, int rank, const int64_t *dims,
                        hid_t space) {
    hsize_t size[H5S_MAX_RANK] = {0};
    char wanted[PARAM_SHAPE], found[PARAM_SHAPE] = "of another rank";
    int there = H5Sget_simple_extent_dims(space, size, NULL);
    if (there == 1 || there == 2)
        param_shape_text(there, (int64_t)size[0], (int64_t)size[there - 1], found);
    param_shape_text(rank, dims[0], dims[rank - 1], wanted);
    return error_set(file->code, "%s: dataset %s: shape isn't %s but %s", file->path, name, wanted,
                     found);
}

int hdf5_check_shape(const Hdf5File *file, hid_t dataset, const char *name, int rank,
                     const int64_t *dims) {
    LIBRARY_SECTION;
    hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    hsize_t size[H5S_MAX_RANK] = {0};
    int status = 0;
    if (type < 0 || space < 0)
        status = hdf5_error(file, name, "can't read type and shape");
    else if (H5Tequal(type, hdf5_file_type()) <= 0)
        status = error_set(file->code, "%s: dataset %s: type isn't little-endian " REAL_NAME,
                           file->path, name);
    else if (H5Sget_simple_extent_ndims(space) != rank ||
             H5Sget_simple_extent_dims(space, size, NULL) != rank || size[0] != (hsize_t)dims[0] ||
             (rank == 2 && size[1] != (hsize_t)dims[1]))
        status = refuse_shape(file, name, rank, dims, space);
    hdf5_drop(space);
    hdf5_drop(type);
    return status;
}

int hdf5_check_storage(const Hdf5File *file, hid_t dataset, const char *name, hsize_t bytes) {
    LIBRARY_SECTION;
    hid_t list = H5Dget_create_plist(dataset);
    if (list < 0) return hdf5_error(file, name, "can't read properties");
    bool plain = H5Pget_layout(list) == H5D_CONTIGUOUS && H5Pget_external_count(list) == 0;
    hdf5_drop(list);
    if (!plain)
        return error_set(WEFT_INPUT,
                         "%s: dataset %s: isn't contiguous (h5repack -l CONTI makes it so)",
                         file->path, name);
    haddr_t start = H5Dget_offset(dataset);
    hsize_t size = (hsize_t)files_size(file->path);
    if (H5Dget_storage_size(dataset) != bytes || start == HADDR_UNDEF || start > size ||
        bytes > size - start)
        return error_set(WEFT_INPUT, "%s: dataset %s: its bytes aren't in the file", file->path,
                         name);
    return 0;
}

hid_t hdf5_create_dataset(const Hdf5File *file, const char *name, int rank, const int64_t *dims) {
    LIBRARY_SECTION;
    hsize_t size[2] = {(hsize_t)dims[0], (hsize_t)dims[1]};
    hid_t space = H5Screate_simple(rank, size, NULL), list = hdf5_creation_list(H5P_DATASET_CREATE);
    hid_t dataset = -1;
    if (space >= 0 && list >= 0 && H5Pset_layout(list, H5D_CONTIGUOUS) >= 0 &&
        H5Pset_fill_time(list, H5D_FILL_TIME_NEVER) >= 0)
        dataset =
            H5Dcreate2(file->id, name, hdf5_file_type(), space, H5P_DEFAULT, list, H5P_DEFAULT);
    hdf5_drop(list);
    hdf5_drop(space);
    return dataset;
}
