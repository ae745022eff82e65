#include "run/proof.h"

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "checkpoint/proof_file.h"
#include "run/identity.h"
#include "run/record.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Pending {
    struct Pending *next;
    int64_t step;
    int64_t left; /* steps still wanted; the same on all ranks */
    bool published, failed;
    json_t *proof; /* on the first rank */
    char directory[FILES_PATH];
} Pending;

struct Proofs {
    int64_t wanted;
    bool is_first; /* rank */
    Config config;
    Pending *list;
    int64_t latest_step; /* of the newest record; -1: there is none yet */
    json_t *latest;      /* that record, on the first rank */
};

Proofs *proofs_open(const Trainer *trainer) {
    if (trainer->config.checkpoint.proof_steps == 0) return NULL;
    Proofs *proofs = calloc(1, sizeof *proofs);
    if (!proofs) {
        log_warn("out of memory: there will be no " PROOF_FILE);
        return NULL;
    }
    proofs->wanted = trainer->config.checkpoint.proof_steps;
    proofs->is_first = group_rank(trainer->grid, GROUP_GRID) == 0;
    proofs->config = trainer->config;
    proofs->latest_step = -1;
    return proofs;
}

static void pending_free(Pending *pending) {
    json_decref(pending->proof);
    free(pending);
}

/* ---- where a proof is there already ---- */

static const char *text_of(const json_t *proof, const char *key) {
    return json_string_value(json_object_get(proof, key));
}

/* Whether two proofs' steps should have the same bits: same program, text and options that decide,
 * and sums that don't depend on the layout. */
static bool comparable(const Proofs *proofs, const json_t *there, const json_t *here) {
    Config before;
    if (!identity_same_program(text_of(there, "identity"), text_of(here, "identity")) ||
        !record_equal(there, here, "data"))
        return false;
    if (strcmp(proofs->config.grid.reduction, "exact") && !record_equal(there, here, "layout"))
        return false;
    config_defaults(&before);
    if (config_read_text(&before, text_of(there, "config"), PROOF_FILE)) return false;
    char *changes = record_config_changes(&proofs->config, &before);
    bool same = !changes;
    free(changes);
    return same;
}

static void warn(const Pending *pending, const json_t *there, const char *what) {
    log_warn(
        "%s/" PROOF_FILE ": step %lld isn't what it was: %s; memory, hardware or a library has "
        "gone wrong, then or now: weft replay tells which",
        pending->directory, (long long)json_integer_value(json_object_get(there, "step")), what);
}

static void compare(const Proofs *proofs, const Pending *pending) {
    char text[512];
    json_t *proof;
    if (proof_file_read(pending->directory, &proof)) {
        log_warn("%s: the steps after it can't be compared", error_message());
        return;
    }
    if (comparable(proofs, proof, pending->proof)) {
        const json_t *there = json_object_get(proof, "start");
        bool differs =
            record_difference(there, json_object_get(pending->proof, "start"), text, sizeof text);
        const json_t *old = json_object_get(proof, "steps");
        const json_t *new = json_object_get(pending->proof, "steps");
        for (size_t i = 0; !differs && i < json_array_size(old) && i < json_array_size(new); i++) {
            there = json_array_get(old, i);
            differs = record_difference(there, json_array_get(new, i), text, sizeof text);
        }
        if (differs)
            warn(pending, there, text);
        else
            log_info("the steps after %s are those of its proof", pending->directory);
    }
    json_decref(proof);
}

/* ---- the list ---- */

/* The first rank's end of a proof whose checkpoint is published. A present error stays as it is. */
static void settle(const Proofs *proofs, const Pending *pending) {
    if (json_array_size(json_object_get(pending->proof, "steps")) == 0 ||
        !files_is_directory(pending->directory))
        return;
    ErrorState present;
    error_keep(&present);
    if (proof_file_exists(pending->directory)) {
        compare(proofs, pending);
    } else if (proof_file_write(pending->proof, pending->directory)) {
        if (files_is_directory(pending->directory)) log_warn("%s", error_message());
    }
    error_restore(&present);
}

/* Whether nothing more will come of it here. */
static bool is_over(const Proofs *proofs, const Pending *pending) {
    return pending->left == 0 && (!proofs->is_first || pending->published || pending->failed);
}

static void settle_all(Proofs *proofs) {
    for (Pending **at = &proofs->list; *at;) {
        Pending *pending = *at;
        if (!is_over(proofs, pending)) {
            at = &pending->next;
            continue;
        }
        if (proofs->is_first && pending->published && !pending->failed) settle(proofs, pending);
        *at = pending->next;
        pending_free(pending);
    }
}

static json_t *begin_proof(const Proofs *proofs, const Trainer *trainer) {
    char *config = config_format(&trainer->config), layout[64];
    snprintf(layout, sizeof layout, "tp %d x dp %d", trainer->grid->tp, trainer->grid->dp);
    json_t *proof = config ? proof_file_begin(trainer->step, record_state_of(proofs->latest),
                                              config, identity_text(), layout, trainer->data_digest)
                           : NULL;
    if (!proof) error_set(WEFT_RUNTIME, "out of memory: " PROOF_FILE);
    free(config);
    return proof;
}

static void take_latest(Proofs *proofs, json_t *record, int64_t step) {
    json_decref(proofs->latest);
    proofs->latest = record;
    proofs->latest_step = step;
}

static bool is_begun(const Proofs *proofs, int64_t step) {
    for (const Pending *pending = proofs->list; pending; pending = pending->next)
        if (pending->step == step) return true;
    return false;
}

int proofs_begin(Proofs *proofs, Trainer *trainer, const char *directory) {
    if (!proofs || is_begun(proofs, trainer->step)) return 0;
    json_t *record = NULL;
    int status = 0;
    if (proofs->latest_step != trainer->step) {
        status = record_state(trainer, &record);
        if (status) return status;
        take_latest(proofs, record, trainer->step);
    }
    Pending *pending = calloc(1, sizeof *pending);
    if (!pending) status = error_set(WEFT_RUNTIME, "out of memory: " PROOF_FILE);
    if (!status && strlen(directory) >= FILES_PATH)
        status = error_set(WEFT_USAGE, "path too long: %s", directory);
    if (!status && proofs->is_first) {
        pending->proof = begin_proof(proofs, trainer);
        if (!pending->proof) status = WEFT_RUNTIME;
    }
    status = comm_agree(trainer->grid, GROUP_GRID, status);
    if (status) {
        if (pending) pending_free(pending);
        return status;
    }
    memcpy(pending->directory, directory, strlen(directory) + 1);
    pending->step = trainer->step;
    pending->left = proofs->wanted;
    pending->next = proofs->list;
    proofs->list = pending;
    return 0;
}

int proofs_step(Proofs *proofs, Trainer *trainer, const StepReport *report) {
    bool wanted = false;
    for (Pending *pending = proofs ? proofs->list : NULL; pending; pending = pending->next)
        wanted = wanted || pending->left > 0;
    if (!wanted) return 0;
    json_t *record;
    int status = record_step(trainer, report, &record);
    if (status) return status;
    take_latest(proofs, record, trainer->step);
    for (Pending *pending = proofs->list; pending; pending = pending->next) {
        if (pending->left == 0) continue;
        pending->left--;
        if (proofs->is_first &&
            json_array_append(json_object_get(pending->proof, "steps"), record)) {
            log_warn("out of memory: step %lld has no " PROOF_FILE, (long long)pending->step);
            pending->failed = true;
        }
    }
    settle_all(proofs);
    return 0;
}

void proofs_published(Proofs *proofs, int64_t step, bool published) {
    if (!proofs) return;
    for (Pending *pending = proofs->list; pending; pending = pending->next) {
        if (pending->step != step) continue;
        pending->published = published;
        pending->failed = pending->failed || !published;
    }
    settle_all(proofs);
}

void proofs_close(Proofs *proofs) {
    if (!proofs) return;
    for (Pending *pending = proofs->list; pending; pending = pending->next) pending->left = 0;
    settle_all(proofs);
    while (proofs->list) {
        Pending *pending = proofs->list;
        proofs->list = pending->next;
        pending_free(pending);
    }
    json_decref(proofs->latest);
    free(proofs);
}
