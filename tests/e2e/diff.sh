#!/bin/bash
# weft diff: what two checkpoints differ in. It needs no mpirun.
. "$(dirname "$0")/common.bash"

train one one --stop-at 2
train two 2 --tp 2 --dp 1 --stop-at 2
program=$weft_faults
train nudged one --stop-at 2 --inject nudge@step=1
program=$weft
train wider one --stop-at 1 --set ffn.d_ff=100

# compare A B OPTIONS...: weft diff of two run directories
compare() {
    out=$t/diff.out
    run "$weft" diff "$t/$1" "$t/$2" "${@:3}"
}

compare one two
passes "two layouts" ended 0 "moment2  26 tensors equal" "function equal" "position equal" \
    "fingerprint equal" "equal: 78 arrays, 324432 elements"
passes "say nothing more" test "$(wc -l <"$out")" = 11
passes "the last line is the verdict" test "$(tail -n 1 "$out" | cut -d : -f 1)" = equal
run "$weft" diff "$t/one/step-00000002" "$t/two/step-00000002/" --verbose
passes "step directories" ended 0 "layout.tp: A 1, B 2" "equal: 78"
passes "--verbose has a row for each tensor" test 78 = \
    "$(grep -cE '^(value|moment[12]) +model[^ ]+ +[0-9]+ +0 ' "$out")"

out=$t/reshard.out
run "$weft" reshard "$t/one" --tensor 3 --data 2 --out "$t/cut"
compare one cut
passes "two logical grids" ended 0 "grid.tensor: A 8, B 3" "differs, but is no part of the state" \
    "fingerprint equal" "equal: 78 arrays, 324432 elements"
compare nudged cut
passes "one ulp across grids" ended 1 "model.norm.weight" "different: 1 of 78 arrays"

compare one nudged
row='^value +model\.norm\.weight +64 +1 +1\.19e-07 +1\.19e-07 +1  \[0\]: 1\.0[0-9]+, 1\.0[0-9]+$'
passes "one ulp" ended 1 "value    25 tensors equal" "moment1  26 tensors equal" \
    "fingerprint differs" "different: 1 of 78 arrays"
passes "tensor, number, distances and place of it" grep -qE "$row" "$out"
compare one nudged --tolerance 1e-6
passes "within a tolerance" ended 0 "; within the tolerance" "fingerprint differs" \
    "equal: 78 arrays, 324432 elements; 1 of the arrays by the tolerance of 1e-06"
compare one nudged --tolerance 1e-8
passes "beyond a tolerance" ended 1 "different: 1 of 78 arrays"

compare wider one
passes "other shapes, another function, another step" ended 1 \
    "mlp.gate_proj.weight            other shapes: A [100, 64], B [172, 64]" \
    "mlp.up_proj.bias                other shapes: A [100], B [172]" \
    "ffn.d_ff: A 100, B 172" "step: A 1, B 2" "tokens: A 256, B 512" \
    "different: 78 of 78 arrays, function, position"

cp -r "$t/one" "$t/damaged"
flip "$t/damaged/step-00000002/shard-t000-d000.h5" /value/model.norm.weight
compare one damaged
passes "damaged data" ended 3 "value    model.norm.weight" "damaged/step-00000002: is damaged" \
    "weft verify"
run "$weft" verify "$t/damaged"
passes "weft verify tells where" ended 1 "shard-t000-d000.h5: dataset value/model.norm.weight"
rm "$t/damaged/step-00000002/shard-t003-d001.h5"
compare damaged one
passes "a missing shard" ended 3 "shard-t003-d001.h5"
rm "$t/damaged/step-00000002/manifest.json"
compare damaged one
passes "a missing manifest" ended 3 "manifest.json: can't read"
compare one nowhere
passes "a missing directory" ended 3 "nowhere: no such directory"
mkdir "$t/empty"
compare one empty
passes "an empty directory" ended 3 "empty: there is no checkpoint in it"

out=$t/double.out
run "${weft}-f64" train "$config" --set run.dir="$t/double" --stop-at 1
compare one double
passes "a checkpoint of the float64 program" ended 3 "dtype is float64, this program's is float32"

out=$t/usage.out
run "$weft" diff "$t/one"
passes "one path" ended 2 "A B are expected"
run "$weft" diff "$t/one" "$t/two" "$t/nudged"
passes "three paths" ended 2 "nudged: two paths are expected"
run "$weft" diff "$t/one" "$t/two" --tolerance much
passes "a tolerance that is no number" ended 2 "--tolerance much"
run "$weft" diff --help
passes "help" ended 0 "--tolerance=X" "times the tensor's largest" "A B" "Exit 1"
finish
