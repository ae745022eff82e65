/* What weft gradcheck prints: a row for each tensor, and the verdict. */
#ifndef WEFT_RUN_GRADCHECK_TABLE_H
#define WEFT_RUN_GRADCHECK_TABLE_H

#include "comm/comm.h"
#include "math/slope.h"
#include "param/param.h"

typedef struct {
    int64_t row, col; /* in the whole tensor */
    double gradient;
    SlopeAnswer answer;
} GradcheckElement;

typedef struct {
    const char *name;
    int rank; /* 0: no tensor */
    int64_t rows, cols;
    int shards;
    int64_t elements, skipped, wrong; /* skipped: those that the answer is unsure of */
    GradcheckElement worst;           /* with the largest error */
} GradcheckRow;

typedef struct {
    char tensor[PARAM_NAME]; /* with the largest error */
    double error;
    int64_t elements, skipped; /* of the tensors */
    int rows, wrong;           /* rows of the table, and those that aren't good */
} GradcheckResult;

typedef struct {
    double bound;
    GradcheckResult *result;
    int name_width, layer; /* layout of the rows; the layer that they are in, -1: none */
    int64_t blind;         /* directions of the whole step that told nothing */
    bool failed;
    char reason[2 * PARAM_NAME + 256]; /* of the first row that isn't good */
} GradcheckTable;

/* Takes one element into its row. */
void gradcheck_row_add(GradcheckRow *row, const GradcheckElement *element);

/* Prints on the rank that is heard: the head, a row and the verdict. */
void gradcheck_table_begin(GradcheckTable *table, const ParamSet *set);
void gradcheck_table_add(GradcheckTable *table, const GradcheckRow *row);
/* 0, or WEFT_CHECK naming the first tensor that isn't good. */
int gradcheck_table_end(GradcheckTable *table, const Grid *grid);

#endif
