#include "run/normalisation.h"

#include "base/error.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define RULE                                                                                       \
    "(x - mean) / scale by column; mean and deviation of the training rows; the loss is of "       \
    "normalised targets"

static const char *const parts[ARRAY_PARTS] = {"inputs", "targets"};

static json_t *list(const double *number, int64_t count) {
    json_t *array = json_array();
    for (int64_t i = 0; array && i < count; i++) {
        if (!json_array_append_new(array, json_real(number[i]))) continue;
        json_decref(array);
        array = NULL;
    }
    return array;
}

json_t *normalisation_json(const Normalisation *n) {
    json_t *block = json_pack("{s:s}", "rule", RULE);
    for (int part = 0; block && part < ARRAY_PARTS; part++) {
        json_t *lists = json_pack("{s:o, s:o}", "mean", list(n->mean[part], n->columns[part]),
                                  "scale", list(n->scale[part], n->columns[part]));
        if (!json_object_set_new(block, parts[part], lists)) continue;
        json_decref(block);
        block = NULL;
    }
    return block;
}

void normalisation_digest(const Normalisation *n, char text[HASH_TEXT]) {
    hash_format(hash_bytes(n->number, (size_t)n->numbers * sizeof *n->number), text);
}

/* ---- reading ---- */

typedef struct {
    void (*tell)(void *context, const char *problem);
    void *context;
    int problems;
} Reading;

static void complain(Reading *reading, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void complain(Reading *reading, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    reading->problems++;
    reading->tell(reading->context, text);
}

/* Every one finite, and above `floor`. */
static void read_list(Reading *reading, const json_t *lists, const char *part, const char *key,
                      double floor, double *number, int64_t count) {
    const json_t *array = json_object_get(lists, key);
    if (!json_is_array(array)) {
        complain(reading, "normalisation.%s.%s is missing", part, key);
        return;
    }
    if (json_array_size(array) != (size_t)count) {
        complain(reading, "normalisation.%s.%s has %zu numbers, by the function %" PRId64, part,
                 key, json_array_size(array), count);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(array, (size_t)i);
        number[i] = json_number_value(value);
        if (!json_is_number(value) || !isfinite(number[i]))
            complain(reading, "normalisation.%s.%s[%" PRId64 "] is no number", part, key, i);
        else if (!(number[i] > floor))
            complain(reading, "normalisation.%s.%s[%" PRId64 "] is %.17g; above %g is expected",
                     part, key, i, number[i], floor);
    }
}

/* `known` ends with NULL. */
static void look_for_unknown(Reading *reading, const json_t *object, const char *path,
                             const char *const *known) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        int i = 0;
        while (known[i] && strcmp(known[i], key) != 0) i++;
        if (!known[i]) complain(reading, "%s.%s: nothing is known of it", path, key);
    }
}

static void read_part(Reading *reading, Normalisation *n, const json_t *block, int part) {
    static const char *const known[] = {"mean", "scale", NULL};
    char path[64];
    const json_t *lists = json_object_get(block, parts[part]);
    snprintf(path, sizeof path, "normalisation.%s", parts[part]);
    read_list(reading, lists, parts[part], "mean", -INFINITY, n->mean[part], n->columns[part]);
    read_list(reading, lists, parts[part], "scale", 0, n->scale[part], n->columns[part]);
    look_for_unknown(reading, lists, path, known);
}

static void check_digest(Reading *reading, const Normalisation *n, const json_t *manifest) {
    char own[HASH_TEXT];
    const char *told =
        json_string_value(json_object_get(json_object_get(manifest, "function"), "normalisation"));
    normalisation_digest(n, own);
    if (!told)
        complain(reading, "function.normalisation is missing; the numbers' digest is %s", own);
    else if (strcmp(told, own) != 0)
        complain(reading, "normalisation: its numbers have digest %s, function.normalisation is %s",
                 own, told);
}

int normalisation_read(Normalisation *n, const json_t *manifest,
                       void (*tell)(void *context, const char *problem), void *context) {
    static const char *const known[] = {"rule", "inputs", "targets", NULL};
    Reading reading = {tell, context, 0};
    const json_t *block = json_object_get(manifest, "normalisation");
    if (!json_is_object(block)) {
        complain(&reading, "normalisation is missing; data.normalise is true");
        return reading.problems;
    }
    const char *rule = json_string_value(json_object_get(block, "rule"));
    if (!rule || strcmp(rule, RULE) != 0)
        complain(&reading, "normalisation.rule %s%.200s; %s is expected",
                 rule ? "is " : "is missing", rule ? rule : "", RULE);
    look_for_unknown(&reading, block, "normalisation", known);
    for (int part = 0; part < ARRAY_PARTS; part++) read_part(&reading, n, block, part);
    if (!reading.problems) check_digest(&reading, n, manifest);
    return reading.problems;
}

/* The first problem becomes the error. */
static void keep_first(void *context, const char *problem) {
    bool *any = context;
    if (!*any) error_set(WEFT_INPUT, "%s", problem);
    *any = true;
}

int normalisation_take(Normalisation *n, const json_t *manifest, const char *directory) {
    bool any = false;
    if (!n->number) return 0;
    if (normalisation_read(n, manifest, keep_first, &any))
        return error_prefix(WEFT_INPUT, "%s: its manifest: ", directory);
    n->known = true;
    return 0;
}
