#include "config/config.h"

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "config/options.h"
#include "config/width.h"

#include <ctype.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILE_LIMIT = 1 << 20 };

void config_defaults(Config *config) {
    memset(config, 0, sizeof *config);
    for (int i = 0; i < OPTION_COUNT; i++) option_default(&options[i], config);
}

/* inih takes lines from read_line, which counts them, and gives each key and value to take_value
 * before it asks for the next line. */
typedef struct {
    Config config;
    const char *rest; /* of the text */
    int line;
    bool failed; /* in this line, with the error set */
    int first_line[OPTION_COUNT];
} Reading;

/* Without comment and blanks at either end. A comment begins with ; or # at the start of a line or
 * after a blank. */
static size_t strip(const char **line, size_t length) {
    const char *text = *line;
    size_t end = 0;
    while (end < length && !((text[end] == ';' || text[end] == '#') &&
                             (end == 0 || isspace((unsigned char)text[end - 1]))))
        end++;
    while (end && isspace((unsigned char)text[end - 1])) end--;
    size_t begin = 0;
    while (begin < end && isspace((unsigned char)text[begin])) begin++;
    *line = text + begin;
    return end - begin;
}

/* A section's line in full: inih would ignore what follows the bracket, and an empty section. */
static int check_section(const char *line, size_t length) {
    char section[OPTION_NAME] = "";
    if (line[length - 1] != ']') return error_set(WEFT_USAGE, "%s: expected [section]", line);
    if (length - 2 < sizeof section) memcpy(section, line + 1, length - 2);
    return option_section_exists(section) ? 0 : option_unknown_section(section);
}

static char *read_line(char *buffer, int capacity, void *stream) {
    Reading *reading = stream;
    if (reading->failed || !*reading->rest) return NULL;
    const char *line = reading->rest;
    size_t length = strcspn(line, "\n");
    reading->rest += length + (line[length] == '\n');
    reading->line++;
    length = strip(&line, length);
    /* inih takes a line that fills its buffer for the beginning of a longer one. */
    if (length + 3 > (size_t)capacity) {
        error_set(WEFT_USAGE, "a line of %zu characters; at most %d are read", length,
                  capacity - 3);
        reading->failed = true;
        return NULL;
    }
    memcpy(buffer, line, length);
    buffer[length] = '\0';
    if (buffer[0] == '[' && check_section(buffer, length)) {
        reading->failed = true;
        return NULL;
    }
    return buffer;
}

static int take_value(void *user, const char *section, const char *key, const char *value) {
    Reading *reading = user;
    int index = option_find(section, key);
    if (!section[0]) {
        error_set(WEFT_USAGE, "%s: before any [section]", key);
    } else if (index < 0) {
        option_unknown(section, key);
    } else if (reading->first_line[index]) {
        error_set(WEFT_USAGE, "%s.%s is given twice, first in line %d", section, key,
                  reading->first_line[index]);
    } else if (!option_parse(&options[index], &reading->config, value)) {
        reading->first_line[index] = reading->line;
        return 1;
    }
    reading->failed = true;
    return 0;
}

static int parse_text(Config *config, const char *path, const char *text, size_t size) {
    if (memchr(text, '\0', size))
        return error_set(WEFT_USAGE, "%s: a zero byte: not a config file", path);
    bool marked = !strncmp(text, "\xef\xbb\xbf", 3); /* UTF-8's byte-order mark */
    Reading reading = {.config = *config, .rest = text + (marked ? 3 : 0)};
    int wrong = ini_parse_stream(read_line, &reading, take_value, &reading);
    if (wrong > 0 && !(reading.failed && wrong == reading.line))
        return error_set(WEFT_USAGE, "%s:%d: expected [section] or key = value", path, wrong);
    if (reading.failed) return error_prefix(WEFT_USAGE, "%s:%d: ", path, reading.line);
    if (wrong) return error_set(WEFT_RUNTIME, "%s: out of memory", path);
    *config = reading.config;
    return 0;
}

int config_read(Config *config, const char *path) {
    struct stat status;
    char *text = NULL;
    size_t size = 0;
    if (!stat(path, &status) && !S_ISREG(status.st_mode))
        return error_set(WEFT_USAGE, "%s: not a regular file; a config is needed", path);
    if (files_read(path, FILE_LIMIT, &text, &size)) return error_prefix(WEFT_USAGE, "config ");
    int result = parse_text(config, path, text, size);
    free(text);
    return result;
}

int config_read_text(Config *config, const char *text, const char *name) {
    return parse_text(config, name, text, strlen(text));
}

static void set_default(Config *config, const char *ffn_key) {
    const Option *option = &options[option_find("ffn", ffn_key)];
    option_default(option, config);
}

/* What comes later counts: a rule for the width in place of a number, a number in place of a rule.
 */
static void take_over_width(Config *config, const char *key) {
    bool rule = !strcmp(key, "width"), number = !strcmp(key, "d_ff");
    if (number) set_default(config, "width");
    for (const WidthKey *row = width_keys; row->key; row++) {
        if (number) set_default(config, row->key);
        rule = rule || !strcmp(key, row->key);
    }
    if (!rule || !strcmp(config->ffn.width, "explicit")) return;
    set_default(config, "d_ff");
    config->ffn.width_resolved = false;
}

int config_set(Config *config, const char *assignment) {
    char section[OPTION_NAME], key[OPTION_NAME];
    const char *equals = strchr(assignment, '=');
    size_t name = equals ? (size_t)(equals - assignment) : 0;
    size_t dot = strcspn(assignment, ".");
    if (!equals || dot >= name)
        return error_set(WEFT_USAGE, "--set %.200s: expected section.key=value", assignment);
    if (name >= OPTION_NAME / 2)
        return error_set(WEFT_USAGE, "--set %.200s: no key is that long", assignment);
    snprintf(section, sizeof section, "%.*s", (int)dot, assignment);
    snprintf(key, sizeof key, "%.*s", (int)(name - dot - 1), assignment + dot + 1);
    int index = option_find(section, key);
    int result = index < 0 ? option_unknown(section, key)
                           : option_parse(&options[index], config, equals + 1);
    if (!result && !strcmp(section, "ffn")) take_over_width(config, key);
    return result ? error_prefix(result, "--set ") : 0;
}

char *config_format(const Config *config) {
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    if (!stream) return NULL;
    for (int i = 0; i < OPTION_COUNT; i++) {
        const Option *option = &options[i];
        if (i == 0 || strcmp(option->section, options[i - 1].section))
            fprintf(stream, "%s[%s]\n", i ? "\n" : "", option->section);
        fprintf(stream, "%s = ", option->key);
        option_print(option, config, stream);
        fputc('\n', stream);
    }
    if (!fclose(stream)) return text;
    free(text);
    return NULL;
}

char *config_changes(const Config *now, const Config *before) {
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    if (!stream) return NULL;
    for (int i = 0; i < OPTION_COUNT; i++) {
        const Option *option = &options[i];
        if (option->role != ROLE_STEERS || option_equal(option, now, before)) continue;
        fprintf(stream, "%s.%s ", option->section, option->key);
        option_print(option, before, stream);
        fputs(" -> ", stream);
        option_print(option, now, stream);
        fputc('\n', stream);
    }
    if (!fclose(stream) && size) return text;
    free(text);
    return NULL;
}

void config_help(void) {
    for (int i = 0; i < OPTION_COUNT; i++) {
        const Option *option = &options[i];
        char *allowed = NULL;
        size_t size;
        FILE *stream = open_memstream(&allowed, &size);
        if (!stream) return;
        option_print_allowed(option, stream);
        fclose(stream);
        if (i == 0 || strcmp(option->section, options[i - 1].section))
            log_print("%s[%s]\n", i ? "\n" : "", option->section);
        Config any;
        bool given = !option_parse(option, &any, option->initial);
        log_print("%s = %s\n    %s\n    %s\n", option->key, given ? option->initial : "(not given)",
                  option->help, allowed);
        free(allowed);
    }
}
