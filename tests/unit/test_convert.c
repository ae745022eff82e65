/* weft convert among its own layouts: every one to every other and back, the proofs that stand
 * before a file appears, and what they see: branches and ranks that are cut or ordered wrongly. */
#include "base/error.h"
#include "run/place.h"
#include "support/checkpoint_pattern.h"
#include "support/packing_rig.h"
#include "support/support.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define SMALL         "model.layers=1", "grid.data=1"
#define TWO           "model.layers=2", "grid.data=1"
#define LAYER1        "model.layers.1.mlp."

static bool says(const char *text) {
    if (strstr(error_message(), text)) return true;
    fprintf(stderr, "\"%s\" doesn't say \"%s\"\n", error_message(), text);
    return false;
}

static bool exists(const char *name) { return files_exists(rig_path(name)); }

/* Neither `new` nor anything aside for it. */
static bool nothing_is_left(void) {
    return !exists("new") && glob(rig_path(".tmp-new*"), 0, NULL, &(glob_t){0}) == GLOB_NOMATCH;
}

/* ---- there and back ---- */

typedef struct {
    const char *const *settings;
    bool dense;
    int shards, ranks;
} Network;

/* Uneven widths, single-channel shards, biases on any subset, all kinds. */
static const Network networks[] = {
    {SETTINGS(SMALL, "ffn.bias=true"), false, 4, 3},
    {SETTINGS(SMALL, "ffn.d_ff=31", "ffn.bias=false", "ffn.gate_bias=true", "grid.tensor=7"), false,
     7, 2},
    {SETTINGS(SMALL, "ffn.d_ff=5", "ffn.gate_bias=false", "ffn.kind=dual", "ffn.activation=relu"),
     false, 5, 5},
    {SETTINGS(SMALL, "ffn.d_ff=9", "ffn.bias=false", "ffn.down_bias=true",
              "ffn.activation=identity"),
     false, 2, 4},
    {SETTINGS(SMALL, "ffn.d_ff=13", "ffn.down_bias=false", "ffn.gate_clamp=7", "ffn.linear_clamp=7",
              "ffn.linear_offset=1", "ffn.swish_beta=1.702"),
     false, 3, 3},
    {SETTINGS(SMALL, "ffn.kind=dense", "ffn.d_ff=17", "ffn.activation=gelu_tanh"), true, 0, 3},
    {SETTINGS(SMALL, "ffn.kind=dense", "ffn.d_ff=17", "ffn.up_bias=false", "ffn.activation=gelu"),
     true, 0, 17},
};
enum { NETWORKS = sizeof networks / sizeof networks[0] };

static int parts_of(const Network *network, const PackingLayout *layout) {
    return layout->cut == PACKING_SHARDS ? network->shards : network->ranks;
}

static bool can_hold(const Network *network, const PackingLayout *layout) {
    return !network->dense || layout->order == PACKING_APART || layout->cut == PACKING_RANKS;
}

/* From the checkpoint to each layout; from each to every other (`pairs`), or at least back to the
 * first. It must be the file that the checkpoint gave. */
static void check_network(const Network *network, bool pairs) {
    rig_checkpoint("run", network->settings);
    for (const PackingLayout *layout = packing_layouts; layout->name; layout++)
        if (can_hold(network, layout))
            rig_convert_to("run", layout->name, layout->name, parts_of(network, layout));
    for (const PackingLayout *from = packing_layouts; from->name; from++) {
        for (const PackingLayout *to = packing_layouts; to->name; to++) {
            if (from == to || !can_hold(network, from) || !can_hold(network, to)) continue;
            if (!pairs && to > packing_layouts) break;
            rig_convert_to(from->name, "again", to->name, parts_of(network, to));
            ck_assert_msg(same_bytes(rig_path("again"), rig_path(to->name)), "%s from %s", to->name,
                          from->name);
            unlink(rig_path("again"));
        }
    }
}

START_TEST(every_layout_becomes_every_other) {
    for (int i = 0; i < NETWORKS; i++) {
        rig_begin();
        check_network(&networks[i], i == 0);
        rig_end();
    }
}
END_TEST

START_TEST(layouts_differ) {
    rig_begin();
    rig_checkpoint("run", networks[0].settings);
    for (const PackingLayout *layout = packing_layouts; layout->name; layout++)
        rig_convert_to("run", layout->name, layout->name, 3);
    for (const PackingLayout *a = packing_layouts; a->name; a++)
        for (const PackingLayout *b = a + 1; b->name; b++)
            ck_assert(!same_bytes(rig_path(a->name), rig_path(b->name)));
    rig_end();
}
END_TEST

START_TEST(other_numbers_of_parts_and_other_names) {
    rig_begin();
    rig_checkpoint("run", SETTINGS("ffn.d_ff=31"));
    rig_convert_to("run", "three", "packed_ranks", 3);
    rig_convert_to("three", "five", "packed_ranks", 5);
    rig_convert_to("five", "shards", "packed_shard", 31);
    rig_convert_to("shards", "again", "packed_ranks", 3);
    ck_assert(same_bytes(rig_path("three"), rig_path("again")));
    ck_assert(!same_bytes(rig_path("three"), rig_path("five")));
    rig_convert_to("run", "hf", "separate", 0);
    ck_assert_int_eq(rig_convert(&(ConvertRequest){
                         {.path = "hf"}, .out = "meta", .layout = "separate", .names = "meta"}),
                     0);
    hid_t file = rig_edit("meta");
    hsize_t dims[2];
    free(rig_take(file, "layers.2.feed_forward.w2.weight", dims));
    ck_assert(dims[0] == 16 && dims[1] == 31);
    H5Fclose(file);
    rig_convert_to("meta", "back", "separate", 0);
    ck_assert(same_bytes(rig_path("hf"), rig_path("back")));
    rig_end();
}
END_TEST

START_TEST(blocks_of_any_size_make_the_same_file) {
    static const int64_t sizes[] = {1, 37};
    rig_begin();
    rig_checkpoint("run", SETTINGS("model.layers=1"));
    rig_convert_to("run", "file", "separate", 0);
    for (const PackingLayout *layout = packing_layouts; layout->name; layout++) {
        ConvertRequest request = {.source.path = "file", .layout = layout->name};
        if (layout->cut == PACKING_RANKS) request.ranks = 3;
        if (layout->cut == PACKING_SHARDS) request.shards = 4;
        request.out = "whole";
        ck_assert_int_eq(rig_convert(&request), 0);
        request.out = "blocks";
        for (int i = 0; i < 2; i++) {
            request.elements = sizes[i];
            ck_assert_int_eq(rig_convert(&request), 0);
            ck_assert(same_bytes(rig_path("whole"), rig_path("blocks")));
            unlink(rig_path("blocks"));
        }
        unlink(rig_path("whole"));
    }
    rig_end();
}
END_TEST

/* ---- the known row ---- */

/* Exchanges the halves of a packed dataset. */
static void swap_halves(const char *name, const char *dataset, int rank) {
    hsize_t dims[2];
    hid_t file = rig_edit(name);
    real *data = rig_take(file, dataset, dims);
    size_t half = dims[0] / 2 * dims[1];
    real *swapped = malloc(2 * half * sizeof *swapped);
    memcpy(swapped, data + half, half * sizeof *data);
    memcpy(swapped + half, data, half * sizeof *data);
    rig_put(file, dataset, rank, dims, swapped);
    free(swapped);
    free(data);
    H5Fclose(file);
}

/* Networks in which a swap changes the result, and those in which it changes nothing. */
static const struct {
    const char *const *settings;
    bool biases, symmetric;
} orders[] = {
    {SETTINGS(TWO, "ffn.bias=true"), true, false},
    {SETTINGS(TWO, "ffn.bias=false", "ffn.activation=gelu"), false, false},
    {SETTINGS(TWO, "ffn.bias=false", "ffn.activation=identity", "ffn.linear_offset=1"), false,
     false},
    {SETTINGS(TWO, "ffn.bias=true", "ffn.kind=dual", "ffn.activation=relu"), true, true},
    {SETTINGS(TWO, "ffn.bias=false", "ffn.activation=identity"), false, true},
};
enum { ORDERS = sizeof orders / sizeof orders[0] };

START_TEST(branches_in_the_wrong_order_are_seen) {
    static const char swiglu[] = "through a SwiGLU of the same weights: ";
    for (int i = 0; i < ORDERS; i++) {
        rig_begin();
        rig_checkpoint("run", orders[i].settings);
        rig_convert_to("run", "packed", "packed_gate_up", 0);
        ck_assert_int_eq(rig_compare("run", "packed"), 0);
        swap_halves("packed", LAYER1 "gate_up_proj.weight", 2);
        if (orders[i].biases) swap_halves("packed", LAYER1 "gate_up_proj.bias", 1);
        ck_assert_int_eq(rig_compare("run", "packed"), WEFT_CHECK);
        ck_assert(says("the FFN of layer 1 takes a known row to"));
        ck_assert_int_eq(!strncmp(error_message(), swiglu, strlen(swiglu)), orders[i].symmetric);
        rig_end();
    }
}
END_TEST

/* [gate; up] of the whole layer, cut in the middle as if it were one matrix: the first rank has
 * nothing but gate, the second nothing but up, and each takes its own first half for its gate. */
static void cut_in_halves(const char *packed, const char *ranks, const char *dataset, int rank) {
    hsize_t dims[2], of_rank[2];
    char name[2][128];
    hid_t from = rig_edit(packed), to = rig_edit(ranks);
    real *data = rig_take(from, dataset, dims);
    for (int r = 0; r < 2; r++) {
        snprintf(name[r], sizeof name[r], "rank-%03d/%s", r, dataset);
        free(rig_take(to, name[r], of_rank));
        ck_assert(of_rank[0] == dims[0] / 2 && of_rank[1] == dims[1]);
        rig_put(to, name[r], rank, of_rank, data + (size_t)r * of_rank[0] * of_rank[1]);
    }
    free(data);
    H5Fclose(from);
    H5Fclose(to);
}

START_TEST(halves_of_a_packed_matrix_given_to_two_ranks_are_seen) {
    rig_begin();
    rig_checkpoint("run", SETTINGS("ffn.d_ff=12"));
    rig_convert_to("run", "packed", "packed_gate_up", 0);
    rig_convert_to("run", "ranks", "packed_ranks", 2);
    ck_assert_int_eq(rig_compare("packed", "ranks"), 0);
    cut_in_halves("packed", "ranks", LAYER1 "gate_up_proj.weight", 2);
    ck_assert_int_eq(rig_compare("packed", "ranks"), WEFT_CHECK); /* its biases are still right */
    ck_assert(says("the FFN of layer 1 takes a known row to"));
    cut_in_halves("packed", "ranks", LAYER1 "gate_up_proj.bias", 1);
    ck_assert_int_eq(rig_compare("run", "ranks"), WEFT_CHECK);
    ck_assert(says("the FFN of layer 1 takes a known row to"));

    /* nothing is made of such a file where it must agree with the run */
    ConvertRequest request = {
        .source.path = "ranks", .out = "new", .layout = "separate", .against = "run"};
    ck_assert_int_eq(rig_convert(&request), WEFT_CHECK);
    ck_assert(says("the FFN of layer 1 takes a known row to"));
    ck_assert(nothing_is_left());
    rig_end();
}
END_TEST

/* A file of [up; gate] which says, or of which is said, that it is [gate; up]. */
START_TEST(a_wrong_declaration_is_seen_against_the_run) {
    static const char *const set[] = {"ffn.kind=gated", "ffn.activation=silu", "model.d_model=16",
                                      "ffn.d_ff=12",    "model.layers=3",      "ffn.bias=true"};
    ConvertRequest request = {{.path = "packed", .layout = "packed_gate_up", .set = set, .sets = 6},
                              .out = "new",
                              .layout = "separate",
                              .against = "run"};
    rig_begin();
    rig_checkpoint("run", SETTINGS("ffn.bias=true"));
    rig_convert_to("run", "packed", "packed_up_gate", 0);
    ck_assert_int_eq(rig_convert(&request), WEFT_INPUT);
    ck_assert(says("packed: its attribute layout says packed_up_gate, but --from says "
                   "packed_gate_up"));
    rig_make_foreign("packed");
    ck_assert_int_eq(rig_convert(&request), WEFT_CHECK);
    ck_assert(says("the FFN of layer 0 takes a known row to"));
    ck_assert(nothing_is_left());
    request.source.layout = "packed_up_gate";
    ck_assert_msg(rig_convert(&request) == 0, "%s", error_message());
    rig_convert_to("run", "separate", "separate", 0);
    ck_assert(same_bytes(rig_path("new"), rig_path("separate")));
    rig_end();
}
END_TEST

/* ---- refusals ---- */

START_TEST(impossible_requests_are_refused_by_name) {
    static const struct {
        const char *from, *out, *from_layout, *layout, *names;
        int shards, ranks, status;
        const char *set, *text;
    } row[] = {
        {"run", "file", 0, "separate", 0, 0, 0, WEFT_USAGE, 0, "file: exists already"},
        {"file", "file", 0, "transposed", 0, 0, 0, WEFT_USAGE, 0, "file: exists already"},
        {"run", "run", 0, "separate", 0, 0, 0, WEFT_USAGE, 0, "run: exists already"},
        {"run", "run/step-00000003/new", 0, "separate", 0, 0, 0, WEFT_USAGE, 0, "would spoil"},
        {"run", "no/new", 0, "separate", 0, 0, 0, WEFT_USAGE, 0, "there is no directory"},
        {"run", "new", 0, "packed", 0, 0, 0, WEFT_USAGE, 0, "--to packed: there is no such layout"},
        {"run", "new", 0, "separate", "w1", 0, 0, WEFT_USAGE, 0, "--names w1: there are no such"},
        {"run", "new", 0, "separate", "gpt2", 0, 0, WEFT_USAGE, 0, "names gpt2: there is none"},
        {"run", "new", 0, "packed_ranks", 0, 0, 0, WEFT_USAGE, 0, "--ranks N is needed"},
        {"file", "new", 0, "packed_shard", 0, 0, 0, WEFT_USAGE, 0, "--shards N is needed"},
        {"run", "new", 0, "packed_ranks", 0, 0, 13, WEFT_USAGE, 0, "13 parts of 12 channels"},
        {"run", "new", 0, "separate", 0, 3, 0, WEFT_USAGE, 0, "--shards 3: neither layout has"},
        {"run", "new", 0, "separate", 0, 0, 3, WEFT_USAGE, 0, "--ranks 3: neither layout has"},
        {"run", "new", "transposed", "separate", 0, 0, 0, WEFT_INPUT, 0,
         "packing says separate, but --from says transposed"},
        {"file", "new", "transposed", "separate", 0, 0, 0, WEFT_INPUT, 0,
         "layout says separate, but --from says transposed"},
        {"ranks", "new", 0, "separate", 0, 0, 2, WEFT_INPUT, 0, "parts says 3, but --ranks says 2"},
        {"file", "new", 0, "transposed", 0, 0, 0, WEFT_INPUT, "ffn.activation=relu",
         "ffn.activation: "},
        {"run", "new", 0, "transposed", 0, 0, 0, WEFT_INPUT, "ffn.bias=false", "ffn.gate_bias: "},
        {"run", "new", 0, "transposed", 0, 0, 0, WEFT_INPUT, "ffn.d_ff=13", "ffn.d_ff: "},
        {"run", "new", 0, "transposed", 0, 0, 0, WEFT_USAGE, "optim.lr=1",
         "--set optim.lr=1: says nothing of the weights"},
        {"none", "new", 0, "separate", 0, 0, 0, WEFT_INPUT, 0, "none"},
        {"empty", "new", 0, "separate", 0, 0, 0, WEFT_INPUT, 0, "there is no checkpoint in it"},
    };
    rig_begin();
    rig_checkpoint("run", SETTINGS(SMALL, "ffn.bias=true"));
    rig_convert_to("run", "file", "separate", 0);
    rig_convert_to("run", "ranks", "packed_ranks", 3);
    ck_assert_int_eq(files_make_directories(rig_path("empty")), 0);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ConvertRequest request = {{.path = row[i].from,
                                   .layout = row[i].from_layout,
                                   .set = &row[i].set,
                                   .sets = row[i].set != NULL},
                                  .out = row[i].out,
                                  .layout = row[i].layout,
                                  .names = row[i].names,
                                  .shards = row[i].shards,
                                  .ranks = row[i].ranks};
        int status = rig_convert(&request);
        ck_assert_msg(status == row[i].status, "%zu: %d: %s", i, status, error_message());
        ck_assert_msg(says(row[i].text), "%zu", i);
        ck_assert(nothing_is_left());
    }
    rig_end();
}
END_TEST

START_TEST(dense_networks_have_nothing_to_pack) {
    rig_begin();
    rig_checkpoint("run", SETTINGS(SMALL, "ffn.kind=dense"));
    for (const PackingLayout *layout = packing_layouts; layout->name; layout++) {
        ConvertRequest request = {.source.path = "run", .out = "new", .layout = layout->name};
        if (can_hold(&(Network){.dense = true}, layout)) continue;
        ck_assert_int_eq(rig_convert(&request), WEFT_USAGE);
        ck_assert(says("a dense FFN has no gate to pack with its up") && says(layout->name));
    }
    rig_end();
}
END_TEST

/* ---- the place of what is made ---- */

#define ASIDE ".tmp-new-1-0123456789abcdef"
#define MARK  "weft makes something here: process 1 on nowhere"

static void put(const char *name, const char *text) {
    ck_assert_int_eq(files_write(rig_path(name), text, strlen(text)), 0);
}

static bool holds(const char *name, const char *text) {
    char *bytes;
    size_t size;
    if (files_read(rig_path(name), 1000, &bytes, &size)) return false;
    bool same = !strcmp(bytes, text);
    free(bytes);
    return same;
}

/* A directory with a file in it, and a claim that says `owner` unless that is NULL. */
static void make_directory(const char *name, const char *owner) {
    char path[FILES_PATH];
    ck_assert_int_eq(files_make_directories(rig_path(name)), 0);
    snprintf(path, sizeof path, "%s/precious", name);
    put(path, "mine");
    snprintf(path, sizeof path, "%s/.claim", name);
    if (owner) put(path, owner);
}

static int convert_to_new(const char *from) {
    return rig_convert(
        &(ConvertRequest){.source.path = from, .out = "new", .layout = "packed_gate_up"});
}

START_TEST(only_what_a_dead_process_has_left_is_cleared) {
    rig_begin();
    rig_checkpoint("run", SETTINGS(SMALL));
    make_directory(".tmp-new", "process 1 on nowhere");
    make_directory(".tmp-new-1-0123456789abcdeg", MARK);
    make_directory(".tmp-new-1-0123456789abcde0", NULL);
    make_directory(".tmp-new-1-0123456789abcde1", "process 1 on nowhere");
    make_directory("other", MARK);
    ck_assert_int_eq(symlink("other", rig_path(".tmp-new-1-0123456789abcde2")), 0);
    make_directory(ASIDE, MARK);
    ck_assert_msg(convert_to_new("run") == 0, "%s", error_message());
    ck_assert(exists("new") && !exists(ASIDE));
    ck_assert(holds(".tmp-new/precious", "mine") && exists(".tmp-new/.claim"));
    ck_assert(holds(".tmp-new-1-0123456789abcdeg/precious", "mine"));
    ck_assert(holds(".tmp-new-1-0123456789abcde0/precious", "mine"));
    ck_assert(holds(".tmp-new-1-0123456789abcde1/precious", "mine"));
    ck_assert(holds("other/precious", "mine") && exists(".tmp-new-1-0123456789abcde2"));
    rig_end();
}
END_TEST

START_TEST(a_living_process_is_left_alone) {
    rig_begin();
    rig_checkpoint("run", SETTINGS(SMALL));
    make_directory(ASIDE, MARK);
    FILE *claim = fopen(rig_path(ASIDE "/.claim"), "r+");
    ck_assert(claim && !flock(fileno(claim), LOCK_EX));
    ck_assert_int_eq(convert_to_new("run"), WEFT_USAGE);
    ck_assert(says("--out ") && says("/new: another process is making it (process 1 on nowhere)"));
    ck_assert(!exists("new") && holds(ASIDE "/precious", "mine"));
    fclose(claim);
    ck_assert_int_eq(convert_to_new("run"), 0);
    ck_assert(!exists(ASIDE));
    rig_end();
}
END_TEST

START_TEST(a_source_that_would_be_cleared_is_refused) {
    rig_begin();
    rig_checkpoint("run", SETTINGS(SMALL));
    make_directory(ASIDE, MARK);
    rig_convert_to("run", ASIDE "/file", "separate", 0);
    ck_assert_int_eq(symlink(ASIDE "/file", rig_path("link")), 0);
    ck_assert_int_eq(convert_to_new(ASIDE "/file"), WEFT_USAGE);
    ck_assert(says(ASIDE "/file: lies in what an unfinished run") && says("move it to another"));
    ck_assert_int_eq(convert_to_new("link"), WEFT_USAGE);
    ck_assert_int_eq(
        rig_convert(&(ConvertRequest){
            .source.path = "run", .out = "new", .layout = "separate", .against = ASIDE "/file"}),
        WEFT_USAGE);
    ck_assert(!exists("new") && exists(ASIDE "/file") && holds(ASIDE "/precious", "mine"));
    rig_end();
}
END_TEST

static void begin_place(Place *place, bool directory) {
    ck_assert_int_eq(place_choose(place, rig_path("new")), 0);
    ck_assert_int_eq(place_begin(place), 0);
    ck_assert_int_eq(directory ? mkdir(place->made, 0777) : files_write(place->made, "made", 4), 0);
}

START_TEST(a_place_is_claimed_until_it_is_left) {
    Place first = {0}, second = {0};
    for (int directory = 0; directory < 2; directory++) {
        rig_begin();
        begin_place(&first, directory);
        ck_assert_int_eq(place_choose(&second, rig_path("new")), 0);
        ck_assert_int_eq(place_begin(&second), WEFT_USAGE);
        place_leave(&second);
        ck_assert_int_eq(place_publish(&first), 0);
        ck_assert(exists("new"));
        ck_assert_int_eq(unlink(rig_path("new")) && rmdir(rig_path("new")), 0);
        ck_assert_int_eq(place_choose(&second, rig_path("new")), 0);
        ck_assert_int_eq(place_begin(&second), WEFT_USAGE); /* still */
        place_leave(&first);
        ck_assert(nothing_is_left());
        begin_place(&second, directory);
        place_leave(&second); /* after a failure, say */
        ck_assert(nothing_is_left());
        rig_end();
    }
}
END_TEST

START_TEST(what_has_appeared_meanwhile_is_not_replaced) {
    Place place = {0};
    for (int directory = 0; directory < 2; directory++) {
        rig_begin();
        begin_place(&place, directory);
        put("new", "another's");
        ck_assert_int_eq(place_publish(&place), WEFT_USAGE);
        ck_assert(says("/new: exists already; nothing is replaced"));
        ck_assert(holds("new", "another's"));
        unlink(rig_path("new"));
        ck_assert_int_eq(symlink("nowhere", rig_path("new")), 0);
        ck_assert_int_eq(place_publish(&place), WEFT_USAGE);
        unlink(rig_path("new"));
        ck_assert_int_eq(mkdir(rig_path("new"), 0777), 0);
        ck_assert_int_eq(place_publish(&place), WEFT_USAGE);
        place_leave(&place);
        ck_assert(says("exists already"));
        ck_assert_int_eq(rmdir(rig_path("new")), 0);
        ck_assert(nothing_is_left());
        rig_end();
    }
}
END_TEST

int main(void) {
    return run_suite(
        "convert",
        TESTS(every_layout_becomes_every_other, layouts_differ,
              other_numbers_of_parts_and_other_names, blocks_of_any_size_make_the_same_file,
              branches_in_the_wrong_order_are_seen,
              halves_of_a_packed_matrix_given_to_two_ranks_are_seen,
              a_wrong_declaration_is_seen_against_the_run, impossible_requests_are_refused_by_name,
              dense_networks_have_nothing_to_pack, only_what_a_dead_process_has_left_is_cleared,
              a_living_process_is_left_alone, a_source_that_would_be_cleared_is_refused,
              a_place_is_claimed_until_it_is_left, what_has_appeared_meanwhile_is_not_replaced));
}
