/* The table of options: strict reading, exact writing, names, files, and what keys must agree on.
 */
#include "base/error.h"
#include "config/options.h"
#include "math/activation.h"
#include "nn/ffn.h"
#include "support/support.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONGEST_TEXT = CONFIG_TEXT - 1 };

static void assert_message(const char *part) {
    ck_assert_msg(strstr(error_message(), part), "\"%s\" lacks \"%s\"", error_message(), part);
}

static void set(Config *config, const char *assignment) {
    ck_assert_msg(!config_set(config, assignment), "%s", error_message());
}

/* A small config that config_check accepts. */
static Config sound_config(void) {
    Config config;
    config_defaults(&config);
    set(&config, "run.dir=runs/x");
    set(&config, "data.train=x.txt");
    return config;
}

static void assert_equal_configs(const Config *a, const Config *b) {
    for (int i = 0; i < OPTION_COUNT; i++)
        ck_assert_msg(option_equal(&options[i], a, b), "%s.%s differs", options[i].section,
                      options[i].key);
}

/* Reads a text as a file of its own, in memory. */
static int read_text(Config *config, const char *text, size_t size) {
    char path[64];
    int descriptor = memfd_create("weft-test", 0);
    ck_assert_int_eq(write(descriptor, text, size), (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    int status = config_read(config, path);
    close(descriptor);
    return status;
}

/* ---- the table ---- */

/* The one key whose default nobody may give: a rule decides where it isn't given. */
static bool is_absent_width(const Option *option) { return !strcmp(option->key, "d_ff"); }

START_TEST(every_default_is_allowed) {
    for (int i = 0; i < OPTION_COUNT; i++) {
        Config config;
        const Option *option = &options[i];
        ck_assert_ptr_nonnull(option->help);
        bool absent = is_absent_width(option);
        ck_assert_msg(absent == (option_parse(option, &config, option->initial) != 0), "%s: %s",
                      option->key, error_message());
        ck_assert_int_eq(option_find(option->section, option->key), i);
        ck_assert_uint_lt(strlen(option->section) + 1 + strlen(option->key), OPTION_NAME / 2);
        if (option->type == OPTION_TEXT)
            ck_assert_uint_lt(strlen(option->key) + strlen(" = ") + LONGEST_TEXT, 198);
    }
}
END_TEST

START_TEST(defaults_are_these) {
    Config config;
    config_defaults(&config);
    ck_assert_int_eq(config.run.seed, 1);
    ck_assert_str_eq(config.model.kind, "decoder");
    ck_assert_int_eq(config.model.context, 256);
    ck_assert(config.model.tie_embeddings);
    ck_assert(!config.ffn.bias);
    ck_assert_str_eq(config.grid.reduction, "exact");
    ck_assert_double_eq(config.optim.beta2, 0.95);
    ck_assert_double_eq(config.optim.eps, 1e-8);
    ck_assert_double_eq(config.data.held_out, 0.05);
    ck_assert_int_eq(config.checkpoint.keep, 3);
}
END_TEST

/* A choice has these names, up to a NULL, and no other. */
static void assert_choices(const char *section, const char *key, const char *const *names) {
    const Option *option = &options[option_find(section, key)];
    int words = 1;
    for (const char *bar = option->choices; (bar = strchr(bar, '|')); bar++) words++;
    for (; *names; names++, words--) {
        Config config = sound_config();
        ck_assert_msg(!option_parse(option, &config, *names), "%s", error_message());
    }
    ck_assert_int_eq(words, 0);
}

/* What the config may name is what there is. */
START_TEST(choices_are_what_is_implemented) {
    const char *name[32] = {NULL};
    for (int i = 0; activations[i].name; i++) name[i] = activations[i].name;
    assert_choices("ffn", "activation", name);
    memset(name, 0, sizeof name);
    for (int i = 0; ffn_kinds[i]; i++) name[i] = ffn_kinds[i]->name;
    assert_choices("ffn", "kind", name);
}
END_TEST

/* ---- values ---- */

static const struct {
    const char *assignment;
    bool allowed;
} values[] = {
    {"train.steps=1", true},
    {"train.steps=007", true},
    {"train.steps=2147483647", true},
    {"train.steps=2147483648", false},
    {"train.steps=0", false},
    {"train.steps=-1", false},
    {"train.steps=", false},
    {"train.steps=-", false},
    {"train.steps=+5", false},
    {"train.steps= 5", false},
    {"train.steps=5 ", false},
    {"train.steps=1e3", false},
    {"train.steps=5.0", false},
    {"train.steps=0x10", false},
    {"train.steps=5steps", false},
    {"train.steps=99999999999999999999", false},
    {"run.seed=0", true},
    {"run.seed=9223372036854775807", true},
    {"run.seed=9223372036854775808", false},
    {"run.seed=-1", false},
    {"grid.tensor=64", true},
    {"grid.tensor=65", false},
    {"model.layers=1023", true},
    {"model.layers=1024", false},
    {"optim.lr=1e-3", true},
    {"optim.lr=1E-3", true},
    {"optim.lr=.5", true},
    {"optim.lr=3", true},
    {"optim.lr=0", true},
    {"optim.lr=-0", true},
    {"optim.lr=1000.1", false},
    {"optim.lr=-1e-3", false},
    {"optim.lr=nan", false},
    {"optim.lr=inf", false},
    {"optim.lr=infinity", false},
    {"optim.lr=1e999", false},
    {"optim.lr=1e-999", false},
    {"optim.lr=0x1p-3", false},
    {"optim.lr=1e", false},
    {"optim.lr=1e-3x", false},
    {"optim.lr=1,5", false},
    {"optim.lr=1-3", false},
    {"optim.lr=+1", false},
    {"optim.lr= 1", false},
    {"optim.lr=", false},
    {"optim.beta1=0", true},
    {"optim.beta1=1", false},
    {"optim.eps=0", false},
    {"ffn.hidden_dropout=0.999", true},
    {"ffn.hidden_dropout=1", false},
    {"ffn.hidden_dropout=-0.1", false},
    {"ffn.bias=true", true},
    {"ffn.bias=false", true},
    {"ffn.bias=True", false},
    {"ffn.bias=1", false},
    {"ffn.bias=yes", false},
    {"ffn.bias=", false},
    {"ffn.kind=dense", true},
    {"ffn.kind=Dense", false},
    {"ffn.kind=den", false},
    {"ffn.kind=dense ", false},
    {"ffn.kind=gated | dense", false},
    {"ffn.kind=|", false},
    {"ffn.kind=", false},
    {"run.dir=a b/c#d;e", true},
    {"run.dir=\xc3\xa9t\xc3\xa9", true},
    {"run.dir=", true},
    {"run.dir=a ;b", false},
    {"run.dir=a #b", false},
    {"run.dir=;a", false},
    {"run.dir=#a", false},
    {"run.dir= a", false},
    {"run.dir=a ", false},
    {"run.dir=a\nb", false},
    {"run.dir=a\tb", false},
    {"run.dir=a\x7f", false},
    {"run.dir=\xe9t\xe9", false},
};

START_TEST(values_are_read_whole_or_refused) {
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        Config config = sound_config(), before = config;
        int status = config_set(&config, values[i].assignment);
        ck_assert_msg(status == (values[i].allowed ? 0 : WEFT_USAGE), "%s: %d %s",
                      values[i].assignment, status, error_message());
        if (values[i].allowed) continue;
        assert_equal_configs(&config, &before);
        assert_message("expected ");
    }
}
END_TEST

START_TEST(messages_say_what_is_allowed) {
    static const struct {
        const char *assignment, *message;
    } rows[] = {
        {"model.layers=0", "model.layers = 0: expected an integer from 1 to 1023"},
        {"ffn.output_dropout=1", "ffn.output_dropout = 1: expected a number in [0, 1)"},
        {"optim.eps=-1", "optim.eps = -1: expected a number in (0, 1]"},
        {"ffn.activation=swish", "ffn.activation = swish: expected silu | gelu | gelu_tanh | relu"},
        {"ffn.bias=maybe", "ffn.bias = maybe: expected true | false"},
        {"run.dir=\n", "expected a text of at most 183 bytes"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Config config = sound_config();
        ck_assert_int_eq(config_set(&config, rows[i].assignment), WEFT_USAGE);
        assert_message(rows[i].message);
    }
}
END_TEST

START_TEST(long_texts_are_refused_before_they_are_cut) {
    char text[4000] = "run.dir=";
    Config config = sound_config();
    memset(text + 8, 'x', sizeof text - 8);
    text[8 + LONGEST_TEXT] = '\0';
    set(&config, text);
    ck_assert_str_eq(config.run.dir, text + 8);
    text[8 + LONGEST_TEXT] = 'x';
    text[8 + LONGEST_TEXT + 1] = '\0';
    ck_assert_int_eq(config_set(&config, text), WEFT_USAGE);
    text[8 + LONGEST_TEXT + 1] = 'x';
    text[sizeof text - 1] = '\0';
    ck_assert_int_eq(config_set(&config, text), WEFT_USAGE);
    assert_message("...");
    text[3] = 'x'; /* no dot before the equals sign; and then a name of that length */
    ck_assert_int_eq(config_set(&config, text), WEFT_USAGE);
    text[7] = '.';
    text[sizeof text - 2] = '=';
    ck_assert_int_eq(config_set(&config, text), WEFT_USAGE);
    assert_message("no key is that long");
}
END_TEST

/* ---- names ---- */

START_TEST(unknown_keys_get_the_nearest) {
    static const struct {
        const char *assignment, *message;
    } rows[] = {
        {"model.d_modle=1", "unknown key model.d_modle; the nearest is model.d_model"},
        {"modle.d_model=1", "unknown key modle.d_model; the nearest is model.d_model"},
        {"optim.steps=1", "the nearest is train.steps"},
        {"train.lr=1", "the nearest is optim.lr"},
        {"optim.learning_rate=1", "unknown key optim.learning_rate; the nearest is optim."},
        {"ffn.dropout=1", "the nearest is ffn.hidden_dropout"},
        {"train.batch=1", "the nearest is train.global_batch"},
        {"grid.tensors=1", "the nearest is grid.tensor"},
        {"eval.evry=1", "the nearest is eval.every"},
        {"Run.dir=1", "the nearest is run.dir"},
        {"run.dir =1", "unknown key run.dir ; the nearest is run.dir"},
        {"run.=1", "the nearest is run.dir"},
        {".dir=1", "the nearest is run.dir"},
        {"run.dir.x=1", "unknown key run.dir.x; the nearest is run.dir"},
        {"steps=1", "--set steps=1: expected section.key=value"},
        {"train.steps", "--set train.steps: expected section.key=value"},
        {"=1.5", "expected section.key=value"},
        {"", "expected section.key=value"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Config config = sound_config();
        ck_assert_int_eq(config_set(&config, rows[i].assignment), WEFT_USAGE);
        assert_message(rows[i].message);
    }
}
END_TEST

/* ---- files ---- */

START_TEST(files_may_be_written_like_this) {
    static const char text[] = "\xef\xbb\xbf; a comment\n"
                               "# another = one\r\n"
                               "\n"
                               "[run]\r\n"
                               "dir = a b;c#d ; a comment # more\r\n"
                               "  seed=5\n"
                               "\tthreads : 2\t# two\n"
                               "[data]  ; comment\n"
                               "train=x=y:z\n"
                               "held =\n"
                               "held_out =   0.25   \n"
                               "[run]\n"
                               "[optim]\n"
                               "lr = 1e-4";
    Config config, expected = sound_config();
    config_defaults(&config);
    set(&expected, "run.dir=a b;c#d");
    set(&expected, "run.seed=5");
    set(&expected, "run.threads=2");
    set(&expected, "data.train=x=y:z");
    set(&expected, "data.held_out=0.25");
    set(&expected, "optim.lr=1e-4");
    ck_assert_msg(!read_text(&config, text, strlen(text)), "%s", error_message());
    assert_equal_configs(&config, &expected);
}
END_TEST

START_TEST(wrong_lines_are_named) {
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"[run]\nseed = 1\nseed = 2\n", ":3: run.seed is given twice, first in line 2"},
        {"[run]\nseed = 1\n[optim]\n[run]\nseed = 1", ":5: run.seed is given twice"},
        {"seed = 1\n", ":1: seed: before any [section]"},
        {"[run]\n\nsed = 1\n", ":3: unknown key run.sed; the nearest is run.seed"},
        {"\n[rum]\n", ":2: unknown section [rum]; the nearest is [run]"},
        {"[]\n", ":1: unknown section []"},
        {"[run] seed = 3\n", ":1: [run] seed = 3: expected [section]"},
        {"[run\n", ":1: [run: expected [section]"},
        {"[ run ]\n", ":1: unknown section [ run ]; the nearest is [run]"},
        {"[run]\nseed\n[run]\nseed = x", ":2: expected [section] or key = value"},
        {"[run]\nseed = x\nseed\n", ":2: run.seed = x: expected an integer"},
        {"[run]\n  seed = 1\n    2\n", ":3: expected [section] or key = value"},
        {"[train]\nsteps = 1e3 ; many\n", ":2: train.steps = 1e3: expected an integer"},
        {"[train]\nsteps = 10;20\n", ":2: train.steps = 10;20: expected an integer"},
        {"[train]\nsteps =\n", ":2: train.steps = : expected an integer"},
        {"{\"run\": 1}\n", ":1: {\"run\": before any [section]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Config config = sound_config(), before = config;
        ck_assert_int_eq(read_text(&config, rows[i].text, strlen(rows[i].text)), WEFT_USAGE);
        assert_message(rows[i].message);
        assert_equal_configs(&config, &before);
    }
}
END_TEST

START_TEST(what_is_no_config_is_refused) {
    Config config = sound_config();
    char text[600];
    ck_assert_int_eq(read_text(&config, "[run]\0seed = 1\n", 15), WEFT_USAGE);
    assert_message("not a config file");

    snprintf(text, sizeof text, "[run]\n; %0300d\nseed = %0200d\n", 0, 1);
    ck_assert_int_eq(read_text(&config, text, strlen(text)), WEFT_USAGE);
    assert_message(":3: a line of 207 characters; at most 197 are read");

    char *large = calloc(1, 2 << 20);
    memset(large, '\n', 2 << 20);
    ck_assert_int_eq(read_text(&config, large, 2 << 20), WEFT_USAGE);
    assert_message("config ");
    free(large);

    ck_assert_int_eq(config_read(&config, "/nonexistent/x.ini"), WEFT_USAGE);
    assert_message("/nonexistent/x.ini");
    ck_assert_int_eq(config_read(&config, "/"), WEFT_USAGE);
    assert_message("not a regular file");
    ck_assert_int_eq(config_read(&config, "/dev/zero"), WEFT_USAGE);
    assert_message("not a regular file");
}
END_TEST

/* Another value for every option: the config, changed in one place. */
static bool change(const Option *option, Config *config) {
    char *field = (char *)config + option->offset;
    switch (option->type) {
    case OPTION_TEXT: return !option_parse(option, config, "somewhere/else");
    case OPTION_INTEGER: *(int64_t *)field += 1; return true;
    case OPTION_NUMBER: *(double *)field = *(double *)field / 3 + 0.1; return true;
    case OPTION_BOOLEAN: *(bool *)field = !*(bool *)field; return true;
    case OPTION_CHOICE: break;
    }
    const char *last = strrchr(option->choices, ' ');
    return last && !option_parse(option, config, last + 1);
}

START_TEST(the_resolved_config_reads_back) {
    Config config = sound_config(), again;
    ck_assert_int_eq(config_resolve(&config), 0);
    for (int round = 0; round < 3; round++) {
        char *text = config_format(&config);
        ck_assert_ptr_nonnull(text);
        config_defaults(&again);
        ck_assert_msg(!read_text(&again, text, strlen(text)), "%s", error_message());
        assert_equal_configs(&config, &again);
        char *text_again = config_format(&again);
        ck_assert_str_eq(text, text_again);
        free(text);
        free(text_again);
        for (int i = 0; i < OPTION_COUNT; i++) {
            char longest[CONFIG_TEXT];
            memset(longest, 'y', LONGEST_TEXT);
            longest[LONGEST_TEXT] = '\0';
            if (round == 0)
                change(&options[i], &config);
            else if (options[i].type == OPTION_TEXT)
                option_parse(&options[i], &config, longest);
        }
    }
}
END_TEST

START_TEST(numbers_are_short_and_exact) {
    static const struct {
        double value;
        const char *text;
    } rows[] = {
        {0.1, "0.1"},
        {1e-3, "0.001"},
        {1.0 / 3, "0.3333333333333333"},
        {3e-4, "0.0003"},
        {0.1 + 0.2, "0.30000000000000004"},
        {1e-8, "1e-08"},
        {250, "250"},
        {0, "0"},
        {1.0 - 0x1p-53, "0.9999999999999999"},
        {1e-300, "1e-300"},
    };
    const Option *option = &options[option_find("optim", "lr")];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Config config = {.optim.lr = rows[i].value}, again;
        char text[64] = "";
        FILE *stream = fmemopen(text, sizeof text, "w");
        option_print(option, &config, stream);
        fclose(stream);
        ck_assert_str_eq(text, rows[i].text);
        ck_assert_int_eq(option_parse(option, &again, text), 0);
        ck_assert_mem_eq(&again.optim.lr, &config.optim.lr, sizeof(double));
    }
}
END_TEST

int main(void) {
    return run_suite("config",
                     TESTS(every_default_is_allowed, defaults_are_these,
                           choices_are_what_is_implemented, values_are_read_whole_or_refused,
                           messages_say_what_is_allowed, long_texts_are_refused_before_they_are_cut,
                           unknown_keys_get_the_nearest, files_may_be_written_like_this,
                           wrong_lines_are_named, what_is_no_config_is_refused,
                           the_resolved_config_reads_back, numbers_are_short_and_exact));
}
