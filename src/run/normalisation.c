#include "run/normalisation.h"

#include "base/error.h"

#include <math.h>

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
    json_t *block = json_pack("{s:s}", "rule",
                              "(x - mean) / scale by column; mean and deviation of the training "
                              "rows; the loss is of normalised targets");
    for (int part = 0; block && part < ARRAY_PARTS; part++) {
        json_t *lists = json_pack("{s:o, s:o}", "mean", list(n->mean[part], n->columns[part]),
                                  "scale", list(n->scale[part], n->columns[part]));
        if (!json_object_set_new(block, parts[part], lists)) continue;
        json_decref(block);
        block = NULL;
    }
    return block;
}

/* Every one finite, and above `floor`. */
static bool take_list(const json_t *array, double floor, double *number, int64_t count) {
    if (!json_is_array(array) || json_array_size(array) != (size_t)count) return false;
    for (int64_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(array, (size_t)i);
        number[i] = json_number_value(value);
        if (!json_is_number(value) || !isfinite(number[i]) || !(number[i] > floor)) return false;
    }
    return true;
}

int normalisation_take(Normalisation *n, const json_t *manifest, const char *directory) {
    if (!n->number) return 0;
    const json_t *block = json_object_get(manifest, "normalisation");
    if (!block)
        return error_set(WEFT_INPUT,
                         "%s: its manifest has no normalisation, which data.normalise = true needs",
                         directory);
    for (int part = 0; part < ARRAY_PARTS; part++) {
        const json_t *lists = json_object_get(block, parts[part]);
        int64_t count = n->columns[part];
        if (!take_list(json_object_get(lists, "mean"), -INFINITY, n->mean[part], count) ||
            !take_list(json_object_get(lists, "scale"), 0, n->scale[part], count))
            return error_set(WEFT_INPUT,
                             "%s: normalisation.%s of its manifest isn't %lld finite means and as "
                             "many scales above 0",
                             directory, parts[part], (long long)count);
    }
    n->known = true;
    return 0;
}
