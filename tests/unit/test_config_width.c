/* Rules for d_ff with their published numbers, what a resolved config says, and biases said in
 * several ways. */
#include "base/error.h"
#include "config/options.h"
#include "config/width.h"
#include "support/configs.h"
#include "support/support.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void assert_message(const char *part) {
    ck_assert_msg(strstr(error_message(), part), "\"%s\" lacks \"%s\"", error_message(), part);
}

/* llama: Meta's released widths; 4096 of Llama 2 7B, 8192 of Llama 3.2 1B, 14336 of Llama 3 8B,
 * 1536 of SmolLM 135M. floor: int(8d/3). match: arithmetic on the formula in width.h. */
START_TEST(published_widths) {
    static const struct {
        const char *set[8];
        int64_t d_ff;
        double exact;
    } rows[] = {
        {{"model.d_model=4096", "ffn.width=llama"}, 11008, 32768.0 / 3},
        {{"model.d_model=4096", "ffn.width=llama", "ffn.width_multiplier=1.3",
          "ffn.width_multiple_of=1024"},
         14336,
         1.3 * 32768 / 3},
        {{"model.d_model=2048", "ffn.width=llama", "ffn.width_multiplier=1.5"}, 8192, 8192},
        {{"model.d_model=576", "ffn.width=llama"}, 1536, 1536},
        {{"model.d_model=576", "ffn.width=llama", "ffn.width_multiple_of=1"}, 1536, 1536},
        /* floor twice: 8 * 16 / 3 = 42, 1.2 * 42 = 50.4 */
        {{"model.d_model=16", "ffn.width=llama", "ffn.width_multiplier=1.2",
          "ffn.width_multiple_of=1"},
         50,
         51.2},
        {{"model.d_model=128", "ffn.width=floor"}, 341, 1024.0 / 3},
        {{"model.d_model=2", "ffn.width=floor"}, 5, 16.0 / 3},
        {{"model.d_model=4096", "ffn.width=match", "ffn.match_d_ff=16384"}, 10923, 32768.0 / 3},
        {{"model.d_model=4096", "ffn.width=match"}, 10923, 32768.0 / 3},
        {{"model.d_model=4096", "ffn.width=match", "ffn.match_d_ff=16384", "ffn.match_bias=true",
          "ffn.bias=true"},
         10922,
         10922.0 + 2732.0 / 12290},
        {{"model.d_model=4096", "ffn.width=match", "ffn.match_d_ff=16384", "ffn.match_bias=true"},
         10924,
         10924.0 + 1.0 / 3},
        {{"model.d_model=4096", "ffn.width=match", "ffn.match_d_ff=16384", "ffn.down_bias=true"},
         10922,
         (134217728.0 - 4096) / 12288},
        {{"model.d_model=3", "ffn.width=match", "ffn.match_d_ff=3"}, 2, 2},
        {{"model.d_model=2", "ffn.width=match", "ffn.match_d_ff=3"}, 2, 2},
        {{"model.d_model=6", "ffn.width=match", "ffn.match_d_ff=1", "ffn.bias=true"}, 1, 0.3},
        {{"ffn.d_ff=1000"}, 1000, 1000},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Config config = config_with(rows[i].set);
        int64_t d_ff = 0;
        double exact = 0;
        int status = width_of(&config, &d_ff, &exact);
        if (rows[i].exact < 0.5) {
            ck_assert_int_eq(status, WEFT_USAGE);
            continue;
        }
        ck_assert_msg(status == 0, "row %zu: %s", i, error_message());
        ck_assert_msg(d_ff == rows[i].d_ff, "row %zu: %" PRId64, i, d_ff);
        ck_assert_double_eq_tol(exact, rows[i].exact, 1e-9 * rows[i].exact);
        ck_assert_int_eq(config_resolve(&config), 0);
        ck_assert_int_eq(config.ffn.d_ff, rows[i].d_ff);
    }
}
END_TEST

START_TEST(widths_as_printed) {
    static const struct {
        const char *set[6], *text;
    } rows[] = {
        {{"model.d_model=4096", "ffn.width=llama"},
         "ffn.width = llama: 11008 channels (10922.667 unrounded; up to a multiple of 256)"},
        {{"model.d_model=4096", "ffn.width=llama", "ffn.width_multiplier=1.3",
          "ffn.width_multiple_of=1024"},
         "ffn.width = llama: 14336 channels (14199.467 unrounded; times 1.3, up to a multiple of "
         "1024)"},
        {{"model.d_model=128", "ffn.width=floor"},
         "ffn.width = floor: 341 channels (341.333 unrounded; 8/3 of 128, down)"},
        {{"model.d_model=4096", "ffn.width=match"},
         "ffn.width = match: 10923 channels (10922.667 unrounded; without biases, the parameters "
         "of a dense 16384 without biases)"},
        {{"model.d_model=4096", "ffn.width=match", "ffn.match_bias=true", "ffn.bias=true"},
         "ffn.width = match: 10922 channels (10922.222 unrounded; with biases, the parameters of "
         "a dense 16384 with biases)"},
        {{"model.d_model=4096", "ffn.width=match", "ffn.match_bias=true"},
         "ffn.width = match: 10924 channels (10924.333 unrounded; without biases, the parameters "
         "of a dense 16384 with biases)"},
        {{"ffn.d_ff=77"}, "ffn.width = explicit: 77 channels"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Config config = config_with(rows[i].set);
        char text[256];
        ck_assert_msg(config_resolve(&config) == 0, "%s", error_message());
        width_describe(&config, text, sizeof text);
        ck_assert_str_eq(text, rows[i].text);
    }
}
END_TEST

START_TEST(rules_are_refused_where_they_have_no_meaning) {
    static const struct {
        const char *set[6], *message;
    } rows[] = {
        {{"ffn.kind=dense", "ffn.width=match"},
         "ffn.width = match: it gives a kind with a gate the parameters of a dense FFN; ffn.kind = "
         "dense has no gate"},
        {{"model.d_model=2147483647", "ffn.width=floor"}, "ffn.width = floor gives no width"},
        {{"model.d_model=2147483647", "ffn.width=match"}, "ffn.width = match gives no width"},
        {{"model.d_model=2147483647", "ffn.width=match", "ffn.match_d_ff=2147483647"}, NULL},
        {{"model.d_model=2147483647", "ffn.width=llama", "ffn.width_multiplier=1000",
          "ffn.width_multiple_of=2147483647"},
         "ffn.width = llama gives no width between 1 and 2147483647 for model.d_model = "
         "2147483647"},
        {{"model.d_model=256", "ffn.width=llama", "ffn.width_multiple_of=2147483647"}, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Config config = config_with(rows[i].set);
        int status = config_resolve(&config);
        ck_assert_msg(status == (rows[i].message ? WEFT_USAGE : 0), "row %zu: %s", i,
                      error_message());
        if (!rows[i].message) continue;
        assert_message(rows[i].message);
        ck_assert(!config.ffn.width_resolved);
    }
}
END_TEST

/* The number stays, whatever becomes of the keys that it came from. */
START_TEST(a_width_is_resolved_once) {
    static const char *const set[] = {"model.d_model=4096", "ffn.width=llama", NULL};
    Config config = config_with(set), again;
    ck_assert_int_eq(config_resolve(&config), 0);
    ck_assert(config.ffn.width_resolved);
    char *text = config_format(&config), line[256];
    config_defaults(&again);
    ck_assert_msg(!config_read_text(&again, text, "resolved"), "%s", error_message());
    free(text);
    again.ffn.width_multiple_of = 1024;
    again.ffn.width_multiplier = 1.3;
    ck_assert_int_eq(config_resolve(&again), 0);
    ck_assert_int_eq(again.ffn.d_ff, 11008);
    width_describe(&again, line, sizeof line);
    ck_assert_ptr_nonnull(strstr(line, "11008 channels as resolved before"));
}
END_TEST

/* Of a file that has both, neither is taken; what --set says takes the other's place. */
START_TEST(a_number_and_a_rule_exclude_each_other) {
    Config config;
    static const char *const rows[][2] = {
        {"[ffn]\nd_ff = 100\nwidth = llama\n", "ffn.d_ff = 100 and ffn.width = llama: both say"},
        {"[ffn]\nwidth = match\nd_ff = 100\n", "ffn.d_ff = 100 and ffn.width = match: both say"},
        {"[ffn]\nd_ff = 682\nwidth = floor\n", "ffn.d_ff = 682 and ffn.width = floor: both say"},
        {"[ffn]\nwidth = floor\nwidth_resolved = true\n",
         "ffn.width_resolved = true without ffn.d_ff"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        config_defaults(&config);
        ck_assert_int_eq(config_read_text(&config, rows[i][0], "a file"), 0);
        ck_assert_int_eq(config_resolve(&config), WEFT_USAGE);
        assert_message(rows[i][1]);
    }
    config_defaults(&config);
    ck_assert_int_eq(config_resolve(&config), 0);
    ck_assert_int_eq(config.ffn.d_ff, 682);
    config = config_with((const char *const[]){"ffn.d_ff=1000", "ffn.width=floor", NULL});
    ck_assert_int_eq(config_resolve(&config), 0);
    ck_assert_int_eq(config.ffn.d_ff, 682);
    ck_assert_int_eq(config_set(&config, "ffn.width=llama"), 0);
    ck_assert_int_eq(config_resolve(&config), 0);
    ck_assert_int_eq(config.ffn.d_ff, 768);
    ck_assert_int_eq(config_set(&config, "ffn.d_ff=77"), 0);
    ck_assert_int_eq(config_resolve(&config), 0);
    ck_assert_int_eq(config.ffn.d_ff, 77);
    ck_assert_str_eq(config.ffn.width, "explicit");
}
END_TEST

START_TEST(keys_of_another_rule_are_refused) {
    static const char *const rows[][2] = {{"ffn.width_multiplier=1.3", NULL},
                                          {"ffn.width=floor", "ffn.width_multiple_of=64"},
                                          {"ffn.width=llama", "ffn.match_d_ff=100"},
                                          {"ffn.width=floor", "ffn.match_bias=true"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Config config = config_with((const char *const[]){rows[i][0], rows[i][1], NULL});
        ck_assert_int_eq(config_set(&config, "run.dir=runs/a"), 0);
        ck_assert_int_eq(config_set(&config, "data.train=a.txt"), 0);
        ck_assert_int_eq(config_resolve(&config), 0);
        ck_assert_int_eq(config_check(&config), WEFT_USAGE);
        assert_message("belongs to ffn.width = ");
    }
}
END_TEST

/* ---- biases ---- */

static json_t *function_of(Config *config) {
    ck_assert_msg(!config_resolve(config), "%s", error_message());
    return config_function(config, 1);
}

START_TEST(biases_said_in_several_ways_are_one_function) {
    static const struct {
        const char *one[6], *other[6];
        bool equal;
    } rows[] = {
        {{"ffn.bias=true"}, {"ffn.gate_bias=true", "ffn.up_bias=true", "ffn.down_bias=true"}, true},
        {{"ffn.bias=true", "ffn.up_bias=false"},
         {"ffn.gate_bias=true", "ffn.down_bias=true"},
         true},
        {{"ffn.bias=true", "ffn.gate_bias=true"}, {"ffn.bias=true"}, true},
        {{"ffn.bias=true", "ffn.gate_bias=false", "ffn.up_bias=false", "ffn.down_bias=false"},
         {"ffn.bias=false"},
         true},
        {{"ffn.up_bias=false"}, {"ffn.bias=false"}, true},
        {{"ffn.kind=dense", "ffn.up_bias=true", "ffn.down_bias=true"},
         {"ffn.kind=dense", "ffn.bias=true"},
         true},
        {{"ffn.kind=dense", "ffn.bias=true", "ffn.gate_bias=false"},
         {"ffn.kind=dense", "ffn.bias=true"},
         true},
        {{"ffn.down_bias=true"}, {"ffn.up_bias=true"}, false},
        {{"ffn.down_bias=true"}, {"ffn.bias=true"}, false},
        {{"ffn.bias=true"}, {"ffn.bias=false"}, false},
        {{"ffn.kind=dense", "ffn.up_bias=true"}, {"ffn.kind=dense", "ffn.bias=true"}, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Config one = config_with(rows[i].one), other = config_with(rows[i].other);
        FfnBiases before = config_ffn_biases(&one);
        json_t *first = function_of(&one), *second = function_of(&other);
        FfnBiases after = config_ffn_biases(&one);
        ck_assert_msg(json_equal(first, second) == rows[i].equal, "row %zu", i);
        ck_assert(before.gate == after.gate && before.up == after.up && before.down == after.down);
        json_decref(first);
        json_decref(second);
    }
}
END_TEST

START_TEST(a_gate_that_is_not_there_has_no_bias) {
    Config config =
        config_with((const char *const[]){"ffn.kind=dense", "ffn.gate_bias=true", NULL});
    ck_assert_int_eq(config_resolve(&config), WEFT_USAGE);
    assert_message("ffn.gate_bias = true: ffn.kind = dense has no gate");
}
END_TEST

int main(void) {
    return run_suite("config-width",
                     TESTS(published_widths, widths_as_printed,
                           rules_are_refused_where_they_have_no_meaning, a_width_is_resolved_once,
                           a_number_and_a_rule_exclude_each_other, keys_of_another_rule_are_refused,
                           biases_said_in_several_ways_are_one_function,
                           a_gate_that_is_not_there_has_no_bias));
}
