#include "support/manifest_edit.h"

#include "checkpoint/manifest.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *step_into(json_t *value, const char *part) {
    return json_is_array(value) ? json_array_get(value, strtoul(part, NULL, 10))
                                : json_object_get(value, part);
}

void manifest_put(json_t *manifest, const char *path, json_t *value) {
    char copy[128], *rest = copy, *part;
    snprintf(copy, sizeof copy, "%s", path);
    json_t *parent = manifest;
    while ((part = strsep(&rest, "/")) && rest) parent = step_into(parent, part);
    ck_assert_msg(json_is_array(parent) || json_is_object(parent), "no %s", path);
    ck_assert_msg(value || step_into(parent, part), "no %s", path);
    size_t i = strtoul(part, NULL, 10);
    if (json_is_array(parent))
        ck_assert_int_eq(
            value ? json_array_set_new(parent, i, value) : json_array_remove(parent, i), 0);
    else
        ck_assert_int_eq(
            value ? json_object_set_new(parent, part, value) : json_object_del(parent, part), 0);
}

void manifest_edit(const char *directory, const json_t *original, const char *path, json_t *value) {
    json_t *manifest = json_deep_copy(original);
    manifest_put(manifest, path, value);
    if (strcmp(path, "origin")) ck_assert_int_eq(manifest_seal(manifest), 0);
    ck_assert_int_eq(manifest_write(manifest, directory), 0);
    json_decref(manifest);
}
