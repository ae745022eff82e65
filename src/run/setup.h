/* From the config to what the modules want. */
#ifndef WEFT_RUN_SETUP_H
#define WEFT_RUN_SETUP_H

#include "config/config.h"
#include "data/batch.h"
#include "nn/model.h"
#include "optim/adamw.h"
#include "optim/schedule.h"

/* `sequences` in a microbatch (train.micro_batch, or 1 to generate). */
ModelConfig setup_model(const Config *config, int64_t sequences, int threads);
DatasetSpec setup_dataset(const Config *config);
AdamW setup_adamw(const Config *config);
Schedule setup_schedule(const Config *config);

/* Threads of a rank: run.threads, or node cores / ranks on the node, at least 1. */
int setup_threads(const Config *config, int node_ranks);

int setup_node_cores(void); /* of the machine */

#endif
