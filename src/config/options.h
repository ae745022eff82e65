/* The table behind config.h: one row per option, and what can be done with a row. Internal to
 * src/config and its tests. */
#ifndef WEFT_CONFIG_OPTIONS_H
#define WEFT_CONFIG_OPTIONS_H

#include "config/config.h"

#include <stdio.h>

typedef enum {
    OPTION_TEXT,
    OPTION_CHOICE,
    OPTION_INTEGER,
    OPTION_NUMBER,
    OPTION_BOOLEAN
} OptionType;

typedef enum {
    ROLE_STEERS,  /* what comes next; free to change at resume */
    ROLE_DEFINES, /* the function; fingerprinted */
    ROLE_ORDERS,  /* the sample order; fingerprinted */
} OptionRole;

/* Which ends of [low, high] are left out. */
enum { ENDS_CLOSED = 0, ENDS_OPEN_LOW = 1, ENDS_OPEN_HIGH = 2 };

typedef struct {
    const char *section, *key;
    size_t offset; /* into Config */
    OptionType type;
    OptionRole role;
    const char *initial; /* the default, as a file would say it */
    const char *choices; /* OPTION_CHOICE: "a | b | c" */
    int64_t least, most; /* OPTION_INTEGER */
    double low, high;    /* OPTION_NUMBER */
    int ends;
    const char *help;
    const char *only; /* the model.kind whose function it defines; NULL: all */
    bool later; /* came after the first checkpoints: at its default the function leaves it out,
                   so that theirs stays what it was */
} Option;

enum { OPTION_COUNT = 81 };
extern const Option options[OPTION_COUNT];

#define OPTION_NAME 128 /* holds "section.key" of any row */

/* The row's index, or -1. */
int option_find(const char *section, const char *key);

/* WEFT_USAGE: unknown key, with the nearest one. */
int option_unknown(const char *section, const char *key);

bool option_section_exists(const char *section);
int option_unknown_section(const char *section);

/* Sets the row's field from a whole, strictly read value. Returns 0, or WEFT_USAGE naming the key,
 * the value and what is allowed. */
int option_parse(const Option *option, Config *config, const char *value);

/* The initial value, which may say "not given" by a number that nobody else may give. */
void option_default(const Option *option, Config *config);

/* The value as option_parse reads it: numbers in the shortest form that gives the same bits. */
void option_print(const Option *option, const Config *config, FILE *stream);

/* What is allowed, for messages and help: "an integer from 1 to 64". */
void option_print_allowed(const Option *option, FILE *stream);

json_t *option_json(const Option *option, const Config *config);

bool option_equal(const Option *option, const Config *a, const Config *b);

#endif
