#include "run/static.h"

#include "base/error.h"
#include "checkpoint/manifest.h"
#include "checkpoint/reader.h"
#include "checkpoint/verify.h"
#include "checkpoint/view.h"
#include "run/declared.h"
#include "run/reconcile.h"
#include "run/setup.h"

#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_ELEMENTS = 1 << 16
}; /* of a bias, or of its weight's moments, that are read at once */

typedef struct {
    const char *directory;
    StaticReport *report;
    json_t *manifest;
    Catalog catalog;
    Declared declared;
    Model model; /* declared, no memory */
} Static;

static void tell(void *context, const char *problem) {
    findings_add(&((Static *)context)->report->findings, "%s", problem);
}

/* The present error is a finding, unless it isn't the checkpoint's fault. */
static int note(Static *work, int status) {
    if (status && status != WEFT_RUNTIME) {
        tell(work, error_message());
        status = 0;
    }
    return status;
}

/* ---- the manifest ---- */

static void move(Findings *from, Findings *to) {
    for (int i = 0; i < from->count; i++) findings_add(to, "%s", from->text[i]);
}

static int read_manifest(Static *work) {
    int status = declared_read(work->manifest, &work->declared);
    move(&work->declared.findings, &work->report->findings);
    move(&work->declared.notes, &work->report->notes);
    work->report->blocks = work->declared.blocks;
    if (work->declared.older)
        findings_add(&work->report->notes,
                     "an older program wrote this manifest: fields that it had no words for stand "
                     "for what was the only choice then");
    return status;
}

/* ---- the tensors ---- */

static int compare_tensors(Static *work) {
    const Config *config = &work->declared.config;
    const Catalog *catalog = &work->catalog;
    if (!work->declared.usable) return 0;
    if (config->model.layers > catalog->tensors) { /* nothing that large is built for it */
        findings_add(&work->report->findings,
                     "function.model.layers is %lld, there are no more than %d tensors",
                     (long long)config->model.layers, catalog->tensors);
        return 0;
    }
    ModelConfig shape = setup_model(config, 1, 1);
    int status = model_declare(&work->model, &shape, 0, 1);
    if (status) return note(work, status);
    bool tied = !strcmp(config->model.kind, "decoder") && config->model.tie_embeddings;
    reconcile_tensors(&work->model.set, tied, catalog, &work->report->findings);
    if (catalog->roles == 1)
        findings_add(&work->report->notes, "values alone, without moments: to evaluate or start "
                                           "from, not to resume");
    return 0;
}

/* ---- the files' structure ---- */

static int check_shard_file(Static *work, int t, int d) {
    Hdf5File file;
    char name[CATALOG_FILE], path[FILES_PATH];
    catalog_file_name(t, d, name);
    if (!files_join(path, sizeof path, work->directory, name) && !files_exists(path))
        return 0; /* told already */
    int status = store_open(&file, work->directory, t, d);
    if (status) return note(work, status);
    status = note(work, store_check_names(&file, &work->catalog, t, d));
    Range entries = catalog_file_entries(&work->catalog, t, d);
    for (int64_t i = entries.begin; i < entries.end && !status; i++)
        status = note(work, store_check(&file, &work->catalog, &work->catalog.entry[i]));
    hdf5_close(&file);
    work->report->files++;
    work->report->datasets += range_size(entries);
    return status;
}

static int check_view(Static *work) {
    const Catalog *catalog = &work->catalog;
    Hdf5File file;
    int status = view_open(&file, catalog, work->directory);
    if (status) return note(work, status);
    status = note(work, view_check_names(&file, catalog));
    for (int role = 0; role < catalog->roles; role++)
        for (int tensor = 0; tensor < catalog->tensors && !status; tensor++)
            status = note(work, view_check_structure(&file, catalog, role, tensor));
    hdf5_close(&file);
    work->report->files++;
    return status;
}

static int check_files(Static *work) {
    int missing = verify_files(work->directory, tell, work), status = 0;
    for (int t = 0; t < work->catalog.grid_tensor && !status; t++)
        for (int d = 0; d < work->catalog.grid_data && !status; d++)
            status = check_shard_file(work, t, d);
    return status || missing ? status : check_view(work);
}

/* ---- biases that were filled with zeros ---- */

/* Whether one role of a tensor is zero throughout. Reads until it isn't. */
static int is_zero(Reader *reader, int role, int tensor, real *block, bool *zero) {
    const CatalogTensor *whole = &reader->catalog.tensor[tensor];
    int64_t cols = whole->cols < BLOCK_ELEMENTS ? whole->cols : BLOCK_ELEMENTS;
    int64_t rows = BLOCK_ELEMENTS / cols;
    *zero = true;
    for (int64_t row = 0; row < whole->rows; row += rows)
        for (int64_t col = 0; col < whole->cols && *zero; col += cols) {
            ParamPiece part = {row, col, rows, cols};
            if (part.rows > whole->rows - row) part.rows = whole->rows - row;
            if (part.cols > whole->cols - col) part.cols = whole->cols - col;
            int status = reader_block(reader, role, tensor, part, block);
            if (status) return status;
            for (int64_t i = 0; i < part.rows * part.cols; i++) *zero = *zero && block[i] == 0;
        }
    return 0;
}

/* The weight of a bias's projection, or -1. */
static int weight_of(const Catalog *catalog, const char *bias) {
    char name[PARAM_NAME + 8];
    snprintf(name, sizeof name, "%.*sweight", (int)(strlen(bias) - strlen("bias")), bias);
    return catalog_find(catalog, name);
}

static int check_bias(Static *work, Reader *reader, int tensor, real *block) {
    enum { VALUE = 0, MOMENT2 = 2 };
    const char *name = reader->catalog.tensor[tensor].name;
    int weight = weight_of(&reader->catalog, name);
    bool zero, untrained = true, idle = true;
    int status = is_zero(reader, VALUE, tensor, block, &zero);
    if (status || !zero) return status;
    status = is_zero(reader, MOMENT2, tensor, block, &untrained);
    if (!status && weight >= 0) status = is_zero(reader, MOMENT2, weight, block, &idle);
    if (!status && !(untrained && idle))
        findings_add(&work->report->findings,
                     "bias %s is zero-filled: %s was trained (its second moment isn't zero), and "
                     "training doesn't leave a bias at zero",
                     name, untrained ? reader->catalog.tensor[weight].name : "it");
    return status;
}

static int check_biases(Static *work) {
    Reader reader;
    real *block = NULL;
    bool told = work->catalog.roles == CATALOG_ROLES && manifest_step(work->manifest) > 0 &&
                work->declared.config.optim.lr > 0;
    int status = reader_open(&reader, work->directory);
    if (!status) {
        block = memory_allocate(BLOCK_ELEMENTS * sizeof *block, "a block of a bias");
        status = block ? 0 : WEFT_RUNTIME;
    }
    for (int i = 0; i < reader.catalog.tensors && !status; i++) {
        if (!reconcile_is_bias(reader.catalog.tensor[i].name)) continue;
        work->report->biases++;
        if (told) status = check_bias(work, &reader, i, block);
    }
    free(block);
    reader_close(&reader);
    return note(work, status);
}

/* ---- all of it ---- */

int static_verify(const char *directory, StaticReport *report) {
    Static work = {.directory = directory, .report = report};
    *report = (StaticReport){0};
    int before = 0, status = manifest_open(directory, &work.manifest, &work.catalog);
    if (status) {
        note(&work, WEFT_INPUT);
        goto done;
    }
    report->tensors = work.catalog.tensors;
    report->roles = work.catalog.roles;
    status = read_manifest(&work);
    if (!status) status = compare_tensors(&work);
    before = report->findings.count;
    if (!status) status = check_files(&work);
    if (!status && report->findings.count == before) status = check_biases(&work);
done:
    declared_release(&work.declared);
    model_forget(&work.model);
    json_decref(work.manifest);
    catalog_release(&work.catalog);
    if (status && status != WEFT_INPUT) return status;
    return report->findings.count ? error_set(WEFT_CHECK, "%s", report->findings.text[0]) : 0;
}

void static_release(StaticReport *report) {
    findings_release(&report->findings);
    findings_release(&report->notes);
}
