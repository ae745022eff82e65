#!/bin/bash
# The width of vectors shows in no bit: what the program trains, whose pointwise kernels are as wide as
# the core, the one without wide ones (build/weft-faults) trains too. On a core without AVX-512 both are
# the same.
. "$(dirname "$0")/common.bash"

vectors() { "$1" --version | grep -o 'vectors [a-z0-9]*'; }
if grep -q avx512vl /proc/cpuinfo; then
    passes "they differ in width" test "$(vectors "$weft"), $(vectors "$weft_faults")" = \
        "vectors avx512, vectors avx2"
fi

short=(--set train.steps=4 --set optim.warmup=2 --set eval.every=4)
both() { # NAME OPTIONS...
    local name=$1
    shift
    program=$weft train "$name" one "${short[@]}" "$@"
    program=$weft_faults train "$name, narrow" one "${short[@]}" "$@"
    passes "$name" same_run "$name" "$name, narrow" 4
}

both "gated silu"
both "gated silu with limits" --set ffn.swish_beta=1.7 --set ffn.gate_clamp=0.05 \
    --set ffn.linear_clamp=0.04 --set ffn.linear_offset=1
both "gated gelu" --set ffn.activation=gelu --set ffn.d_ff=343
both "dual gelu_tanh" --set ffn.kind=dual --set ffn.activation=gelu_tanh --set ffn.bias=false
both "dense quick_gelu" --set ffn.kind=dense --set ffn.activation=quick_gelu
both "gated relu" --set ffn.activation=relu --set ffn.hidden_dropout=0
both "dual sigmoid" --set ffn.kind=dual --set ffn.activation=sigmoid --set ffn.output_dropout=0

# ---- a control: one bit of one parameter
program=$weft_faults train nudged one "${short[@]}" --inject nudge@step=2
fails "an ulp is seen" same_run "gated silu" nudged 4
finish
