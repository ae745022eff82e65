/* weft convert: FFN weights in another layout (checkpoint/packing.h), in a new HDF5 file.
 *
 * Before the file appears, a known row goes through the first, middle and last layer by both
 * layouts, as the weights lie, and every element is read back and compared. Where gate and up could
 * change places without being noticed, the row also goes through a SwiGLU of the same weights. The
 * source is only read, and must be the same bytes afterwards. Serial, no MPI, bounded memory. */
#ifndef WEFT_RUN_CONVERT_H
#define WEFT_RUN_CONVERT_H

#include "run/weights.h"

typedef struct {
    WeightsDeclaration source;
    const char *out;     /* the new file; must not exist, its parent must */
    const char *layout;  /* of the new file */
    const char *names;   /* NULL: hf */
    int shards, ranks;   /* 0: not given. Of the new file where its layout has them, else of the
                            source; shards are a checkpoint's grid by default */
    const char *against; /* a checkpoint or file of weft's that the source must agree with; NULL */
    int64_t elements;    /* of a block; 0: CONVERT_ELEMENTS */
} ConvertRequest;

enum { CONVERT_ELEMENTS = 1 << 22 };

/* 0; WEFT_USAGE; WEFT_INPUT; WEFT_CHECK when the source computes something else than `against` does
 * (WEFT_INPUT when that is another network); or WEFT_RUNTIME. Nothing but success leaves anything
 * behind. */
int convert_weights(const ConvertRequest *request);

/* The known row through both, and where it can't tell gate from up, through a SwiGLU of the same
 * weights. 0 or WEFT_CHECK. */
int convert_compare_rows(Weights *a, Weights *b);

#endif
