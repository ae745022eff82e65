#!/bin/bash
# One fingerprint: the same config ends with the same losses and the same state, bit for bit, on
# any number of tensor-parallel ranks, data-parallel ranks and threads, with or without
# recomputation, over windows or messages, with sequence-parallel regions or without, at any level of
# fusion, and however often it is interrupted.
. "$(dirname "$0")/common.bash"
config=$t/tiny.ini steps=12
sed "s/^steps = .*/steps = $steps/" tests/configs/tiny.ini >"$config"

# same_on NAME RANKS OPTIONS...: a run like the one called $reference.
reference=one
same_on() {
    local name=$1
    train "$@"
    passes "$name" same_run $reference "$name"
}

# The files of the last checkpoint of two runs, of the manifest all but its origin (and the digest
# that covers it).
same_files() {
    local a b file
    a=$(echo "$t/$1"/step-*) b=$(echo "$t/$2"/step-*)
    diff <(ls "$a") <(ls "$b") || return 1
    for file in "$a"/*.h5; do cmp "$file" "$b/${file##*/}" || return 1; done
    diff <(without_origin "$a/manifest.json") <(without_origin "$b/manifest.json")
}

without_origin() {
    awk '/^ "origin": \{/ { skip = 1 } !skip && !/^ "digest": / { print } /^ \}/ { skip = 0 }' "$1"
}

train one one
passes "12 steps on one rank" has_steps one 12
passes "a checkpoint of 32 shard files" test "$(ls "$t"/one/step-00000012/shard-*.h5 | wc -l)" = 32
clipped=$(sed -n 's/.*"grad_norm":\([0-9.]*\),.*/\1/p' "$t/one/metrics.jsonl" | sort -g | head -n 1)
passes "clipping is active in every step" awk "BEGIN { exit !($clipped > 0.25) }"

same_on "mpirun -n 1" 1
same_on "2 threads" one --set run.threads=2
same_on "3 threads" one --set run.threads=3
for tp in 2 3 4 5 8; do same_on "tp $tp" $tp --tp $tp --dp 1; done
for dp in 2 4; do same_on "dp $dp" $dp --tp 1 --dp $dp; done
same_on "tp 2 x dp 2" 4 --tp 2 --dp 2
same_on "tp 3 x dp 2" 6 --tp 3 --dp 2
same_on "dp 3, uneven" 3 --tp 1 --dp 3
same_on "tp 2 x 2 threads" 2 --tp 2 --dp 1 --set run.threads=2
for mode in act block; do
    same_on "recompute $mode" one --set train.recompute=$mode
    same_on "recompute $mode on tp 2" 2 --tp 2 --dp 1 --set train.recompute=$mode
done
same_on "messages on tp 3" 3 --tp 3 --dp 1 --set grid.transport=messages
same_on "messages on tp 2 x dp 2" 4 --tp 2 --dp 2 --set grid.transport=messages
sequence=(--set parallel.sequence=true)
for tp in 2 3 5 8; do same_on "own rows on tp $tp" $tp --tp $tp --dp 1 "${sequence[@]}"; done
for mode in act block; do
    same_on "own rows, recompute $mode" 3 --tp 3 --dp 1 "${sequence[@]}" --set train.recompute=$mode
done
same_on "own rows by messages" 3 --tp 3 --dp 1 "${sequence[@]}" --set grid.transport=messages
same_on "own rows by messages, block" 6 --tp 3 --dp 2 "${sequence[@]}" \
    --set grid.transport=messages --set train.recompute=block
same_on "own rows on tp 2 x dp 2, 2 threads" 4 --tp 2 --dp 2 "${sequence[@]}" --set run.threads=2
same_on "own rows on one rank" one "${sequence[@]}"
same_on "a layout of its own choice" 2
same_on "a surplus rank" 5 --tp 2 --dp 2
passes "a surplus rank idles" says "(1 idle)"

for level in eager packed gate block; do
    same_on "$level" one --set kernels.fusion=$level
    same_on "$level on tp 3, own rows" 3 --tp 3 --dp 1 "${sequence[@]}" --set kernels.fusion=$level
done

train interrupted 4 --tp 4 --dp 1 --stop-at 4 --set kernels.fusion=eager
passes "stopped at 4" ended 0 "stopped at step 4 of 12" " step 4"
train interrupted 3 --tp 3 --dp 1 --resume auto --stop-at 9 --set parallel.sequence=true \
    --set kernels.fusion=gate
passes "resumed at 4, stopped at 9" ended 0 "step-00000004 at step 4" " step 9"
passes "the change is told" says "parallel.sequence false -> true"
passes "the change of level is told" says "kernels.fusion eager -> gate"
same_on interrupted 4 --tp 2 --dp 2 --resume auto
passes "resumed at 9" says "step-00000009 at step 9"

passes "files of tp 3 x dp 2" same_files one "tp 3 x dp 2"
passes "files of messages on tp 3" same_files one "messages on tp 3"
passes "files of own rows on tp 3" same_files one "own rows on tp 3"
# keeps_rows RUN VALUE: what its manifest says of sequence-parallel regions
keeps_rows() { grep -q "\"sequence\": $2" "$t/$1"/step-00000012/manifest.json; }
passes "a manifest says who keeps its own rows" keeps_rows "own rows on tp 3" true
passes "and who doesn't" keeps_rows one false
fails "a manifest says at which level" same_files one "eager"
fails "a manifest says how it was recomputed" same_files one "recompute act"

# What is read from a checkpoint, by ranks with rows of their own.
out=$t/alone.text
run "$weft" generate "$t/one" --bytes 60
grep -v '^weft: ' "$out" >"$t/alone"
WEFT_MPIRUN="--timeout $limit" run launch/local -n 3 --command generate "$t/one" --bytes 60 --tp 3 \
    "${sequence[@]}"
grep -v '^weft: ' "$out" >"$t/shared"
passes "a text of 60 bytes" test "$(wc -c <"$t/alone")" -ge 60
passes "the same text by own rows" cmp "$t/alone" "$t/shared"

# Two other models, dense, whose vocab and context divide into nothing.
for tied in true false; do
    odd=(--set ffn.kind=dense --set ffn.activation=gelu --set model.vocab=259
         --set model.context=29 --set model.tie_embeddings=$tied --set init.scheme=fan_in
         --set train.steps=8 --stop-at 8)
    reference="dense, tied $tied"
    train "$reference" one "${odd[@]}"
    for layout in 2x1 3x2 5x1; do
        tp=${layout%x*} dp=${layout#*x}
        for rows in false true; do
            name="$reference, $layout, own rows $rows"
            train "$name" $((tp * dp)) --tp $tp --dp $dp "${odd[@]}" --set parallel.sequence=$rows
            passes "$name" same_run "$reference" "$name" 8
        done
    done
done
finish
