#include "run/convert.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/log.h"
#include "checkpoint/manifest.h"
#include "run/place.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const ConvertRequest *request;
    Place place;
    Weights source, target;
    Packing packing; /* the target's */
    Hash128 digest;  /* of the source, before */
    real *block, *again;
    int64_t room; /* elements of each */
} Work;

/* ---- what is asked for ---- */

/* An option for the parts of a layout that neither side has. */
static int check_unused(const ConvertRequest *request, PackingCut from, PackingCut to) {
    bool shards = from == PACKING_SHARDS || to == PACKING_SHARDS;
    bool ranks = from == PACKING_RANKS || to == PACKING_RANKS;
    if (request->shards && !shards)
        return error_set(WEFT_USAGE, "--shards %d: neither layout has shards", request->shards);
    if (request->ranks && !ranks)
        return error_set(WEFT_USAGE, "--ranks %d: neither layout has ranks", request->ranks);
    return 0;
}

static int open_source(Work *work) {
    const ConvertRequest *request = work->request;
    WeightsDeclaration declaration = request->source;
    const PackingLayout *to = packing_layout_find(request->layout);
    if (!to)
        return error_set(WEFT_USAGE, "--to %s: there is no such layout; there are %s",
                         request->layout, packing_layout_list());
    declaration.parts[PACKING_SHARDS] = to->cut == PACKING_SHARDS ? 0 : request->shards;
    declaration.parts[PACKING_RANKS] = to->cut == PACKING_RANKS ? 0 : request->ranks;
    int status = weights_open(&work->source, &declaration);
    return status ? status : check_unused(request, work->source.packing.layout->cut, to->cut);
}

/* As many shards as the checkpoint's grid has of these channels. */
static int default_shards(const Weights *source) {
    if (source->packing.layout->cut == PACKING_SHARDS) return source->packing.parts;
    if (!source->is_checkpoint) return 0;
    return shard_count(source->packing.d_ff, source->reader.catalog.grid_tensor);
}

static int plan_target(Work *work) {
    const ConvertRequest *request = work->request;
    Packing *packing = &work->packing;
    *packing = work->source.packing;
    packing->layout = packing_layout_find(request->layout);
    packing->names = packing_names_find(request->names ? request->names : packing_names[0].name);
    if (!packing->names)
        return error_set(WEFT_USAGE, "--names %s: there are no such names; there are %s",
                         request->names, packing_names_list());
    packing->parts = 1;
    if (packing->layout->cut == PACKING_SHARDS)
        packing->parts = request->shards ? request->shards : default_shards(&work->source);
    if (packing->layout->cut == PACKING_RANKS) packing->parts = request->ranks;
    if (packing->parts == 0)
        return error_set(WEFT_USAGE, "--to %s: --%s N is needed", packing->layout->name,
                         packing->layout->cut == PACKING_RANKS ? "ranks" : "shards");
    return packing_check(packing);
}

/* ---- blocks ---- */

typedef int EachBlock(Work *work, int layer, PackingProjection projection, bool bias,
                      ParamPiece block);

static int each_of_tensor(Work *work, int layer, PackingProjection projection, bool bias,
                          EachBlock *each) {
    int64_t rows, cols;
    int status = 0;
    packing_shape(&work->packing, projection, bias, &rows, &cols);
    int64_t at_once = work->room / cols;
    for (int64_t row = 0; !status && row < rows; row += at_once) {
        ParamPiece block = {row, 0, rows - row < at_once ? rows - row : at_once, cols};
        status = each(work, layer, projection, bias, block);
    }
    return status;
}

static int each_block(Work *work, EachBlock *each) {
    int status = 0;
    for (int layer = 0; layer < work->packing.layers; layer++)
        for (int p = 0; p < PACKING_PROJECTIONS; p++)
            for (int bias = 0; !status && bias < 2; bias++)
                if (packing_has(&work->packing, (PackingProjection)p, bias))
                    status = each_of_tensor(work, layer, (PackingProjection)p, bias, each);
    return status;
}

static int copy_block(Work *work, int layer, PackingProjection projection, bool bias,
                      ParamPiece block) {
    int status = weights_read(&work->source, layer, projection, bias, block, work->block);
    if (fault_take_of("bitflip", PHASE_SAVE, layer)) *(unsigned char *)work->block ^= 16;
    return status ? status
                  : packing_write(&work->target.file, layer, projection, bias, block, work->block);
}

static int compare_block(Work *work, int layer, PackingProjection projection, bool bias,
                         ParamPiece block) {
    int status = weights_read(&work->source, layer, projection, bias, block, work->block);
    if (!status) status = weights_read(&work->target, layer, projection, bias, block, work->again);
    if (status ||
        !memcmp(work->block, work->again, (size_t)(block.rows * block.cols) * sizeof *work->block))
        return status;
    return error_set(WEFT_CHECK, "layer %d: %s of %s differs in rows %" PRId64 " to %" PRId64,
                     layer, bias ? "the bias" : "the weight", packing_projections[projection],
                     block.row, block.row + block.rows - 1);
}

static int allocate(Work *work) {
    const Packing *packing = &work->packing;
    int64_t widest = packing->d_ff > packing->d_model ? packing->d_ff : packing->d_model;
    int64_t largest = packing->d_ff * packing->d_model;
    work->room = work->request->elements ? work->request->elements : CONVERT_ELEMENTS;
    if (work->room > largest) work->room = largest;
    if (work->room < widest) work->room = widest;
    work->block = memory_allocate(2 * (size_t)work->room * sizeof *work->block, "two blocks");
    work->again = work->block ? work->block + work->room : NULL;
    return work->block ? 0 : WEFT_RUNTIME;
}

/* ---- proofs ---- */

/* XXH3-128 of a file's bytes; of a checkpoint's manifest, which holds the digests of all else. */
static int digest_source(const Weights *source, Hash128 *digest) {
    enum { CHUNK = 1 << 20 };
    char path[FILES_PATH];
    int status = source->is_checkpoint ? files_join(path, sizeof path, source->path, MANIFEST_FILE)
                                       : files_join(path, sizeof path, "", source->path);
    if (status) return status;
    FILE *file = fopen(path, "rb");
    if (!file) return error_set(WEFT_INPUT, "%s: can't read: %s", path, strerror(errno));
    char *chunk = malloc(CHUNK);
    HashStream *stream = hash_stream_begin();
    for (size_t size = 1; chunk && stream && size > 0;) {
        size = fread(chunk, 1, CHUNK, file);
        hash_stream_add(stream, chunk, size);
    }
    if (!chunk || !stream) status = error_set(WEFT_RUNTIME, "out of memory: digest of %s", path);
    if (ferror(file)) status = error_set(WEFT_INPUT, "%s: can't read", path);
    *digest = hash_stream_end(stream);
    free(chunk);
    fclose(file);
    return status;
}

static int check_unchanged(const Work *work) {
    Hash128 now;
    int status = digest_source(&work->source, &now);
    if (status || hash_equal(now, work->digest)) return status;
    return error_set(WEFT_INPUT, "%s: has changed while it was read; nothing is published",
                     work->source.path);
}

int convert_compare_rows(Weights *a, Weights *b) {
    KnownRowPath path[] = {weights_path(a), weights_path(b)};
    int layers = (int)a->packing.layers;
    int status = known_row_compare_paths(&path[0], &path[1], &a->ffn, layers);
    if (status || !weights_symmetric(a)) return status;
    Ffn ordered = a->ffn;
    ordered.kind = ffn_find("gated");
    ordered.config.branches = (Branches){.activation = activation_find("silu"), .beta = 1};
    status = known_row_compare_paths(&path[0], &path[1], &ordered, layers);
    return status == WEFT_CHECK ? error_prefix(status, "through a SwiGLU of the same weights: ")
                                : status;
}

static int check_against(Work *work) {
    Weights other = {0};
    WeightsDeclaration declaration = {.path = work->request->against};
    if (!work->request->against) return 0;
    int status = weights_open(&other, &declaration);
    if (!status) status = weights_check_same(&other, &work->source);
    if (!status) status = convert_compare_rows(&other, &work->source);
    weights_close(&other);
    return status;
}

/* Opens what was made as a stranger would, by what it says of itself. */
static int prove(Work *work) {
    WeightsDeclaration declaration = {.path = work->place.made};
    int status = weights_open(&work->target, &declaration);
    if (!status) status = weights_check_same(&work->source, &work->target);
    if (!status) status = convert_compare_rows(&work->source, &work->target);
    if (!status) status = each_block(work, compare_block);
    if (status == WEFT_CHECK)
        status = error_set(WEFT_RUNTIME, "%s; nothing is published", error_message());
    return status ? status : check_unchanged(work);
}

/* ---- doing it ---- */

static int64_t target_bytes(const Packing *packing) {
    int64_t rows, cols, elements = 0;
    for (int p = 0; p < PACKING_PROJECTIONS; p++)
        for (int bias = 0; bias < 2; bias++) {
            if (!packing_has(packing, (PackingProjection)p, bias)) continue;
            packing_shape(packing, (PackingProjection)p, bias, &rows, &cols);
            elements += rows * cols;
        }
    return packing->layers * elements * (int64_t)sizeof(real);
}

static int write_target(Work *work) {
    json_t *notes = weights_notes(&work->source, &work->packing);
    if (!notes) return error_set(WEFT_RUNTIME, "out of memory: attributes");
    int status = packing_create(&work->target.file, &work->packing, "", work->place.made, notes);
    if (!status) status = each_block(work, copy_block);
    if (!status) status = hdf5_finish(&work->target.file.file);
    packing_close(&work->target.file);
    json_decref(notes);
    return status;
}

static int build(Work *work) {
    int status = digest_source(&work->source, &work->digest);
    if (!status) status = write_target(work);
    if (!status) status = fault_point(PHASE_SAVE);
    if (!status) status = prove(work);
    return status ? status : place_publish(&work->place);
}

static void tell_side(const char *path, const Packing *packing) {
    char parts[32] = "";
    if (packing->layout->cut != PACKING_WHOLE)
        snprintf(parts, sizeof parts, ", %d %s", packing->parts,
                 packing->layout->cut == PACKING_RANKS ? "ranks" : "shards");
    log_print("%s: %s (%s)%s, names %s\n", path, packing->layout->name, packing->layout->order_text,
              parts, packing->names->name);
}

static void tell(const Work *work) {
    const Packing *packing = &work->packing;
    tell_side(work->source.path, &work->source.packing);
    tell_side(work->place.out, packing);
    if (weights_symmetric(&work->source))
        log_print("gate and up can change places in this FFN: the known row went through a SwiGLU "
                  "of the same weights too\n");
    if (work->request->against) log_print("known row: as through %s\n", work->request->against);
    log_print("known row: the same through both; %" PRId64 " layers, %" PRId64
              " bytes: every element the same\n",
              packing->layers, target_bytes(packing));
}

static int run(Work *work) {
    int status = place_check_space(&work->place, target_bytes(&work->packing));
    if (!status) status = allocate(work);
    if (!status) status = place_begin(&work->place);
    if (!status) status = build(work);
    weights_close(&work->target);
    place_leave(&work->place);
    if (!status) tell(work);
    free(work->block);
    return status;
}

int convert_weights(const ConvertRequest *request) {
    Work *work = calloc(1, sizeof *work);
    if (!work) return error_set(WEFT_RUNTIME, "out of memory: convert");
    work->request = request;
    int status = place_choose(&work->place, request->out);
    if (!status) status = place_check_source(&work->place, request->source.path);
    if (!status) status = place_check_source(&work->place, request->against);
    if (!status) status = open_source(work);
    if (!status) status = plan_target(work);
    if (!status) status = check_against(work);
    if (!status) status = run(work);
    weights_close(&work->source);
    free(work);
    return status;
}
