#include "base/error.h"
#include "cli/command.h"
#include "run/convert.h"

int command_convert(int argc, char **argv) {
    Arguments arguments;
    arguments_parse(
        &arguments, argc, argv, "sFOfNahkw", "SOURCE",
        "Writes the FFN weights of SOURCE, a checkpoint (DIR) or an HDF5 file, in another layout "
        "into a new HDF5 file, once a known row has gone through both alike. Needs no mpirun."
        "\vLAYOUT:\n"
        "  separate            gate, up and down apart, stored [out, in]\n"
        "  packed_gate_up      rows [gate; up]\n"
        "  packed_up_gate      rows [up; gate]\n"
        "  packed_interleaved  rows gate, up, gate, up, ...\n"
        "  packed_shard        rows [gate_s; up_s] of each shard in turn\n"
        "  packed_ranks        rank-RRR: rows [gate_r; up_r], columns of down\n"
        "  transposed          gate, up and down apart, stored [in, out]\n"
        "NAMES: hf (mlp.gate_proj), meta (feed_forward.w1, w3, w2), gpt2 (mlp.c_fc, c_proj: "
        "dense), "
        "megatron (mlp.linear_fc1, linear_fc2: gated ones packed).\n"
        "A file of another system doesn't say what it is: declare --from, and by --set ffn.kind, "
        "ffn.activation, model.d_model, ffn.d_ff, model.layers, and ffn.bias (or gate_bias, "
        "up_bias, down_bias) where it has biases.");
    ConvertRequest request = {.source = {.path = arguments.path,
                                         .layout = arguments.from,
                                         .names = arguments.from_names,
                                         .set = arguments.set,
                                         .sets = arguments.sets},
                              .out = arguments.out,
                              .layout = arguments.to,
                              .names = arguments.names,
                              .shards = arguments.shards,
                              .ranks = arguments.packed_ranks,
                              .against = arguments.against};
    int status = request.layout && request.out ? convert_weights(&request)
                                               : error_set(WEFT_USAGE, "convert: --%s is needed",
                                                           request.out ? "to LAYOUT" : "out FILE");
    return command_finish(NULL, status);
}
