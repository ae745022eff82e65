/* checkpoint_differences: what a resume would change, in words. */
#include "checkpoint/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_value(FILE *out, const json_t *value) {
    char *text = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!value)
        fputs("has none", out);
    else
        fputs(json_is_string(value) ? json_string_value(value) : text ? text : "?", out);
    free(text);
}

/* The two sides, and what they are called. */
typedef struct {
    FILE *out;
    const char *left, *right;
} Sides;

/* `path` is the key of both values, "" at the top. */
static void compare(const Sides *sides, const char *path, const json_t *left, const json_t *right) {
    if (!json_is_object(left) || !json_is_object(right)) {
        if (json_equal(left, right)) return;
        fprintf(sides->out, "%s: %s ", path, sides->left);
        print_value(sides->out, left);
        fprintf(sides->out, ", %s ", sides->right);
        print_value(sides->out, right);
        fputc('\n', sides->out);
        return;
    }
    const json_t *side[2] = {left, right};
    const char *key;
    json_t *value;
    for (int i = 0; i < 2; i++) {
        json_object_foreach((json_t *)side[i], key, value) {
            char longer[512];
            if (i == 1 && json_object_get(left, key)) continue; /* seen from the other side */
            snprintf(longer, sizeof longer, "%s%s%s", path, path[0] ? "." : "", key);
            compare(sides, longer, json_object_get(left, key), json_object_get(right, key));
        }
    }
}

char *checkpoint_differences_between(const json_t *left, const char *left_name, const json_t *right,
                                     const char *right_name) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return strdup("out of memory: list of differences");
    compare(&(Sides){out, left_name, right_name}, "", left, right);
    if (fclose(out)) {
        free(text);
        return strdup("out of memory: list of differences");
    }
    if (size == 0) {
        free(text);
        return NULL;
    }
    if (text[size - 1] == '\n') text[size - 1] = '\0';
    return text;
}

char *checkpoint_differences(const json_t *checkpoint, const json_t *config) {
    return checkpoint_differences_between(checkpoint, "checkpoint", config, "config");
}
