#!/bin/bash
# A checkpoint as tools see it: weft verify, weft inspect, and h5dump. None of them needs mpirun.
. "$(dirname "$0")/common.bash"

train run 2 --tp 2 --dp 1 --stop-at 2
step=$t/run/step-00000002
out=$t/verify.out

run "$weft" verify "$t/run"
passes "a good one, by its run directory" ended 0 "step-00000002: good"
run "$weft" verify "$step/"
passes "a good one, by its step directory" ended 0 good
cp -r "$step" "$t/elsewhere"
run "$weft" verify "$t/elsewhere"
passes "a good one that has moved" ended 0 "$t/elsewhere: good"
run "$weft" inspect "$t/run"
passes "inspect prints train's line" ended 0 "$(fingerprint run)"
tensor="model.layers.0.mlp.gate_proj.weight float32 [172, 64] axis 0 in 8 shards"
passes "inspect names a tensor, its shape and cut" says "$tensor"
run "$weft" inspect "$t/run" --pieces
piece='^    shard-t00[0-7]-d00[0-3].h5 (value  |moment1|moment2) [0-9a-f]{32}'
piece="$piece"' at \[[0-9]+, 0\] size \[[56], 64\]$'
passes "and its 8 x 4 x 3 pieces with their digests" test 96 = \
    "$(sed -n "/^${tensor%% *}/,/^model.layers.0.mlp.up/p" "$out" | grep -cE "$piece")"

lost() { # COMMAND...: what it prints goes nowhere
    "$@" >/dev/full 2>"$out"
    code=$?
    ended 4 "can't write all of the output"
}
passes "lost output is an error" lost "$weft" inspect "$t/run"

# damaged NAME TEXT COMMAND...: after the command in a copy, verify names the thing.
damaged() {
    local name=$1 text=$2
    shift 2
    rm -rf "$t/copy"
    cp -r "$step" "$t/copy"
    (cd "$t/copy" && "$@")
    run "$weft" verify "$t/copy"
    passes "$name" ended 1 "$t/copy/$text"
}
swap() { mv "$1" swapped && mv "$2" "$1" && mv swapped "$2"; }
overwrite() { head -c "$3" /dev/zero | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }

damaged "truncated to half" shard-t003-d001.h5: truncate -s 20000 shard-t003-d001.h5
damaged "truncated by a byte" shard-t003-d001.h5: truncate -s -1 shard-t003-d001.h5
damaged "emptied" shard-t007-d003.h5: truncate -s 0 shard-t007-d003.h5
damaged "overwritten at the beginning" shard-t005-d002.h5: overwrite shard-t005-d002.h5 0 512
damaged "overwritten with another text" shard-t005-d002.h5: cp /etc/passwd shard-t005-d002.h5
for role in value moment1 moment2; do
    dataset=$role/model.layers.1.mlp.gate_proj.weight
    damaged "one bit of $role" "shard-t002-d001.h5: dataset $dataset: damaged" \
        flip shard-t002-d001.h5 /$dataset
done
damaged "a bit of a replicated tensor" "shard-t000-d000.h5: dataset value/model.norm.weight" \
    flip shard-t000-d000.h5 /value/model.norm.weight
damaged "a shard file is missing" "shard-t004-d000.h5: file is missing" rm shard-t004-d000.h5
damaged "the view is missing" "checkpoint.h5: file is missing" rm checkpoint.h5
damaged "the manifest is missing" manifest.json rm manifest.json
damaged "a file is extra" "shard-t008-d000.h5: file is extra" \
    cp shard-t007-d000.h5 shard-t008-d000.h5
damaged "a note is extra" "notes.txt: file is extra" touch notes.txt
damaged "two files are swapped" shard-t001-d000.h5: swap shard-t001-d000.h5 shard-t002-d000.h5
damaged "a file of another rank's pieces" shard-t003-d000.h5: \
    cp shard-t003-d001.h5 shard-t003-d000.h5
damaged "the view is overwritten" checkpoint.h5: overwrite checkpoint.h5 0 2048
damaged "the view is another file" checkpoint.h5: cp shard-t000-d000.h5 checkpoint.h5
damaged "the manifest is cut" manifest.json: truncate -s 5000 manifest.json
damaged "the manifest is no JSON" manifest.json: eval 'echo "{]" >manifest.json'
damaged "the manifest has another step" manifest.json: \
    sed -i 's/^ "step": 2/ "step": 3/' manifest.json
damaged "the manifest has another seed" manifest.json: \
    sed -i 's/"seed": 1/"seed": 2/' manifest.json
damaged "the manifest has another fingerprint" manifest.json: \
    sed -i 's/^ "fingerprint": "0/ "fingerprint": "1/; t; s/^ "fingerprint": "./ "fingerprint": "0/' \
    manifest.json

# a pipe would never end: the time limit of this script is the judge
damaged "a pipe for a manifest" "manifest.json: is no regular file" \
    eval 'rm manifest.json && mkfifo manifest.json'
damaged "a pipe for a shard" "shard-t001-d001.h5: is no regular file" \
    eval 'rm shard-t001-d001.h5 && mkfifo shard-t001-d001.h5'

train other one --stop-at 2 --set run.seed=2
damaged "a shard of another run" shard-t000-d000.h5: \
    cp "$t/other/step-00000002/shard-t000-d000.h5" .
damaged "a manifest of another run" shard-t000-d000.h5: \
    cp "$t/other/step-00000002/manifest.json" .

out=$t/verify.out
run "$weft" verify "$t/nowhere"
passes "nothing is there" test $code -ne 0 -a "$(grep -cF "$t/nowhere" "$out")" -gt 0
mkdir "$t/empty"
run "$weft" verify "$t/empty"
passes "an empty directory" test $code -ne 0 -a "$(grep -cF "$t/empty" "$out")" -gt 0

# The view shows a tensor as if it had never been cut; here from the folder of another checkpoint,
# whose files have the same names.
numbers() {
    h5dump -d "$2" -y -w 1 -m %.9g "$1" |
        sed -n '/ATTRIBUTE/q; s/^ *\(-*[0-9][-+.e0-9]*\),*$/\1/p'
}
gate=model.layers.0.mlp.gate_proj.weight
(cd "$t/other/step-00000002" && numbers "$step/checkpoint.h5" /$gate) >"$t/whole"
for file in "$step"/shard-*.h5; do numbers "$file" /value/$gate; done >"$t/parts"
passes "h5dump reads 172 x 64 numbers" test "$(wc -l <"$t/whole")" = $((172 * 64))
passes "which differ" test "$(sort -u "$t/whole" | wc -l)" -gt 10000
passes "and are those of the shards, one under another" cmp "$t/whole" "$t/parts"
finish
