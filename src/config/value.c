/* Values of options: strict reading, exact writing. One row per type. */
#include "config/options.h"

#include "base/error.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    bool (*parse)(const Option *option, void *field, const char *value); /* false: not allowed */
    void (*print)(const void *field, FILE *stream);
    json_t *(*json)(const void *field);
    void (*allowed)(const Option *option, FILE *stream);
} ValueType;

static size_t text_length(const char *text) { return strnlen(text, CONFIG_TEXT); }

/* Whether a line of a file can say it: else the resolved config would not read back. JSON needs
 * UTF-8. */
static bool is_line_text(const char *text) {
    size_t length = text_length(text);
    if (length >= CONFIG_TEXT) return false;
    if (length && (isspace((unsigned char)text[0]) || isspace((unsigned char)text[length - 1])))
        return false;
    bool after_space = true;
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c < ' ' || *c == 0x7f || (after_space && (*c == ';' || *c == '#'))) return false;
        after_space = *c == ' ';
    }
    json_t *json = json_string(text);
    json_decref(json);
    return json;
}

static bool text_parse(const Option *option, void *field, const char *value) {
    (void)option;
    if (!is_line_text(value)) return false;
    memcpy(field, value, strlen(value) + 1);
    return true;
}

static void text_print(const void *field, FILE *stream) { fputs(field, stream); }

static json_t *text_json(const void *field) { return json_string(field); }

static void text_allowed(const Option *option, FILE *stream) {
    (void)option;
    fprintf(stream,
            "a text of at most %d bytes (UTF-8, no control characters, no \" ;\" or \" #\")",
            CONFIG_TEXT - 1);
}

/* Whole words of "a | b | c". */
static bool choice_parse(const Option *option, void *field, const char *value) {
    size_t length = text_length(value);
    for (const char *word = option->choices; *word;) {
        size_t size = strcspn(word, " |");
        if (size == length && !strncmp(word, value, size)) {
            memcpy(field, value, size);
            ((char *)field)[size] = '\0';
            return true;
        }
        word += size + strspn(word + size, " |");
    }
    return false;
}

static void choice_allowed(const Option *option, FILE *stream) { fputs(option->choices, stream); }

/* Decimal digits with an optional minus; no 1e3, no blanks. */
static bool integer_parse(const Option *option, void *field, const char *value) {
    if (!isdigit((unsigned char)value[value[0] == '-'])) return false;
    char *end;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (errno || *end || number < option->least || number > option->most) return false;
    *(int64_t *)field = number;
    return true;
}

static void integer_print(const void *field, FILE *stream) {
    fprintf(stream, "%" PRId64, *(const int64_t *)field);
}

static json_t *integer_json(const void *field) { return json_integer(*(const int64_t *)field); }

static void integer_allowed(const Option *option, FILE *stream) {
    fprintf(stream, "an integer from %" PRId64 " to %" PRId64, option->least, option->most);
}

/* Decimal, with or without fraction and exponent; no nan, inf or hexadecimal, nothing too large or
 * too small for a double. */
static bool number_parse(const Option *option, void *field, const char *value) {
    if (!value[0] || value[strspn(value, "0123456789.eE+-")]) return false;
    if (value[0] == '+') return false;
    char *end;
    errno = 0;
    double number = strtod(value, &end);
    if (errno || *end || !isfinite(number)) return false;
    if (number < option->low || number > option->high) return false;
    if ((option->ends & ENDS_OPEN_LOW) && number == option->low) return false;
    if ((option->ends & ENDS_OPEN_HIGH) && number == option->high) return false;
    *(double *)field = number + 0.0; /* -0 is 0 */
    return true;
}

/* 17 digits always give the bits back (Steele and White 1990); fewer where they do too. %g drops
 * trailing zeros, so 15 stand for all shorter forms. */
static void number_print(const void *field, FILE *stream) {
    double number = *(const double *)field;
    char text[32];
    int digits = 15;
    do {
        snprintf(text, sizeof text, "%.*g", digits++, number);
    } while (digits <= 17 && strtod(text, NULL) != number);
    fputs(text, stream);
}

static json_t *number_json(const void *field) { return json_real(*(const double *)field); }

static void number_allowed(const Option *option, FILE *stream) {
    fprintf(stream, "a number in %c%g, %g%c", option->ends & ENDS_OPEN_LOW ? '(' : '[', option->low,
            option->high, option->ends & ENDS_OPEN_HIGH ? ')' : ']');
}

static bool boolean_parse(const Option *option, void *field, const char *value) {
    (void)option;
    bool yes = !strcmp(value, "true");
    if (!yes && strcmp(value, "false")) return false;
    *(bool *)field = yes;
    return true;
}

static void boolean_print(const void *field, FILE *stream) {
    fputs(*(const bool *)field ? "true" : "false", stream);
}

static json_t *boolean_json(const void *field) { return json_boolean(*(const bool *)field); }

static void boolean_allowed(const Option *option, FILE *stream) {
    (void)option;
    fputs("true | false", stream);
}

static const ValueType types[] = {
    [OPTION_TEXT] = {text_parse, text_print, text_json, text_allowed},
    [OPTION_CHOICE] = {choice_parse, text_print, text_json, choice_allowed},
    [OPTION_INTEGER] = {integer_parse, integer_print, integer_json, integer_allowed},
    [OPTION_NUMBER] = {number_parse, number_print, number_json, number_allowed},
    [OPTION_BOOLEAN] = {boolean_parse, boolean_print, boolean_json, boolean_allowed},
};

static const void *field_of(const Option *option, const Config *config) {
    return (const char *)config + option->offset;
}

int option_parse(const Option *option, Config *config, const char *value) {
    if (types[option->type].parse(option, (char *)config + option->offset, value)) return 0;
    char *allowed = NULL;
    size_t size;
    FILE *stream = open_memstream(&allowed, &size);
    if (!stream) return error_set(WEFT_RUNTIME, "out of memory");
    option_print_allowed(option, stream);
    fclose(stream);
    error_set(WEFT_USAGE, "%s.%s = %.200s%s: expected %s", option->section, option->key, value,
              strnlen(value, 201) > 200 ? "..." : "", allowed);
    free(allowed);
    return WEFT_USAGE;
}

void option_default(const Option *option, Config *config) {
    Option any = *option;
    any.least = INT64_MIN;
    option_parse(&any, config, option->initial);
}

void option_print(const Option *option, const Config *config, FILE *stream) {
    types[option->type].print(field_of(option, config), stream);
}

void option_print_allowed(const Option *option, FILE *stream) {
    types[option->type].allowed(option, stream);
}

json_t *option_json(const Option *option, const Config *config) {
    return types[option->type].json(field_of(option, config));
}

bool option_equal(const Option *option, const Config *a, const Config *b) {
    json_t *first = option_json(option, a), *second = option_json(option, b);
    bool equal = json_equal(first, second);
    json_decref(first);
    json_decref(second);
    return equal;
}
