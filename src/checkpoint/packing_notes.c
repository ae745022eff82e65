#include "checkpoint/packing_notes.h"

#include "base/error.h"
#include "base/library_lock.h"

#include <string.h>

enum { NOTE_SIZE = 512 }; /* of a text; longer ones aren't ours */

static bool write_note(hid_t root, const char *key, const char *text) {
    size_t size = strlen(text);
    hid_t space = H5Screate(H5S_SCALAR), type = H5Tcopy(H5T_C_S1), id = -1;
    bool good = space >= 0 && type >= 0 && H5Tset_size(type, size ? size : 1) >= 0 &&
                H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0;
    if (good) id = H5Acreate2(root, key, type, space, H5P_DEFAULT, H5P_DEFAULT);
    good = good && id >= 0 && H5Awrite(id, type, text) >= 0;
    hdf5_drop(id);
    hdf5_drop(type);
    hdf5_drop(space);
    return good;
}

int packing_write_notes(const Hdf5File *file, const json_t *notes) {
    LIBRARY_SECTION;
    const char *key;
    json_t *text;
    hid_t root = H5Gopen2(file->id, "/", H5P_DEFAULT);
    int status = root < 0 ? hdf5_error(file, NULL, "can't open its root") : 0;
    json_object_foreach((json_t *)notes, key, text) {
        if (!status && !write_note(root, key, json_string_value(text)))
            status = hdf5_error(file, NULL, "can't write attributes");
    }
    hdf5_drop(root);
    return status;
}

/* Texts of fixed length alone: other attributes are of other systems. */
static herr_t read_note(hid_t root, const char *key, const H5A_info_t *info, void *notes) {
    char text[NOTE_SIZE + 1] = "";
    (void)info;
    hid_t id = H5Aopen(root, key, H5P_DEFAULT);
    if (id < 0) return 0;
    hid_t type = H5Aget_type(id), space = H5Aget_space(id);
    if (type >= 0 && space >= 0 && H5Tget_class(type) == H5T_STRING &&
        H5Tis_variable_str(type) == 0 && H5Tget_size(type) <= NOTE_SIZE &&
        H5Sget_simple_extent_npoints(space) == 1 && H5Aread(id, type, text) >= 0) {
        json_t *value = json_string(text); /* NULL when it isn't UTF-8 */
        if (value) json_object_set_new(notes, key, value);
    }
    hdf5_drop(space);
    hdf5_drop(type);
    hdf5_drop(id);
    return 0;
}

int packing_read_notes(const char *path, json_t **notes) {
    LIBRARY_SECTION;
    Hdf5File file;
    *notes = json_object();
    if (!*notes) return error_set(WEFT_RUNTIME, "out of memory: attributes of %s", path);
    int status = hdf5_open(&file, "", path);
    if (!status) {
        hid_t root = H5Gopen2(file.id, "/", H5P_DEFAULT);
        if (root < 0 || H5Aiterate2(root, H5_INDEX_NAME, H5_ITER_INC, NULL, read_note, *notes) < 0)
            status = hdf5_error(&file, NULL, "can't read the attributes of its root");
        hdf5_drop(root);
    }
    hdf5_close(&file);
    if (!status) return 0;
    json_decref(*notes);
    *notes = NULL;
    return status;
}
