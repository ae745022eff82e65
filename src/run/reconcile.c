#include "run/reconcile.h"

#include "base/fault.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool reconcile_is_bias(const char *tensor) {
    size_t length = strlen(tensor);
    return length >= 5 && !strcmp(tensor + length - 5, ".bias");
}

static int axis_of(const Param *param) {
    if (param->split == SPLIT_NONE) return -1;
    return param->split == SPLIT_COLS && param->rank == 2 ? 1 : 0;
}

/* For tests: shapes that pass all the same. */
static bool passes(const Param *param, bool transposed) {
    return (transposed && fault_on("transposed-storage")) ||
           (strstr(param->name, "up_proj") && fault_on("unequal-widths"));
}

static void check_shape(const Param *param, const CatalogTensor *tensor, Findings *findings) {
    char found[PARAM_SHAPE], wanted[PARAM_SHAPE];
    if (param->rank == tensor->rank && param->rows == tensor->rows && param->cols == tensor->cols)
        return;
    bool transposed = param->rank == 2 && tensor->rank == 2 && param->rows == tensor->cols &&
                      param->cols == tensor->rows;
    if (passes(param, transposed)) return;
    param_shape_text(tensor->rank, tensor->rows, tensor->cols, found);
    param_shape_text(param->rank, param->rows, param->cols, wanted);
    findings_add(findings, "tensor %s: shape is %s, by the function %s%s", param->name, found,
                 wanted, transposed ? " ([out, in]): it is transposed" : "");
}

static void check_cut(const Param *param, const CatalogTensor *tensor, Findings *findings) {
    int axis = axis_of(param);
    if (tensor->axis != axis)
        findings_add(findings,
                     "tensor %s: is cut along axis %d, by the function %d (-1: replicated)",
                     param->name, tensor->axis, axis);
    else if (tensor->shards != param->shards)
        findings_add(findings, "tensor %s: is cut into %d shards, by the function %d", param->name,
                     tensor->shards, param->shards);
}

static bool same_piece(const ParamPiece *a, const ParamPiece *b) {
    return a->row == b->row && a->col == b->col && a->rows == b->rows && a->cols == b->cols;
}

/* The first piece that lies elsewhere; all cells are covered once, so there are others then. */
static void check_pieces(const Param *param, const Catalog *catalog, int tensor,
                         Findings *findings) {
    for (int role = 0; role < catalog->roles; role++) {
        const int64_t *first = &catalog->first[role * catalog->tensors + tensor];
        for (int64_t i = first[0]; i < first[1]; i++) {
            char file[CATALOG_FILE];
            const CatalogEntry *entry = &catalog->entry[catalog->by_tensor[i]];
            ParamPiece wanted = param_piece(param, entry->t, catalog->grid_data, entry->d);
            if (same_piece(&entry->piece, &wanted)) continue;
            catalog_file_name(entry->t, entry->d, file);
            findings_add(findings,
                         "tensor %s, %s: its piece in %s is [%" PRId64 ", %" PRId64 "] at [%" PRId64
                         ", %" PRId64 "], by the function [%" PRId64 ", %" PRId64 "] at [%" PRId64
                         ", %" PRId64 "]",
                         param->name, catalog_roles[role].name, file, entry->piece.rows,
                         entry->piece.cols, entry->piece.row, entry->piece.col, wanted.rows,
                         wanted.cols, wanted.row, wanted.col);
            return;
        }
    }
}

static void check_declared(const Param *param, const Catalog *catalog, Findings *findings) {
    int tensor = catalog_find(catalog, param->name), before = findings->count;
    char shape[PARAM_SHAPE];
    param_shape_text(param->rank, param->rows, param->cols, shape);
    if (tensor < 0 && reconcile_is_bias(param->name) && fault_on("bias-zero-filled")) return;
    if (tensor < 0) {
        findings_add(findings, "%s %s is missing; by the function it is %s",
                     reconcile_is_bias(param->name) ? "bias" : "tensor", param->name, shape);
        return;
    }
    check_shape(param, &catalog->tensor[tensor], findings);
    check_cut(param, &catalog->tensor[tensor], findings);
    if (findings->count == before) check_pieces(param, catalog, tensor, findings);
}

static void tell_extra(const char *name, bool tied, Findings *findings) {
    if (tied && !strcmp(name, "lm_head.weight"))
        findings_add(findings,
                     "tensor %s is there, but it is another name of model.embed_tokens.weight "
                     "(model.tie_embeddings)",
                     name);
    else if (reconcile_is_bias(name))
        findings_add(findings, "bias %s is undeclared: by the function there is none", name);
    else
        findings_add(findings, "tensor %s is extra: by the function there is none", name);
}

void reconcile_tensors(const ParamSet *set, bool tied, const Catalog *catalog, Findings *findings) {
    int last = -1;
    bool in_order = true;
    for (int i = 0; i < set->count; i++) check_declared(&set->param[i], catalog, findings);
    for (int i = 0; i < catalog->tensors; i++) {
        int param = params_find(set, catalog->tensor[i].name);
        if (param < 0) tell_extra(catalog->tensor[i].name, tied, findings);
        if (param < 0) continue;
        if (param < last && in_order) {
            findings_add(findings, "tensors: %s comes after %s; by the function before it",
                         set->param[param].name, set->param[last].name);
            in_order = false;
        }
        last = param;
    }
}
