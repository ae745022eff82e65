#include "run/gradcheck_table.h"

#include "base/error.h"
#include "base/log.h"
#include "nn/layer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void gradcheck_row_add(GradcheckRow *row, const GradcheckElement *element) {
    row->elements++;
    row->skipped += element->answer.verdict == SLOPE_UNSURE;
    row->wrong += element->answer.verdict == SLOPE_WRONG;
    bool first = row->elements - row->skipped == 1;
    if (element->answer.verdict == SLOPE_UNSURE) return;
    if (first || !(element->answer.error <= row->worst.answer.error)) row->worst = *element;
}

void gradcheck_table_begin(GradcheckTable *table, const ParamSet *set) {
    table->layer = -1;
    table->name_width = (int)strlen("the whole step, in some directions");
    for (int p = 0; p < set->count; p++) {
        int layer, length = (int)strlen(layer_split_name(set->param[p].name, &layer));
        length += layer < 0 ? 0 : 2;
        if (length > table->name_width) table->name_width = length;
    }
    log_print("%-*s %-10s %6s %8s %7s  %s\n", table->name_width, "tensor", "shape", "shards",
              "checked", "error", "at");
}

static void describe_place(int rank, int64_t row, int64_t col, char *text, size_t capacity) {
    if (rank == 2)
        snprintf(text, capacity, "[%lld, %lld]", (long long)row, (long long)col);
    else if (rank == 1)
        snprintf(text, capacity, "[%lld]", (long long)col);
    else
        snprintf(text, capacity, "-");
}

/* Something of a tensor must have been checked. A direction crosses the kinks of all units. */
static bool is_good(const GradcheckRow *row) {
    return !row->wrong && (row->skipped < row->elements || !row->rank);
}

static void count_row(GradcheckTable *table, const GradcheckRow *row) {
    GradcheckResult *result = table->result;
    bool sure = row->skipped < row->elements;
    result->rows++;
    if (row->rank) {
        result->elements += row->elements;
        result->skipped += row->skipped;
    } else {
        table->blind += row->skipped;
    }
    if (sure && (!result->tensor[0] || !(row->worst.answer.error <= result->error))) {
        result->error = row->worst.answer.error;
        snprintf(result->tensor, sizeof result->tensor, "%s", row->name);
    }
    if (is_good(row)) return;
    result->wrong++;
    if (table->failed) return;
    char place[64];
    describe_place(row->rank, row->worst.row, row->worst.col, place, sizeof place);
    table->failed = true;
    if (!sure)
        snprintf(table->reason, sizeof table->reason,
                 "%s: of none of its elements two step sizes agree (kinks everywhere, or nothing "
                 "but rounding)",
                 row->name);
    else
        snprintf(table->reason, sizeof table->reason,
                 "%s%s%s: gradient %.9g, slope of the loss %.9g", row->name,
                 row->rank ? ", element " : "", row->rank ? place : "", row->worst.gradient,
                 row->worst.answer.slope);
}

void gradcheck_table_add(GradcheckTable *table, const GradcheckRow *row) {
    char shape[64], place[64] = "", shards[16] = "-", checked[64], error[32] = "-";
    int layer;
    const char *name = layer_split_name(row->name, &layer);
    if (layer != table->layer && layer >= 0) log_print("model.layers.%d\n", layer);
    table->layer = layer;
    describe_place(row->rank, row->rows, row->cols, shape, sizeof shape);
    if (row->rank) snprintf(shards, sizeof shards, "%d", row->shards);
    snprintf(checked, sizeof checked, "%lld/%lld", (long long)(row->elements - row->skipped),
             (long long)row->elements);
    if (row->skipped < row->elements) {
        snprintf(error, sizeof error, "%.1e", row->worst.answer.error);
        if (row->rank)
            describe_place(row->rank, row->worst.row, row->worst.col, place, sizeof place);
    }
    log_print("%s%-*s %-10s %6s %8s %7s%s %s\n", layer < 0 ? "" : "  ",
              table->name_width - (layer < 0 ? 0 : 2), name, shape, shards, checked, error,
              is_good(row) ? " " : "!", place);
    count_row(table, row);
}

int gradcheck_table_end(GradcheckTable *table, const Grid *grid) {
    const GradcheckResult *result = table->result;
    log_print("error: |gradient - slope| / the tensor's largest gradient; bound %g\n",
              table->bound);
    if (result->skipped)
        log_print(
            "passed over: %lld of %lld elements: no two step sizes agree (kinks, or rounding\n"
            "where the bound is small)\n",
            (long long)result->skipped, (long long)result->elements);
    if (table->blind)
        log_print("the whole step: nothing known in %lld directions, which cross too many kinks\n",
                  (long long)table->blind);
    if (!table->failed) {
        log_print("gradcheck: pass: %d tensors, %lld elements within %.1e, on tp %d x dp %d\n",
                  result->rows - 1, (long long)(result->elements - result->skipped), result->error,
                  grid->tp, grid->dp);
        return 0;
    }
    log_print("gradcheck: fail: %s\n", table->reason);
    if (result->wrong > 1) log_print("and %d more, marked !\n", result->wrong - 1);
    return error_set(WEFT_CHECK, "%s", table->reason);
}
