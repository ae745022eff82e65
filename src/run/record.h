/* What a proof (checkpoint/proof_file.h) says of one state or one step: made while training, made
 * again by a replay, and compared. */
#ifndef WEFT_RUN_RECORD_H
#define WEFT_RUN_RECORD_H

#include "run/trainer.h"

#include <jansson.h>

/* Of the present state, and of the step that led to it. *record is the caller's on the first rank,
 * NULL on the others. One hash of the state. Collective over GROUP_GRID; 0 or a negative code,
 * agreed. */
int record_state(Trainer *trainer, json_t **record);
int record_step(Trainer *trainer, const StepReport *report, json_t **record);

/* A record without what only a step has. New reference, NULL when memory is short. */
json_t *record_state_of(const json_t *record);

double record_number(const json_t *record, const char *key); /* "loss", "grad_norm", "lr" */
bool record_equal(const json_t *there, const json_t *here, const char *key);

/* The first thing in which two records differ, and the first tensor: "loss 0x1.8p+1, here 0x1.9p+1;
 * tensor value/NAME, the first of 9 that differ". False when they are equal. */
bool record_difference(const json_t *there, const json_t *here, char *text, size_t capacity);

/* Lines "section.key before -> now" of the options that decide what a step does and differ. NULL
 * when there are none; free(). */
char *record_config_changes(const Config *now, const Config *before);

#endif
