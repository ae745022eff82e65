/* The blocks of a manifest that say what the tensors compute. Internal to src/config. Each returns
 * a new reference, or NULL when memory is short or the config names what there isn't. */
#ifndef WEFT_CONFIG_TOPOLOGY_H
#define WEFT_CONFIG_TOPOLOGY_H

#include "config/config.h"

json_t *topology_json(const Config *config);   /* the FFN's kind, equation, widths and their rule */
json_t *activation_json(const Config *config); /* and what is done to the branches beside it */
json_t *projections_json(const Config *config); /* every linear map */
json_t *loss_json(const Config *config);

#endif
