/* FFN weights wherever they lie: in a checkpoint of weft, or in a packed file that weft or another
 * system has written.
 *
 *     weights_open(&weights, &declaration);
 *     weights_read(&weights, layer, projection, bias, block, data) ...   weights_path(&weights)
 *     weights_close(&weights);
 *
 * Layout, names, kind, activation, sizes and biases are never guessed from names or shapes: a
 * checkpoint's manifest says them, and so do the attributes of a file that weft wrote; of any other
 * file they must be declared. What is declared and contradicts what the source says is refused by
 * name. Serial, no MPI. */
#ifndef WEFT_RUN_WEIGHTS_H
#define WEFT_RUN_WEIGHTS_H

#include "checkpoint/packing_file.h"
#include "run/known_row_file.h"

typedef struct {
    const char *path;
    const char *layout, *names;   /* NULL: not declared */
    int parts[PACKING_RANKS + 1]; /* by PackingCut; 0: not declared */
    const char *const *set;       /* "ffn.kind=gated" ...: keys of a config */
    int sets;
} WeightsDeclaration;

typedef struct {
    char path[FILES_PATH]; /* of the file, or of the step directory */
    bool is_checkpoint;
    Ffn ffn;         /* kind and config; no tensors */
    Packing packing; /* a checkpoint's: separate, hf */
    PackingFile file;
    Reader reader;
    Model model;
    KnownRowShards shards;
} Weights;

/* 0; WEFT_USAGE naming what isn't or can't be declared; WEFT_INPUT naming what is missing, damaged,
 * undeclared or contradicted; or WEFT_RUNTIME. */
int weights_open(Weights *weights, const WeightsDeclaration *declaration);
void weights_close(Weights *weights); /* safe after a failure, and on zeroed memory */

/* A block of a projection as packing_read takes it. 0 or WEFT_INPUT. */
int weights_read(Weights *weights, int layer, PackingProjection projection, bool bias,
                 ParamPiece block, real *data);

/* The known row's way through them, as they lie. */
KnownRowPath weights_path(Weights *weights);

/* What a file in this packing says of itself (the notes of packing_create). New reference; NULL
 * when memory is short. */
json_t *weights_notes(const Weights *weights, const Packing *packing);

/* Both hold the same network, but for the layout? 0, or WEFT_INPUT with the differences. */
int weights_check_same(const Weights *a, const Weights *b);

/* Whether gate and up could change places without changing what the network computes: then the
 * known row alone can't tell them apart. */
bool weights_symmetric(const Weights *weights);

#endif
