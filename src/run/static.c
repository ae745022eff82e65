#include "run/static.h"

#include "base/error.h"
#include "checkpoint/manifest.h"
#include "checkpoint/reader.h"
#include "checkpoint/verify.h"
#include "checkpoint/view.h"
#include "run/declared.h"
#include "run/reconcile.h"
#include "run/setup.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_ELEMENTS = 1 << 16 }; /* of a bias or of moments that are read at once */

static const double SMALLEST = sizeof(real) == 8 ? DBL_MIN : FLT_MIN;

/* Of the last update. */
typedef struct {
    double rate, eps;
} Pace;

typedef struct {
    const char *directory;
    StaticReport *report;
    json_t *manifest;
    Catalog catalog;
    Declared declared;
    Model model; /* declared, no memory */
    Pace pace;
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

/* A file that is kept elsewhere isn't kept with the checkpoint. */
static void check_place(Static *work, const char *name) {
    char path[FILES_PATH], place[PATH_MAX], inside[PATH_MAX];
    size_t length;
    if (files_join(path, sizeof path, work->directory, name) || !realpath(path, place) ||
        !realpath(work->directory, inside))
        return; /* missing: told already */
    length = strlen(inside);
    if (strncmp(place, inside, length) || place[length] != '/')
        findings_add(&work->report->findings, "%s: is a link to %s, out of the checkpoint", path,
                     place);
}

static void check_places(Static *work) {
    FileNames names = {0};
    if (files_list(work->directory, &names)) return; /* told already */
    for (int i = 0; i < names.count; i++) check_place(work, names.name[i]);
    files_names_release(&names);
}

static int check_files(Static *work) {
    int missing = verify_files(work->directory, tell, work), status = 0;
    check_places(work);
    for (int t = 0; t < work->catalog.grid_tensor && !status; t++)
        for (int d = 0; d < work->catalog.grid_data && !status; d++)
            status = check_shard_file(work, t, d);
    return status || missing ? status : check_view(work);
}

/* ---- biases that were filled with zeros ---- */

/* A tensor in parts of BLOCK_ELEMENTS at most, row after row; one without rows comes last. */
static ParamPiece next_part(const CatalogTensor *whole, ParamPiece part) {
    int64_t cols = whole->cols < BLOCK_ELEMENTS ? whole->cols : BLOCK_ELEMENTS;
    int64_t rows = BLOCK_ELEMENTS / cols;
    part.col += part.cols;
    if (part.col >= whole->cols) {
        part.col = 0;
        part.row += part.rows;
    }
    part.rows = whole->rows - part.row < rows ? whole->rows - part.row : rows;
    part.cols = whole->cols - part.col < cols ? whole->cols - part.col : cols;
    return part;
}

static ParamPiece first_part(const CatalogTensor *whole) {
    return next_part(whole, (ParamPiece){0, 0, 0, 0});
}

/* Whether a tensor's values are zero throughout. Reads until one isn't. */
static int is_zero(Reader *reader, int tensor, real *block, bool *zero) {
    enum { VALUE = 0 };
    const CatalogTensor *whole = &reader->catalog.tensor[tensor];
    *zero = true;
    for (ParamPiece part = first_part(whole); part.rows && *zero; part = next_part(whole, part)) {
        int status = reader_block(reader, VALUE, tensor, part, block);
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

/* What the moments of a tensor tell of the updates that they were made in. */
typedef enum {
    IDLE,   /* there was no gradient */
    UNSURE, /* there was, but at the last rate an update may have vanished in rounding */
    MOVED   /* the last update, by this size, left no zero */
} Motion;

/* The size of AdamW's last update of a cell (optim/adamw.h, without its bias correction) is rate *
 * |moment 1| / (sqrt(moment 2) + eps). Reads until one is seen that `real` can hold. */
static int look_for_motion(Reader *reader, int tensor, const Pace *pace, real *block,
                           Motion *motion) {
    enum { MOMENT1 = 1, MOMENT2 = 2 };
    const CatalogTensor *whole = &reader->catalog.tensor[tensor];
    *motion = IDLE;
    for (ParamPiece part = first_part(whole); part.rows && *motion != MOVED;
         part = next_part(whole, part)) {
        real *moment1 = block, *moment2 = block + BLOCK_ELEMENTS;
        int status = reader_block(reader, MOMENT1, tensor, part, moment1);
        if (!status) status = reader_block(reader, MOMENT2, tensor, part, moment2);
        if (status) return status;
        for (int64_t i = 0; i < part.rows * part.cols && *motion != MOVED; i++) {
            if (moment2[i] == 0) continue;
            double size = fabs((double)moment1[i]) / (sqrt((double)moment2[i]) + pace->eps);
            *motion = pace->rate * size >= SMALLEST ? MOVED : UNSURE;
        }
    }
    return 0;
}

static void tell_of_zeros(Static *work, const char *bias, const char *trained, Motion motion) {
    if (motion == MOVED)
        findings_add(&work->report->findings,
                     "bias %s is zero-filled: %s was trained (its second moment isn't zero), and "
                     "training doesn't leave a bias at zero",
                     bias, trained);
    else if (motion == UNSURE)
        findings_add(&work->report->notes,
                     "bias %s is zero, though %s was trained: at a rate of %.3g that isn't proof "
                     "of a zero-fill",
                     bias, trained, work->pace.rate);
}

static int check_bias(Static *work, Reader *reader, int tensor, real *block) {
    const char *name = reader->catalog.tensor[tensor].name;
    int weight = weight_of(&reader->catalog, name);
    Motion own = IDLE, beside = IDLE;
    bool zero;
    int status = is_zero(reader, tensor, block, &zero);
    if (status || !zero) return status;
    status = look_for_motion(reader, tensor, &work->pace, block, &own);
    if (!status && own != MOVED && weight >= 0)
        status = look_for_motion(reader, weight, &work->pace, block, &beside);
    if (status) return status;
    if (own >= beside)
        tell_of_zeros(work, name, "it", own);
    else
        tell_of_zeros(work, name, reader->catalog.tensor[weight].name, beside);
    return 0;
}

/* Of the last step, by the config. */
static Pace pace_of(const Config *config, int64_t step) {
    Schedule schedule = setup_schedule(config);
    return (Pace){schedule_rate(&schedule, step > 0 ? step - 1 : 0), config->optim.eps};
}

static int check_biases(Static *work) {
    Reader reader;
    real *block = NULL;
    bool told = work->catalog.roles == CATALOG_ROLES && manifest_step(work->manifest) > 0 &&
                work->declared.config.optim.lr > 0;
    int status = reader_open(&reader, work->directory);
    if (!status) {
        work->pace = pace_of(&work->declared.config, manifest_step(work->manifest));
        block = memory_allocate(2 * BLOCK_ELEMENTS * sizeof *block, "blocks of moments");
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
    if (!status || status == WEFT_INPUT) status = findings_whole(&report->findings);
    if (status) return status;
    return report->findings.count ? error_set(WEFT_CHECK, "%s", report->findings.text[0]) : 0;
}

void static_release(StaticReport *report) {
    findings_release(&report->findings);
    findings_release(&report->notes);
}
