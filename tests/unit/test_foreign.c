/* FFN weights of other systems: files that say nothing of themselves and may be damaged, of another
 * shape than declared, or hostile. The declaration alone decides; what doesn't fit it is named. */
#include "base/error.h"
#include "support/checkpoint_pattern.h"
#include "support/packing_rig.h"
#include "support/support.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define MLP           "model.layers.0.mlp."
#define GATE          MLP "gate_proj.weight"
#define UP            MLP "up_proj.weight"
#define DOWN          MLP "down_proj.weight"

static bool says(const char *text) {
    if (strstr(error_message(), text)) return true;
    fprintf(stderr, "\"%s\" doesn't say \"%s\"\n", error_message(), text);
    return false;
}

/* What a user says of the file: 16 columns, 12 channels, one layer. */
static const char *const declared[] = {"ffn.kind=gated", "ffn.activation=silu", "model.d_model=16",
                                       "ffn.d_ff=12",    "model.layers=1",      "ffn.bias=true"};
enum { SIZES = 5, WITH_BIAS = 6 };

static ConvertRequest request_of(const char *from, const char *layout, int sets) {
    return (ConvertRequest){
        .source = {.path = from, .layout = layout, .set = declared, .sets = sets},
        .out = "new",
        .layout = "separate"};
}

static bool nothing_is_left(void) {
    return !files_exists(rig_path("new")) &&
           glob(rig_path(".tmp-new*"), 0, NULL, &(glob_t){0}) == GLOB_NOMATCH;
}

/* A file without attributes in some layout, from a checkpoint in `run`. */
static void make_foreign(const char *name, const char *layout, int parts) {
    rig_convert_to("run", name, layout, parts);
    rig_make_foreign(name);
}

/* ---- what must be declared ---- */

START_TEST(nothing_is_guessed) {
    rig_begin();
    rig_checkpoint("run", SETTINGS("model.layers=1", "ffn.bias=false"));
    make_foreign("file", "separate", 0);
    for (int missing = 0; missing < SIZES; missing++) {
        const char *set[SIZES];
        for (int i = 0; i < SIZES - 1; i++) set[i] = declared[i + (i >= missing)];
        ConvertRequest request = {
            {.path = "file", .layout = "separate", .set = set, .sets = SIZES - 1},
            .out = "new",
            .layout = "transposed"};
        char key[64];
        snprintf(key, sizeof key, "doesn't say its %.*s,", (int)strcspn(declared[missing], "="),
                 declared[missing]);
        ck_assert_int_eq(rig_convert(&request), WEFT_USAGE);
        ck_assert(says(key) && nothing_is_left());
    }
    ConvertRequest request = request_of("file", NULL, SIZES);
    ck_assert_int_eq(rig_convert(&request), WEFT_USAGE);
    ck_assert(says("doesn't say in which layout it is") && nothing_is_left());
    request.source.layout = "packed_ranks";
    ck_assert_int_eq(rig_convert(&request), WEFT_USAGE);
    ck_assert(says("doesn't say of how many parts it is: declare it with --ranks N"));
    request.source.layout = "separate";
    ck_assert_msg(rig_convert(&request) == 0, "%s", error_message());
    rig_convert_to("run", "separate", "separate", 0);
    ck_assert(same_bytes(rig_path("new"), rig_path("separate")));
    rig_end();
}
END_TEST

START_TEST(every_layout_is_read_as_declared) {
    rig_begin();
    rig_checkpoint("run", SETTINGS("model.layers=1", "ffn.bias=true"));
    rig_convert_to("run", "separate", "separate", 0);
    for (const PackingLayout *layout = packing_layouts; layout->name; layout++) {
        make_foreign("file", layout->name, 5);
        ConvertRequest request = request_of("file", layout->name, WITH_BIAS);
        if (layout->cut == PACKING_SHARDS) request.shards = 5;
        if (layout->cut == PACKING_RANKS) request.ranks = 5;
        ck_assert_msg(rig_convert(&request) == 0, "%s", error_message());
        ck_assert(same_bytes(rig_path("new"), rig_path("separate")));
        unlink(rig_path("new"));
        unlink(rig_path("file"));
    }
    rig_end();
}
END_TEST

/* ---- damage ---- */

typedef void Damage(hid_t file);

static void lose_up(hid_t file) { H5Ldelete(file, UP, H5P_DEFAULT); }
static void lose_down_bias(hid_t file) { H5Ldelete(file, MLP "down_proj.bias", H5P_DEFAULT); }

static void add_vector(hid_t file, const char *name, hsize_t size) {
    real zeros[64] = {0};
    rig_put(file, name, 1, &size, zeros);
}
static void add_gate_bias(hid_t file) { add_vector(file, MLP "gate_proj.bias", 12); }
static void add_third(hid_t file) { add_vector(file, MLP "third_proj.weight", 12); }
static void add_group(hid_t file) {
    H5Gclose(H5Gcreate2(file, "optimizer", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
}

/* A dataset of another shape in its place, zeros. */
static void reshape(hid_t file, const char *name, int rank, hsize_t a, hsize_t b, hsize_t c) {
    real zeros[16 * 16 * 4] = {0};
    rig_put(file, name, rank, (hsize_t[]){a, b, c}, zeros);
}
static void widen_up(hid_t file) { reshape(file, UP, 2, 13, 16, 0); }
static void narrow_gate(hid_t file) { reshape(file, GATE, 2, 11, 16, 0); }
static void flatten_gate(hid_t file) { reshape(file, GATE, 1, 12 * 16, 0, 0); }
static void deepen_gate(hid_t file) { reshape(file, GATE, 3, 12, 16, 1); }
static void turn_down(hid_t file) { reshape(file, DOWN, 2, 12, 16, 0); }
static void empty_gate(hid_t file) { reshape(file, GATE, 2, 0, 16, 0); }

static void retype(hid_t file, const char *name, hid_t type, hid_t list) {
    H5Ldelete(file, name, H5P_DEFAULT);
    hid_t space = H5Screate_simple(2, (hsize_t[]){12, 16}, NULL);
    H5Dclose(H5Dcreate2(file, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT));
    H5Sclose(space);
}
static void other_real(hid_t file) {
    retype(file, GATE, sizeof(real) == 4 ? H5T_IEEE_F64LE : H5T_IEEE_F32LE, H5P_DEFAULT);
}
static void integers(hid_t file) { retype(file, GATE, H5T_STD_I32LE, H5P_DEFAULT); }
static void big_endian(hid_t file) {
    retype(file, GATE, sizeof(real) == 4 ? H5T_IEEE_F32BE : H5T_IEEE_F64BE, H5P_DEFAULT);
}
static void unwritten(hid_t file) { retype(file, GATE, hdf5_file_type(), H5P_DEFAULT); }
static void chunked(hid_t file) {
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(list, 2, (hsize_t[]){4, 4});
    retype(file, GATE, hdf5_file_type(), list);
    H5Pclose(list);
}
static void elsewhere(hid_t file) {
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(list, "/etc/passwd", 0, 12 * 16 * sizeof(real));
    retype(file, GATE, hdf5_file_type(), list);
    H5Pclose(list);
}
static void group_for_dataset(hid_t file) {
    H5Ldelete(file, GATE, H5P_DEFAULT);
    H5Gclose(H5Gcreate2(file, GATE, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
}
static void dangling_link(hid_t file) {
    H5Ldelete(file, GATE, H5P_DEFAULT);
    H5Lcreate_soft("/nowhere", file, GATE, H5P_DEFAULT, H5P_DEFAULT);
}

static const struct {
    Damage *damage;
    int sets;
    const char *text[2];
} damages[] = {
    {lose_up, SIZES, {UP " is missing in group /", "declared are layout separate, names hf"}},
    {lose_down_bias, WITH_BIAS, {MLP "down_proj.bias is missing", "ffn.down_bias = true"}},
    {add_gate_bias, SIZES, {MLP "gate_proj.bias in group / is extra", "ffn.gate_bias = false"}},
    {add_third, SIZES, {"third_proj.weight in group / is extra", "declared are"}},
    {add_group, SIZES, {"optimizer in group / is extra", "declared are"}},
    {widen_up, SIZES, {"dataset " UP, "shape isn't [12, 16]"}},
    {narrow_gate, SIZES, {"dataset " GATE, "shape isn't [12, 16]"}},
    {flatten_gate, SIZES, {"dataset " GATE, "shape isn't [12, 16]"}},
    {deepen_gate, SIZES, {"dataset " GATE, "shape isn't [12, 16]"}},
    {empty_gate, SIZES, {"dataset " GATE, "shape isn't [12, 16]"}},
    {turn_down, SIZES, {"dataset " DOWN, "shape isn't [16, 12]"}},
    {other_real, SIZES, {"dataset " GATE, "type isn't little-endian " REAL_NAME}},
    {integers, SIZES, {"dataset " GATE, "type isn't little-endian " REAL_NAME}},
    {big_endian, SIZES, {"dataset " GATE, "type isn't little-endian " REAL_NAME}},
    {unwritten, SIZES, {"dataset " GATE, "its bytes aren't in the file"}},
    {chunked, SIZES, {"dataset " GATE, "isn't contiguous (h5repack -l CONTI"}},
    {elsewhere, SIZES, {"dataset " GATE, "isn't contiguous"}},
    {group_for_dataset, SIZES, {"dataset " GATE, "can't open"}},
    {dangling_link, SIZES, {"dataset " GATE, "can't open"}},
};

START_TEST(what_isnt_as_declared_is_refused_by_name) {
    rig_begin();
    rig_checkpoint("bare", SETTINGS("model.layers=1", "ffn.bias=false"));
    rig_checkpoint("biased", SETTINGS("model.layers=1", "ffn.bias=true"));
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        int sets = damages[i].sets;
        rig_convert_to(sets == WITH_BIAS ? "biased" : "bare", "file", "separate", 0);
        rig_make_foreign("file");
        hid_t file = rig_edit("file");
        damages[i].damage(file);
        H5Fclose(file);
        ConvertRequest request = request_of("file", "separate", sets);
        int status = rig_convert(&request);
        ck_assert_msg(status == WEFT_INPUT, "%zu: %d: %s", i, status, error_message());
        ck_assert(says(damages[i].text[0]) && says(damages[i].text[1]) && nothing_is_left());
        unlink(rig_path("file"));
    }
    rig_end();
}
END_TEST

START_TEST(files_that_are_cut_or_no_hdf5_are_refused) {
    rig_begin();
    rig_checkpoint("run", SETTINGS("model.layers=1", "ffn.bias=false"));
    make_foreign("file", "separate", 0);
    int64_t size = files_size(rig_path("file"));
    ConvertRequest request = request_of("file", "separate", SIZES);
    static const double parts[] = {0.999, 0.5, 0.01, 0};
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(truncate(rig_path("file"), (off_t)(parts[i] * (double)size)), 0);
        ck_assert_int_eq(rig_convert(&request), WEFT_INPUT);
        ck_assert(says("/file: can't open") && nothing_is_left());
    }
    ck_assert_int_eq(mkfifo(rig_path("pipe"), 0600), 0);
    request.source.path = "pipe";
    ck_assert_int_eq(rig_convert(&request), WEFT_INPUT);
    ck_assert(says("is no regular file"));
    rig_end();
}
END_TEST

/* Every rank of another system has the whole bias of its row-parallel product. */
START_TEST(ranks_whose_biases_of_down_differ_are_refused) {
    rig_begin();
    rig_checkpoint("run", SETTINGS("model.layers=1", "ffn.bias=true"));
    make_foreign("file", "packed_ranks", 3);
    hid_t file = rig_edit("file");
    real *bias = rig_take(file, "rank-002/" MLP "down_proj.bias", NULL);
    bias[15] += 1;
    rig_put(file, "rank-002/" MLP "down_proj.bias", 1, (hsize_t[]){16}, bias);
    free(bias);
    H5Fclose(file);
    ConvertRequest request = request_of("file", "packed_ranks", WITH_BIAS);
    request.ranks = 3;
    ck_assert_int_eq(rig_convert(&request), WEFT_INPUT);
    ck_assert(says("layer 0: down's bias of rank 2 isn't that of rank 0") && nothing_is_left());
    request.ranks = 2;
    ck_assert_int_eq(rig_convert(&request), WEFT_INPUT);
    ck_assert(says("rank-002 in group / is extra"));
    request.ranks = 4;
    ck_assert_int_eq(rig_convert(&request), WEFT_INPUT);
    ck_assert(says("rank-003 is missing in group /"));
    rig_end();
}
END_TEST

/* ---- transposed ---- */

START_TEST(shapes_betray_a_transposed_store_unless_it_is_square) {
    rig_begin();
    rig_checkpoint("oblong", SETTINGS("model.layers=1", "ffn.bias=false"));
    rig_convert_to("oblong", "file", "transposed", 0);
    rig_make_foreign("file");
    ConvertRequest request = request_of("file", "separate", SIZES);
    ck_assert_int_eq(rig_convert(&request), WEFT_INPUT);
    ck_assert(says("dataset " GATE ": shape isn't [12, 16]") && nothing_is_left());
    ck_assert(says("declared are layout separate, names hf"));
    request.source.layout = "transposed";
    ck_assert_msg(rig_convert(&request) == 0, "%s", error_message());
    unlink(rig_path("new"));

    rig_checkpoint("square", SETTINGS("model.layers=1", "ffn.bias=false", "ffn.d_ff=16"));
    rig_convert_to("square", "right", "separate", 0);
    rig_convert_to("square", "turned", "transposed", 0);
    rig_make_foreign("turned");
    static const char *const square[] = {"ffn.kind=gated", "ffn.activation=silu",
                                         "model.d_model=16", "ffn.d_ff=16", "model.layers=1"};
    request = request_of("turned", "separate", SIZES);
    request.source.set = square;
    ck_assert_msg(rig_convert(&request) == 0, "%s", error_message()); /* nothing contradicts it */
    ck_assert(!same_bytes(rig_path("new"), rig_path("right")));
    unlink(rig_path("new"));
    request.against = "square"; /* but for the known row */
    ck_assert_int_eq(rig_convert(&request), WEFT_CHECK);
    ck_assert(says("the FFN of layer 0 takes a known row to") && nothing_is_left());
    request.source.layout = "transposed";
    ck_assert_msg(rig_convert(&request) == 0, "%s", error_message());
    ck_assert(same_bytes(rig_path("new"), rig_path("right")));
    rig_end();
}
END_TEST

/* ---- attributes ---- */

static void set_attribute(const char *name, const char *key, const char *text) {
    hid_t file = rig_edit(name), space = H5Screate(H5S_SCALAR), type = H5Tcopy(H5T_C_S1);
    if (H5Aexists(file, key) > 0) H5Adelete(file, key);
    if (text) {
        H5Tset_size(type, strlen(text) + 1);
        hid_t id = H5Acreate2(file, key, type, space, H5P_DEFAULT, H5P_DEFAULT);
        ck_assert(H5Awrite(id, type, text) >= 0);
        H5Aclose(id);
    }
    H5Tclose(type);
    H5Sclose(space);
    H5Fclose(file);
}

START_TEST(attributes_are_checked_like_any_input) {
    static const struct {
        const char *key, *value, *text;
    } row[] = {
        {"format", "weft-ffn 2", "its attribute format says weft-ffn 2"},
        {"layout", "sideways", "file: there is no layout sideways"},
        {"layout", NULL, "doesn't say in which layout"},
        {"layout", "packed_ranks", "down_proj.weight in group / is extra"},
        {"names", "nobody's", "file: there are no names nobody's"},
        {"names", "meta", "is missing in group /"},
        {"parts", "0", "file: layout packed_shard: 0 parts of 12 channels"},
        {"parts", "-3", "-3 parts of 12 channels"},
        {"parts", "99999999999999999999", "parts of 12 channels"},
        {"parts", "three", "0 parts of 12 channels"},
        {"ffn.kind", "gated,dense", "its attribute ffn.kind can't be gated,dense"},
        {"ffn.kind", "dense", "layout packed_shard: a dense FFN has no gate"},
        {"ffn.activation", NULL, "its attribute ffn.activation is missing"},
        {"ffn.d_ff", "13", "shape isn't [26, 16]"},
        {"ffn.d_ff", "1e3", "its attribute ffn.d_ff can't be 1e3"},
        {"model.layers", "2", "model.layers.1.mlp.down_proj.weight is missing"},
        {"model.d_model", "2147483647", "shape isn't ["},
        {"ffn.up_bias", "true", "gate_up_proj.bias is missing in group /"},
    };
    rig_begin();
    rig_checkpoint("run", SETTINGS("model.layers=1", "ffn.bias=false"));
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        rig_convert_to("run", "file", "packed_shard", 3);
        set_attribute("file", row[i].key, row[i].value);
        int status = rig_convert(
            &(ConvertRequest){.source.path = "file", .out = "new", .layout = "separate"});
        ck_assert_msg(status == WEFT_INPUT, "%zu: %d: %s", i, status, error_message());
        ck_assert(says(row[i].text) && nothing_is_left());
        unlink(rig_path("file"));
    }
    rig_end();
}
END_TEST

int main(void) {
    return run_suite("foreign", TESTS(nothing_is_guessed, every_layout_is_read_as_declared,
                                      what_isnt_as_declared_is_refused_by_name,
                                      files_that_are_cut_or_no_hdf5_are_refused,
                                      ranks_whose_biases_of_down_differ_are_refused,
                                      shapes_betray_a_transposed_store_unless_it_is_square,
                                      attributes_are_checked_like_any_input));
}
