#include "run/record.h"

#include "base/error.h"
#include "checkpoint/catalog.h"
#include "run/state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- making ---- */

static json_t *tensors_json(const ParamSet *set, const Hash128 *part) {
    json_t *tensors = json_object();
    for (int role = 0; tensors && role < CATALOG_ROLES; role++) {
        for (int i = 0; tensors && i < set->count; i++) {
            char name[CATALOG_DATASET], text[HASH_TEXT];
            snprintf(name, sizeof name, "%s/%s", catalog_roles[role].name, set->param[i].name);
            hash_format(part[role * set->count + i], text);
            if (!json_object_set_new(tensors, name, json_string(text))) continue;
            json_decref(tensors);
            tensors = NULL;
        }
    }
    return tensors;
}

int record_state(Trainer *trainer, json_t **record) {
    const ParamSet *set = &trainer->model.set;
    Hash128 fingerprint, *part = calloc((size_t)set->count * CATALOG_ROLES, sizeof *part);
    char text[HASH_TEXT];
    *record = NULL;
    int status = part ? 0 : error_set(WEFT_RUNTIME, "out of memory: fingerprint");
    status = comm_agree(trainer->grid, GROUP_GRID, status);
    if (!status) status = state_parts(trainer, part, &fingerprint);
    if (!status && group_rank(trainer->grid, GROUP_GRID) == 0) {
        hash_format(fingerprint, text);
        *record = json_pack("{s:I, s:s, s:o}", "step", (json_int_t)trainer->step, "fingerprint",
                            text, "tensors", tensors_json(set, part));
        if (!*record) status = error_set(WEFT_RUNTIME, "out of memory: record of a step");
    }
    free(part);
    return comm_agree(trainer->grid, GROUP_GRID, status);
}

/* Exact, and one text for every NaN. */
static json_t *exact(double value) {
    char text[64];
    snprintf(text, sizeof text, "%a", isnan(value) ? (double)NAN : value);
    return json_string(text[0] == '-' && isnan(value) ? text + 1 : text);
}

static int add_step(json_t *record, const Trainer *trainer, const StepReport *report) {
    json_t *samples = json_array();
    int failed = !samples;
    for (int64_t i = 0; !failed && i < trainer->config.train.global_batch; i++)
        failed = json_array_append_new(samples, json_integer(trainer->samples[i]));
    json_t *rest =
        json_pack("{s:o, s:o, s:o, s:o}", "samples", samples, "loss", exact(report->loss),
                  "grad_norm", exact(report->norm), "lr", exact(report->rate));
    failed = failed || !rest || json_object_update(record, rest);
    if (!failed && isfinite(report->loss))
        failed = json_object_set_new(record, "loss_decimal", json_real(report->loss));
    json_decref(rest);
    return failed ? error_set(WEFT_RUNTIME, "out of memory: record of a step") : 0;
}

int record_step(Trainer *trainer, const StepReport *report, json_t **record) {
    int status = record_state(trainer, record);
    if (*record) status = add_step(*record, trainer, report);
    return comm_agree(trainer->grid, GROUP_GRID, status);
}

json_t *record_state_of(const json_t *record) {
    return json_pack("{s:O, s:O, s:O}", "step", json_object_get(record, "step"), "fingerprint",
                     json_object_get(record, "fingerprint"), "tensors",
                     json_object_get(record, "tensors"));
}

/* ---- comparing ---- */

static const char *text_of(const json_t *record, const char *key) {
    const char *text = json_string_value(json_object_get(record, key));
    return text ? text : "nothing";
}

double record_number(const json_t *record, const char *key) {
    return strtod(text_of(record, key), NULL);
}

bool record_equal(const json_t *there, const json_t *here, const char *key) {
    const json_t *a = json_object_get(there, key), *b = json_object_get(here, key);
    return a == b || json_equal(a, b);
}

static void describe_samples(const json_t *there, const json_t *here, FILE *stream) {
    const json_t *a = json_object_get(there, "samples"), *b = json_object_get(here, "samples");
    size_t i = 0;
    while (i < json_array_size(a) && json_equal(json_array_get(a, i), json_array_get(b, i))) i++;
    fprintf(stream, "sample %zu of %zu: id %lld, here %lld", i, json_array_size(b),
            (long long)json_integer_value(json_array_get(a, i)),
            (long long)json_integer_value(json_array_get(b, i)));
}

/* The first of what a step has beside its state; false when all are equal. */
static bool describe_numbers(const json_t *there, const json_t *here, FILE *stream) {
    static const struct {
        const char *key, *name;
    } numbers[] = {{"lr", "lr"}, {"loss", "loss"}, {"grad_norm", "gradient norm"}};
    if (!record_equal(there, here, "samples")) {
        describe_samples(there, here, stream);
        return true;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (record_equal(there, here, numbers[i].key)) continue;
        fprintf(stream, "%s %s, here %s", numbers[i].name, text_of(there, numbers[i].key),
                text_of(here, numbers[i].key));
        return true;
    }
    return false;
}

/* In the order in which tensors are declared, values before moments. */
static bool describe_tensors(const json_t *there, const json_t *here, FILE *stream) {
    json_t *parts = json_object_get(here, "tensors"), *part;
    const json_t *others = json_object_get(there, "tensors");
    const char *name, *first = NULL;
    int differ = 0;
    json_object_foreach(parts, name, part) {
        if (json_equal(part, json_object_get(others, name))) continue;
        if (differ++ == 0) first = name;
    }
    if (differ > 1)
        fprintf(stream, "tensor %s, the first of %d that differ", first, differ);
    else if (differ)
        fprintf(stream, "tensor %s", first);
    return differ > 0;
}

bool record_difference(const json_t *there, const json_t *here, char *text, size_t capacity) {
    FILE *stream = fmemopen(text, capacity, "w");
    text[0] = '\0';
    if (!stream) return !json_equal((json_t *)there, (json_t *)here);
    bool numbers = describe_numbers(there, here, stream);
    if (numbers) fputs("; ", stream);
    bool tensors = describe_tensors(there, here, stream);
    bool rest = !record_equal(there, here, "step") || !record_equal(there, here, "fingerprint");
    if (numbers && !tensors) fputs("no tensor differs", stream);
    if (!numbers && !tensors && rest)
        fprintf(stream, "step %lld, fingerprint %s, here step %lld, %s, with equal tensors",
                (long long)json_integer_value(json_object_get(there, "step")),
                text_of(there, "fingerprint"),
                (long long)json_integer_value(json_object_get(here, "step")),
                text_of(here, "fingerprint"));
    fclose(stream);
    text[capacity - 1] = '\0';
    return numbers || tensors || rest;
}

char *record_config_changes(const Config *now, const Config *before) {
    Config decided = *before;
    decided.optim = now->optim;
    decided.train.steps = now->train.steps; /* the schedule's end */
    memcpy(decided.train.on_nonfinite, now->train.on_nonfinite, sizeof decided.train.on_nonfinite);
    memcpy(decided.grid.reduction, now->grid.reduction, sizeof decided.grid.reduction);
    return config_changes(&decided, before);
}
