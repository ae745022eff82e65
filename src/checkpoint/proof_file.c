#include "checkpoint/proof_file.h"

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/fingerprint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT  "weft-proof"
#define VERSION 1

static const size_t largest_proof = (size_t)1 << 30;

bool proof_file_exists(const char *directory) {
    char path[FILES_PATH];
    return !files_join(path, sizeof path, directory, PROOF_FILE) && files_exists(path);
}

/* ---- the digest ---- */

static int digest_of(const json_t *proof, Hash128 *hash) {
    json_t *content = json_copy((json_t *)proof);
    if (!content) return error_set(WEFT_RUNTIME, "out of memory: " PROOF_FILE);
    json_object_del(content, "digest");
    int status = fingerprint_json(content, hash);
    json_decref(content);
    return status;
}

static int seal(json_t *proof) {
    Hash128 hash;
    char text[HASH_TEXT];
    if (digest_of(proof, &hash)) return WEFT_RUNTIME;
    hash_format(hash, text);
    if (!json_object_set_new(proof, "digest", json_string(text))) return 0;
    return error_set(WEFT_RUNTIME, "out of memory: " PROOF_FILE);
}

static int check_seal(const json_t *proof, const char *digest) {
    Hash128 wanted, found;
    int status = hash_parse(digest, &wanted);
    if (!status) status = digest_of(proof, &found);
    if (status || hash_equal(wanted, found)) return status;
    return error_set(WEFT_INPUT, "damaged or edited: its own digest doesn't match");
}

/* ---- the fields ---- */

static int check_hash(const char *name, const char *text) {
    Hash128 hash;
    return hash_parse(text, &hash) ? error_prefix(WEFT_INPUT, "%s: ", name) : 0;
}

static int check_state(const json_t *state, int64_t step) {
    json_error_t where;
    json_int_t number;
    const char *fingerprint, *name;
    json_t *tensors, *part;
    if (json_unpack_ex((json_t *)state, &where, 0, "{s:I, s:s, s:o}", "step", &number,
                       "fingerprint", &fingerprint, "tensors", &tensors))
        return error_set(WEFT_INPUT, "%s", where.text);
    if (number != step) return error_set(WEFT_INPUT, "is of step %lld", (long long)number);
    if (check_hash("fingerprint", fingerprint)) return WEFT_INPUT;
    if (!json_is_object(tensors) || !json_object_size(tensors))
        return error_set(WEFT_INPUT, "tensors: hashes by name are expected");
    json_object_foreach(tensors, name, part) {
        if (!json_is_string(part)) return error_set(WEFT_INPUT, "tensors: %.150s: no text", name);
        if (check_hash(name, json_string_value(part))) return WEFT_INPUT;
    }
    return 0;
}

static int check_number(const char *name, const char *text) {
    char *end;
    strtod(text, &end);
    return end != text && !*end ? 0
                                : error_set(WEFT_INPUT, "%s: \"%.40s\" is no number", name, text);
}

static int check_step(const json_t *step) {
    json_error_t where;
    json_t *samples, *sample;
    const char *loss, *norm, *rate;
    size_t i;
    if (json_unpack_ex((json_t *)step, &where, 0, "{s:o, s:s, s:s, s:s}", "samples", &samples,
                       "loss", &loss, "grad_norm", &norm, "lr", &rate))
        return error_set(WEFT_INPUT, "%s", where.text);
    if (!json_is_array(samples)) return error_set(WEFT_INPUT, "samples: a list is expected");
    json_array_foreach(samples, i, sample) if (!json_is_integer(sample)) return error_set(
        WEFT_INPUT, "samples: not an integer");
    int status = check_number("loss", loss);
    if (!status) status = check_number("grad_norm", norm);
    return status ? status : check_number("lr", rate);
}

static int check_steps(const json_t *steps, int64_t step) {
    size_t i;
    json_t *item;
    if (!json_is_array(steps) || !json_array_size(steps))
        return error_set(WEFT_INPUT, "steps: a list of at least one is expected");
    json_array_foreach((json_t *)steps, i, item) {
        int64_t number = step + 1 + (int64_t)i;
        if (check_state(item, number) || check_step(item))
            return error_prefix(WEFT_INPUT, "step %lld: ", (long long)number);
    }
    return 0;
}

static int check_proof(const json_t *proof) {
    json_error_t where;
    json_int_t version, step;
    json_t *start, *steps;
    const char *format, *config, *identity, *layout, *data, *digest;
    if (json_unpack_ex((json_t *)proof, &where, 0,
                       "{s:s, s:I, s:I, s:o, s:s, s:s, s:s, s:s, s:o, s:s}", "format", &format,
                       "version", &version, "step", &step, "start", &start, "config", &config,
                       "identity", &identity, "layout", &layout, "data", &data, "steps", &steps,
                       "digest", &digest))
        return error_set(WEFT_INPUT, "%s", where.text);
    if (strcmp(format, FORMAT) || version != VERSION)
        return error_set(WEFT_INPUT,
                         "is \"%.40s\" version %lld, expected \"" FORMAT "\" version %d", format,
                         (long long)version, VERSION);
    if (check_seal(proof, digest)) return WEFT_INPUT;
    if (step < 0 || step > INT64_MAX / 2) return error_set(WEFT_INPUT, "step: out of range");
    if (check_hash("data", data)) return WEFT_INPUT;
    if (check_state(start, step)) return error_prefix(WEFT_INPUT, "start: ");
    return check_steps(steps, step);
}

int proof_file_read(const char *directory, json_t **proof) {
    char path[FILES_PATH], *text = NULL;
    size_t size = 0;
    json_error_t where;
    *proof = NULL;
    int status = files_join(path, sizeof path, directory, PROOF_FILE);
    if (!status) status = files_read(path, largest_proof, &text, &size);
    if (status) return status;
    json_t *read = json_loadb(text, size, JSON_REJECT_DUPLICATES, &where);
    free(text);
    if (!read) return error_set(WEFT_INPUT, "%s: line %d: %s", path, where.line, where.text);
    if (check_proof(read)) {
        json_decref(read);
        return error_prefix(WEFT_INPUT, "%s: ", path);
    }
    *proof = read;
    return 0;
}

int proof_file_check(const char *directory, const json_t *manifest) {
    json_t *proof;
    if (!proof_file_exists(directory)) return 0;
    if (proof_file_read(directory, &proof)) return WEFT_INPUT;
    const json_t *there = json_object_get(manifest, "fingerprint");
    const json_t *here = json_object_get(json_object_get(proof, "start"), "fingerprint");
    int status = 0;
    if (!json_equal(json_object_get(proof, "step"), json_object_get(manifest, "step")))
        status = error_set(WEFT_INPUT, "%s/" PROOF_FILE ": is of another step", directory);
    else if (!json_equal((json_t *)here, (json_t *)there))
        status = error_set(WEFT_INPUT,
                           "%s/" PROOF_FILE ": training went on from fingerprint %s, the manifest "
                           "has %s",
                           directory, json_string_value(here), json_string_value(there));
    json_decref(proof);
    return status;
}

/* ---- writing ---- */

json_t *proof_file_begin(int64_t step, json_t *start, const char *config, const char *identity,
                         const char *layout, Hash128 data) {
    char text[HASH_TEXT];
    hash_format(data, text);
    json_t *proof =
        json_pack("{s:s, s:i, s:I, s:o, s:s, s:s, s:s, s:s, s:[]}", "format", FORMAT, "version",
                  VERSION, "step", (json_int_t)step, "start", start, "config", config, "identity",
                  identity, "layout", layout, "data", text, "steps");
    if (!proof) error_set(WEFT_RUNTIME, "out of memory: " PROOF_FILE);
    return proof;
}

/* Beside the step directory. */
static int unfinished_path(const char *directory, char path[FILES_PATH]) {
    char parent[FILES_PATH];
    int status = files_join(parent, sizeof parent, directory, "");
    if (status) return status;
    size_t end = strlen(parent);
    while (end > 1 && parent[end - 1] == '/') parent[--end] = '\0';
    char *slash = strrchr(parent, '/');
    if (slash) slash[slash == parent] = '\0';
    return files_join(path, FILES_PATH, slash ? parent : ".", "." PROOF_FILE);
}

int proof_file_write(json_t *proof, const char *directory) {
    char path[FILES_PATH], unfinished[FILES_PATH], *text = NULL;
    int status = files_join(path, sizeof path, directory, PROOF_FILE);
    if (!status) status = unfinished_path(directory, unfinished);
    if (status) return status;
    status = seal(proof);
    if (status) return status;
    text = json_dumps(proof, JSON_INDENT(1));
    if (!text) return error_set(WEFT_RUNTIME, "out of memory: %s", path);
    status = files_write(unfinished, text, strlen(text));
    free(text);
    if (status) return status;
    if (rename(unfinished, path)) {
        status = error_set(WEFT_RUNTIME, "%s: can't write: %s", path, strerror(errno));
        remove(unfinished);
        return status;
    }
    return files_sync(directory);
}
