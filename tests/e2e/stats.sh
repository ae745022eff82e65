#!/bin/bash
# Statistics in the metrics, at every layout alike, and `weft verify --static` on what a run has saved.
. "$(dirname "$0")/common.bash"

# The statistics of run $1, of the state of step $2.
stats() { sed -n 's/.*"stats":\({"step":'"$2"',.*}\)}$/\1/p' "$t/$1/metrics.jsonl"; }

# The states that run $1 has statistics of.
states() { sed -n 's/.*"stats":{"step":\([0-9]*\),.*/\1/p' "$t/$1/metrics.jsonl" | tr '\n' ' '; }

# same_stats A B STEP...: there are some, and they are the same.
same_stats() {
    local a=$1 b=$2 step
    shift 2
    for step in "$@"; do
        [ -n "$(stats "$a" "$step")" ] || { echo "$a: no statistics of step $step"; return 2; }
        [ "$(stats "$a" "$step")" = "$(stats "$b" "$step")" ] || return 1
    done
}

train without 2 --stop-at 6
train with 3 --tp 3 --stop-at 6 --set stats.every=4 --set train.recompute=block
passes "they change nothing that is trained" same_run without with 6
passes "and aren't there unasked" test "" = "$(states without)"
passes "at step 0, and at every fourth" test "0 4 " = "$(states with)"
train other 4 --tp 2 --dp 2 --stop-at 3 --set stats.every=4 --set run.threads=2
train other one --resume auto --stop-at 6 --set stats.every=4
passes "also after a resume" test "0 3 4 " = "$(states other)"
passes "the same on other ranks" same_stats with other 0 4
passes "with the same run" same_run with other 6
train "own rows" 3 --tp 3 --dp 1 --stop-at 5 --set stats.every=4 --set parallel.sequence=true
passes "the same where each rank has its own rows" same_stats with "own rows" 0 4
train seed one --stop-at 1 --set stats.every=4 --set run.seed=2
fails "another seed's are others" same_stats with seed 0

run "$weft" verify --static "$t/with"
passes "verify --static: a good one" ended 0 "26 tensors in 3 roles" "6 biases" "step-00000006: good"
cp -r "$t/with/step-00000006" "$t/copy"
rm "$t/copy/shard-t002-d001.h5"
touch "$t/copy/notes.txt"
run "$weft" verify --static "$t/copy"
passes "all that is wrong is told" ended 1 "shard-t002-d001.h5: file is missing" \
    "notes.txt: file is extra" "2 findings"
cp -r "$t/with/step-00000006" "$t/flipped"
flip "$t/flipped/shard-t002-d001.h5" /value/model.layers.1.mlp.gate_proj.weight
run "$weft" verify --static "$t/flipped"
passes "data are for the digests" ended 0 good
run "$weft" verify --static --deep "$t/flipped"
passes "which --deep looks at" ended 1 "gate_proj.weight: damaged"
sed -i 's/"kind": "gated"/"kind": "dense"/' "$t/copy/manifest.json"
run "$weft" verify --static "$t/copy"
passes "an edit without its digest" ended 1 "manifest.json: damaged or edited" "1 finding"
finish
