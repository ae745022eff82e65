/* Checkpoints for tests of `verify --static`: saved, changed, looked at.
 *
 *     static_rig_begin(&rig, SETTINGS("ffn.bias=true"));
 *     ... change rig.made ...
 *     static_rig_save(&rig);
 *     ... change rig.manifest's copy or the files in rig.directory ...
 *     static_rig_finds(&rig, "the case", 1, "what a finding says");
 *     static_rig_end(&rig); */
#ifndef WEFT_TESTS_STATIC_RIG_H
#define WEFT_TESTS_STATIC_RIG_H

#include "run/static.h"
#include "support/checkpoint_pattern.h"
#include "support/model_checkpoint.h"

#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})

typedef struct {
    ModelCheckpoint made;
    char run_dir[SCRATCH_PATH], directory[FILES_PATH]; /* of the run; of its step */
    json_t *manifest;                                  /* as it was saved */
} StaticRig;

void static_rig_begin(StaticRig *rig, const char *const *settings);
void static_rig_save(StaticRig *rig);
void static_rig_end(StaticRig *rig);

/* Nothing is found. `what` names the case. */
void static_rig_clean(const StaticRig *rig, const char *what);
/* `count` findings (0: any number), one of which says `expected`. */
void static_rig_finds(const StaticRig *rig, const char *what, int count, const char *expected);

bool static_rig_tells(const Findings *findings, const char *text);
const char *static_rig_text(const Findings *findings); /* all of them; until the next call */
json_t *static_rig_json(const char *json);             /* NULL of NULL */

#endif
