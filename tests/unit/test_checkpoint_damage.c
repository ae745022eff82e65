/* Every kind of damage to a published checkpoint is found and named; what isn't found changes
 * nothing that is loaded. */
#include "base/error.h"
#include "checkpoint/hdf5_file.h"
#include "checkpoint/manifest.h"
#include "support/checkpoint_pattern.h"
#include "support/support.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GATE_VALUE "value/" PATTERN_GATE

static SerialRun run;

/* ---- the tools of the trade ---- */

static void path_of(const char *file, char path[FILES_PATH]) { serial_path(&run, 12, file, path); }

static void write_file(const char *file, const void *bytes, size_t size) {
    char path[FILES_PATH];
    path_of(file, path);
    FILE *out = fopen(path, "wb");
    ck_assert_ptr_nonnull(out);
    ck_assert_uint_eq(fwrite(bytes, 1, size, out), size);
    fclose(out);
}

static char *read_file(const char *file, size_t *size) {
    char path[FILES_PATH], *bytes;
    path_of(file, path);
    ck_assert_int_eq(files_read(path, 1 << 26, &bytes, size), 0);
    return bytes;
}

static void flip_bit(const char *file, int64_t byte, int bit) {
    size_t size;
    char *bytes = read_file(file, &size);
    ck_assert_int_lt(byte, (int64_t)size);
    bytes[byte] ^= (char)(1 << bit);
    write_file(file, bytes, size);
    free(bytes);
}

static void cut_file(const char *file, int64_t size) {
    char path[FILES_PATH];
    path_of(file, path);
    ck_assert_int_eq(truncate(path, size), 0);
}

static void remove_file(const char *file) {
    char path[FILES_PATH];
    path_of(file, path);
    ck_assert_int_eq(unlink(path), 0);
}

static void swap_files(const char *a, const char *b) {
    size_t a_size, b_size;
    char *a_bytes = read_file(a, &a_size), *b_bytes = read_file(b, &b_size);
    write_file(a, b_bytes, b_size);
    write_file(b, a_bytes, a_size);
    free(a_bytes);
    free(b_bytes);
}

/* ---- damage to files as a whole and to their bytes ---- */

static void nothing(void) {}
static void proof(void) { write_file("proof.json", "{}", 2); }
static void cut_shard(void) { cut_file("shard-t002-d001.h5", 3000); }
static void empty_shard(void) { cut_file("shard-t002-d001.h5", 0); }
static void delete_shard(void) { remove_file("shard-t007-d002.h5"); }
static void delete_view(void) { remove_file("checkpoint.h5"); }
static void delete_manifest(void) { remove_file("manifest.json"); }
static void cut_manifest(void) { cut_file("manifest.json", 5000); }
static void empty_manifest(void) { cut_file("manifest.json", 0); }
static void other_json(void) { write_file("manifest.json", "[1, 2]", 6); }
static void doubled_key(void) { write_file("manifest.json", "{\"a\": 1, \"a\": 2}", 16); }
static void extra_text(void) { write_file("notes.txt", "hello", 5); }
static void extra_shard(void) { write_file("shard-t008-d000.h5", "hello", 5); }
static void swap_shards(void) { swap_files("shard-t004-d000.h5", "shard-t006-d000.h5"); }

static void garbage(const char *file) {
    char bytes[5000];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(i * i * 31 + i / 7);
    write_file(file, bytes, sizeof bytes);
}
static void garbage_shard(void) { garbage("shard-t002-d001.h5"); }
static void garbage_view(void) { garbage("checkpoint.h5"); }
static void garbage_manifest(void) { garbage("manifest.json"); }

static void manifest_directory(void) {
    char path[FILES_PATH];
    remove_file("manifest.json");
    path_of("manifest.json", path);
    ck_assert_int_eq(mkdir(path, 0777), 0);
}

/* ---- damage through HDF5 ---- */

static hid_t open_file(const char *file) {
    char path[FILES_PATH];
    path_of(file, path);
    hid_t id = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    ck_assert_int_ge(id, 0);
    return id;
}

static void flip_in_dataset(const char *name) {
    hid_t file = open_file("shard-t002-d001.h5"), dataset = H5Dopen2(file, name, H5P_DEFAULT);
    int64_t at = (int64_t)H5Dget_offset(dataset);
    H5Dclose(dataset);
    H5Fclose(file);
    flip_bit("shard-t002-d001.h5", at + 5, 3);
}
static void flip_value(void) { flip_in_dataset(GATE_VALUE); }
static void flip_moment(void) { flip_in_dataset("moment2/" PATTERN_UP); }

/* Puts a dataset in the place of the gate's, of this type and shape. */
static void replace_dataset(hid_t type, hsize_t rows, hsize_t cols, hid_t list) {
    hsize_t dims[2] = {rows, cols};
    hid_t file = open_file("shard-t002-d001.h5"), space = H5Screate_simple(2, dims, NULL);
    ck_assert_int_ge(H5Ldelete(file, GATE_VALUE, H5P_DEFAULT), 0);
    hid_t dataset = H5Dcreate2(file, GATE_VALUE, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    ck_assert_int_ge(dataset, 0);
    H5Dclose(dataset);
    H5Sclose(space);
    H5Fclose(file);
}
static void other_type(void) { replace_dataset(H5T_STD_I32LE, 1, 8, H5P_DEFAULT); }
static void other_shape(void) { replace_dataset(hdf5_file_type(), 2, 4, H5P_DEFAULT); }
static void huge_shape(void) {
    replace_dataset(hdf5_file_type(), (hsize_t)1 << 40, 8, H5P_DEFAULT);
}
static void unwritten(void) { replace_dataset(hdf5_file_type(), 1, 8, H5P_DEFAULT); }

static void other_file(void) {
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    ck_assert_int_ge(H5Pset_external(list, "/etc/passwd", 0, 8 * sizeof(real)), 0);
    replace_dataset(hdf5_file_type(), 1, 8, list);
    H5Pclose(list);
}

/* Writes the digest of the view as it is into the manifest, so that its content is looked at. */
static void accept_view(void) {
    char path[FILES_PATH], text[HASH_TEXT];
    size_t size;
    json_t *manifest;
    path_of("", path);
    ck_assert_int_eq(checkpoint_manifest(path, &manifest), 0);
    char *bytes = read_file("checkpoint.h5", &size);
    hash_format(hash_bytes(bytes, size), text);
    json_object_set_new(json_object_get(manifest, "view"), "digest", json_string(text));
    ck_assert_int_eq(manifest_seal(manifest), 0);
    ck_assert_int_eq(manifest_write(manifest, path), 0);
    json_decref(manifest);
    free(bytes);
}

static void delete_link(const char *file_name, const char *link) {
    hid_t file = open_file(file_name);
    ck_assert_int_ge(H5Ldelete(file, link, H5P_DEFAULT), 0);
    H5Fclose(file);
}
static void delete_dataset(void) { delete_link("shard-t002-d001.h5", GATE_VALUE); }
static void delete_group(void) { delete_link("shard-t002-d001.h5", "moment1"); }
static void delete_in_view(void) {
    delete_link("checkpoint.h5", "moment1/" PATTERN_UP);
    accept_view();
}

static void add_group(const char *file_name, const char *name) {
    hid_t file = open_file(file_name);
    H5Gclose(H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Fclose(file);
}
static void add_to_shard(void) { add_group("shard-t002-d001.h5", "value/other"); }
static void add_to_view(void) {
    add_group("checkpoint.h5", "other");
    accept_view();
}

static void set_attribute(const char *name, hid_t type, const int64_t *value) {
    hsize_t size = 2;
    hid_t file = open_file("shard-t002-d001.h5"), dataset = H5Dopen2(file, GATE_VALUE, H5P_DEFAULT);
    ck_assert_int_ge(H5Adelete(dataset, name), 0);
    if (value) {
        hid_t space = H5Screate_simple(1, &size, NULL);
        hid_t id = H5Acreate2(dataset, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
        ck_assert_int_ge(H5Awrite(id, H5T_NATIVE_INT64, value), 0);
        H5Aclose(id);
        H5Sclose(space);
    }
    H5Dclose(dataset);
    H5Fclose(file);
}
static void other_offset(void) { set_attribute("offset", H5T_STD_I64LE, (int64_t[]){9, 0}); }
static void narrow_count(void) { set_attribute("count", H5T_STD_I32LE, (int64_t[]){1, 8}); }
static void no_axis(void) { set_attribute("axis", H5T_STD_I32LE, NULL); }

/* A view of the gate that shows another dataset in every place. */
static void lying_view(void) {
    hsize_t dims[2] = {11, 8};
    hid_t file = open_file("checkpoint.h5"), space = H5Screate_simple(2, dims, NULL);
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    ck_assert_int_ge(H5Pset_virtual(list, space, "shard-t000-d000.h5", "/value/x", space), 0);
    ck_assert_int_ge(H5Ldelete(file, PATTERN_GATE, H5P_DEFAULT), 0);
    H5Dclose(
        H5Dcreate2(file, PATTERN_GATE, hdf5_file_type(), space, H5P_DEFAULT, list, H5P_DEFAULT));
    H5Pclose(list);
    H5Sclose(space);
    H5Fclose(file);
    accept_view();
}

/* What the message must name; NULL: it is no damage. */
static const struct {
    void (*damage)(void);
    const char *expected[2];
} rows[] = {
    {nothing, {NULL, NULL}},
    {proof, {NULL, NULL}},
    {cut_shard, {"shard-t002-d001.h5: can't open", ""}},
    {empty_shard, {"shard-t002-d001.h5: can't open", ""}},
    {garbage_shard, {"shard-t002-d001.h5: can't open", ""}},
    {delete_shard, {"shard-t007-d002.h5: file is missing", ""}},
    {swap_shards, {"shard-t004-d000.h5: dataset value/", "attribute offset"}},
    {extra_text, {"notes.txt: file is extra", ""}},
    {extra_shard, {"shard-t008-d000.h5: file is extra", ""}},
    {flip_value, {"shard-t002-d001.h5: dataset " GATE_VALUE ": damaged", "digest is"}},
    {flip_moment, {"shard-t002-d001.h5: dataset moment2/" PATTERN_UP ": damaged", ""}},
    {other_type, {"shard-t002-d001.h5: dataset " GATE_VALUE ": type isn't", REAL_NAME}},
    {other_shape, {"shard-t002-d001.h5: dataset " GATE_VALUE ": shape isn't [1, 8]", ""}},
    {huge_shape, {"shard-t002-d001.h5: dataset " GATE_VALUE ": shape isn't [1, 8]", ""}},
    {unwritten, {"shard-t002-d001.h5: dataset " GATE_VALUE ": its bytes aren't", ""}},
    {other_file, {"shard-t002-d001.h5: dataset " GATE_VALUE ": isn't contiguous", ""}},
    {delete_dataset, {"shard-t002-d001.h5: " PATTERN_GATE " is missing in group value", ""}},
    {delete_group, {"shard-t002-d001.h5: moment1 is missing", ""}},
    {add_to_shard, {"shard-t002-d001.h5: other in group value is extra", ""}},
    {other_offset, {"dataset " GATE_VALUE ": attribute offset", ""}},
    {narrow_count, {"dataset " GATE_VALUE ": attribute count", ""}},
    {no_axis, {"dataset " GATE_VALUE ": attribute axis", ""}},
    {delete_view, {"checkpoint.h5: file is missing", ""}},
    {garbage_view, {"checkpoint.h5: damaged", ""}},
    {lying_view, {"checkpoint.h5: dataset " PATTERN_GATE ": its sources", ""}},
    {delete_in_view, {"checkpoint.h5: " PATTERN_UP " is missing in group moment1", ""}},
    {add_to_view, {"checkpoint.h5: other in group / is extra", ""}},
    {delete_manifest, {"manifest.json: can't read", ""}},
    {manifest_directory, {"manifest.json: is a directory", ""}},
    {empty_manifest, {"manifest.json: line", ""}},
    {cut_manifest, {"manifest.json: line", ""}},
    {garbage_manifest, {"manifest.json: line", ""}},
    {doubled_key, {"manifest.json: line 1: duplicate", ""}},
    {other_json, {"manifest.json: field format is missing", ""}},
};
enum { ROWS = sizeof rows / sizeof *rows };

START_TEST(damage_is_found_and_named) {
    char path[FILES_PATH], older[FILES_PATH], found[FILES_PATH];
    Capture capture;
    for (int i = 0; i < ROWS; i++) {
        serial_begin(&run);
        serial_save(&run, 7, 0);
        serial_save(&run, 12, 0);
        path_of("", path);
        serial_path(&run, 7, "", older);
        rows[i].damage();
        capture_begin(&capture, 2);
        int status = checkpoint_verify(path);
        char *lines = capture_end(&capture);
        bool harmless = rows[i].expected[0] == NULL;
        ck_assert_msg(status == (harmless ? 0 : WEFT_CHECK), "row %d: %d %s", i, status, lines);
        for (int k = 0; !harmless && k < 2; k++) {
            ck_assert_msg(strstr(error_message(), rows[i].expected[k]) != NULL,
                          "row %d: not in \"%s\": %s", i, error_message(), rows[i].expected[k]);
            ck_assert_ptr_nonnull(strstr(lines, rows[i].expected[k]));
        }
        capture_begin(&capture, 2);
        ck_assert_int_eq(checkpoint_find(run.run_dir, true, found, sizeof found), 0);
        free(lines);
        lines = capture_end(&capture);
        ck_assert_str_eq(found, harmless ? path : older);
        ck_assert((strstr(lines, "step-00000012: skipped: ") == NULL) == harmless);
        free(lines);
        serial_end(&run);
    }
}
END_TEST

/* Loads what is there: an error, or exactly what was saved. Returns whether it was an error. */
static bool load_fails(void) {
    char path[FILES_PATH];
    PatternModel other;
    path_of("", path);
    pattern_open(&other, &run.grid, 2, 1);
    int status = checkpoint_load(&run.grid, &other.set, path);
    if (status == 0) ck_assert_int_eq(pattern_mismatches(&other), 0);
    pattern_close(&other);
    return status != 0;
}

/* Every `stride`-th byte of a file gets one bit flipped in turn. Counts flips that verify doesn't
 * see: they must not change what is loaded. */
static int unseen_flips(const char *file, int64_t stride) {
    char path[FILES_PATH];
    size_t size;
    int unseen = 0;
    Capture capture;
    char *bytes = read_file(file, &size);
    path_of("", path);
    for (int64_t at = 0; at < (int64_t)size; at += stride) {
        flip_bit(file, at, (int)(at / stride % 8));
        capture_begin(&capture, 2);
        int status = checkpoint_verify(path);
        free(capture_end(&capture));
        if (status == 0) {
            unseen++;
            ck_assert(!load_fails());
        } else {
            ck_assert_msg(strstr(error_message(), file) != NULL, "%s at %" PRId64 ": %s", file, at,
                          error_message());
            load_fails();
        }
        write_file(file, bytes, size);
    }
    free(bytes);
    return unseen;
}

/* In the double build, whose files differ in the size of numbers alone, a third as many flips. */
START_TEST(single_bits_are_found_or_mean_nothing) {
    static const struct {
        const char *file;
        int64_t stride;
    } files[] = {{"shard-t000-d000.h5", 67}, {"checkpoint.h5", 67}, {"manifest.json", 61}};
    PatternModel small;
    grid_serial(&run.grid);
    scratch_make(run.run_dir);
    pattern_open(&small, &run.grid, 2, 1);
    pattern_fill(&small);
    ck_assert_int_eq(checkpoint_save(&run.grid, &small.set, &small.state, run.run_dir), 0);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t size;
        int64_t stride = files[i].stride * (sizeof(real) == 8 ? 3 : 1);
        free(read_file(files[i].file, &size));
        int unseen = unseen_flips(files[i].file, stride);
        int flips = (int)((int64_t)size / stride) + 1;
        printf("%s: %d flips, %d without meaning\n", files[i].file, flips, unseen);
        ck_assert_int_lt(unseen, flips / 2);
    }
    pattern_close(&small);
    ck_assert_int_eq(files_remove_tree(run.run_dir), 0);
}
END_TEST

int main(void) {
    return run_suite("checkpoint_damage",
                     TESTS(damage_is_found_and_named, single_bits_are_found_or_mean_nothing));
}
