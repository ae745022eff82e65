#!/bin/bash
# The mlp from arrays, end to end: the same losses and the same state on any layout, from any
# layout of the file; its checkpoints in every command; normalisation measured once.
. "$(dirname "$0")/common.bash"
config=tests/configs/mlp.ini
steps=12

build/synthetic "$t/plain.h5" 3000 >/dev/null || exit 2
h5repack -f SHUF -f GZIP=4 -l CHUNK=7x64 "$t/plain.h5" "$t/packed.h5" || exit 2
: >"$t/nothing.h5"

# Classes: the sign of the first target, as whole numbers.
h5dump -y -w 1 -d targets -s 0,0 -c 3000,1 -o "$t/first" "$t/plain.h5" >/dev/null
tr -d ' ,' <"$t/first" | awk 'NF { print ($1 > 0) ? 1 : 0 }' >"$t/signs"
printf '%s\n' "PATH targets" "INPUT-CLASS TEXTIN" "INPUT-SIZE 32" "RANK 1" "DIMENSION-SIZES 3000" \
    "OUTPUT-CLASS IN" "OUTPUT-SIZE 32" >"$t/signs.layout"
h5import "$t/signs" -c "$t/signs.layout" -o "$t/classes.h5" >/dev/null 2>&1
h5copy -i "$t/plain.h5" -s inputs -o "$t/classes.h5" -d inputs

# train_on FILE NAME RANKS OPTIONS...
train_on() {
    local file=$t/$1.h5
    shift
    train "$@" --set data.train="$file"
}

same_on() {
    train_on plain "$@"
    passes "$1" same_run one "$1" $steps
}

# The moments in a run's last manifest, as text.
moments() { sed -n '/^ "normalisation": {/,/^ }/p' "$t/$1"/step-*/manifest.json; }

# The held-out loss that eval prints, and the last one of a run's metrics, to 6 digits.
loss_told() { sed -n 's/^held-out loss \([0-9.]*\).*/\1/p' "$out"; }
last_held_out() {
    sed -n 's/.*"held_out_loss":\([0-9.e-]*\).*/\1/p' "$t/$1/metrics.jsonl" | tail -n 1 |
        xargs printf '%.6f'
}

# ---- layouts, of ranks and of the file
train_on plain one one
passes "12 steps" has_steps one $steps
same_on "2 threads" one --set run.threads=2
same_on "tp 3" 3 --tp 3 --dp 1
same_on "tp 2 x dp 2, messages" 4 --tp 2 --dp 2 --set grid.transport=messages
same_on "dp 3" 3 --tp 1 --dp 3
same_on "own rows, tp 3" 3 --tp 3 --dp 1 --set parallel.sequence=true
same_on "own rows, tp 2, messages, block" 2 --tp 2 --dp 1 --set parallel.sequence=true \
    --set grid.transport=messages --set train.recompute=block
for mode in act block; do
    same_on "recompute $mode, tp 2" 2 --tp 2 --dp 1 --set train.recompute=$mode
done
train_on packed "chunked and packed" 2 --tp 2 --dp 1 --set checkpoint.every=2 \
    --set checkpoint.keep=2
passes "chunked and packed, saving beside training" same_run one "chunked and packed" $steps
passes "saves before the last" test -d "$t/chunked and packed/step-00000010"

train_on plain resumed 3 --tp 3 --dp 1 --stop-at 5
train_on plain resumed 2 --tp 1 --dp 2 --resume auto
passes "resumed on another layout" same_run one resumed $steps

# ---- its checkpoints
out=$t/one.out
run "$weft" verify --deep "$t/one"
passes "verify" ended 0
run "$weft" diff "$t/one" "$t/tp 3"
passes "diff finds nothing" ended 0
run "$weft" diff "$t/one" "$t/resumed/step-00000005"
passes "diff finds another step" ended 1
out=$t/reshard.out
run "$weft" reshard "$t/one" --tensor 3 --data 2 --out "$t/other"
passes "reshard" ended 0 "$(fingerprint one)"
run "$weft" reshard "$t/other" --tensor 8 --data 4 --out "$t/back"
passes "and back" ended 0 "$(fingerprint one)"
for file in "$t"/one/step-*/*.h5; do
    cmp "$file" "$t/back/step-00000012/${file##*/}" || break
done
passes "the same bytes" cmp "$file" "$t/back/step-00000012/${file##*/}"
run "$weft" replay "$t/resumed"
passes "replay" ended 0 "replay: pass: 2 steps after step-00000005 repeated bit for bit"
run "$weft" generate "$t/one"
passes "an mlp writes no text" ended 2 "model.kind = mlp writes no text"

# ---- normalisation: of the training rows, and from the checkpoint ever after
passes "the manifest has it" test "$(moments one | grep -c '[0-9],\?$')" = $((2 * 68))
moments one >"$t/before"
passes "reshard keeps it" diff "$t/before" <(moments back)
run "$weft" eval "$t/one"
passes "eval" ended 0 "held-out loss " " over 50 rows ("
passes "is what training saw" test "$(loss_told)" = "$(last_held_out one)"
# Other training rows have other moments, but those of the checkpoint count.
build/synthetic "$t/more.h5" 150000 >/dev/null
run "$weft" eval "$t/one" --set data.train="$t/more.h5" --set data.held="$t/plain.h5" \
    --set eval.sequences=0
passes "eval on another file" ended 0 " over 3000 rows ("
first=$(cat "$out")
run "$weft" eval "$t/one" --set data.train="$t/plain.h5" --set data.held="$t/plain.h5" \
    --set eval.sequences=0
passes "the same, whatever it is trained on" test "$first" = "$(cat "$out")"

# The numbers have their digest in the function, which the fingerprint covers.
passes "the function has their digest" \
    grep -q '^  "normalisation": "[0-9a-f]\{32\}"' "$t"/one/step-*/manifest.json
run "$weft" verify --static "$t/one"
passes "verify --static" ended 0

# ---- a checkpoint computes its own function and no other, and tells a number
for set in ffn.activation=gelu ffn.kind=dense model.norm_eps=0.1 data.normalise=false run.seed=2; do
    run "$weft" eval "$t/one" --set $set
    passes "eval with $set" ended 2 "describes another function" "${set%=*}: checkpoint "
done
run "$weft" trace "$t/one" --input "$t/plain.h5" --out "$t/trace.h5" --set ffn.activation=gelu
passes "trace with another activation" ended 2 "ffn.activation: checkpoint silu, config gelu"
passes "leaves no file" test ! -e "$t/trace.h5"
run "$weft" trace "$t/one" --input "$t/plain.h5" --out "$t/trace.h5" --set run.threads=2
passes "trace on 2 threads" ended 0
printf '%s\n' "PATH targets" "INPUT-CLASS TEXTFPE" "INPUT-SIZE 32" "RANK 2" \
    "DIMENSION-SIZES 3000 4" "OUTPUT-CLASS FP" "OUTPUT-SIZE 32" >"$t/numbers.layout"
for size in 3e38 1e-30 1e-45; do # rows of 0 and of this
    yes "0 0 0 0 $size $size $size $size" | head -n 1500 >"$t/numbers"
    h5import "$t/numbers" -c "$t/numbers.layout" -o "$t/$size.h5" >/dev/null 2>&1
    h5copy -i "$t/plain.h5" -s inputs -o "$t/$size.h5" -d inputs
done
train_on 1e-45 "too small" 2 --tp 2 --dp 1 --stop-at 1
passes "a deviation too small" ended 3 "column 0 of the targets: its deviation is too small"
train_on 1e-30 small one --stop-at 1
passes "a small one" ended 0
run "$weft" eval "$t/small" --set data.held="$t/3e38.h5" --set eval.sequences=0
passes "a loss that isn't finite" ended 4 "the held-out loss isn't finite"
passes "isn't printed" silent_about "held-out loss inf"

# ---- 41 MB of rows take no more memory than 0.8 MB: they are read as they are wanted
peak() { sed -n 's/.*"peak_rss_bytes":\([0-9]*\).*/\1/p' "$t/$1/metrics.jsonl" | tail -n 1; }
train_on more more one --stop-at 2
passes "a larger file" ended 0 "135000 training and 15000 held-out rows" " step 2"
passes "takes no more memory" test $(($(peak more) - $(peak one))) -lt 8000000

# ---- classes
train_on classes labels 2 --tp 2 --dp 1 --set model.loss=cross_entropy --set model.outputs=2
passes "classes" ended 0 "accuracy "
{ head -n 2999 "$t/signs" && echo 7; } >"$t/bad_signs"
h5import "$t/bad_signs" -c "$t/signs.layout" -o "$t/bad_classes.h5" >/dev/null 2>&1
h5copy -i "$t/plain.h5" -s inputs -o "$t/bad_classes.h5" -d inputs
train_on bad_classes "a bad class" 2 --tp 2 --dp 1 --set model.loss=cross_entropy \
    --set model.outputs=2
passes "a bad class in the held-out part" ended 3 "row 2999"
passes "is found before the first step" silent_about "step 1/"
passes "accuracy in the metrics" grep -q '"held_out_accuracy":0\.[0-9]*' "$t/labels/metrics.jsonl"
fails "no bits per byte" grep -q bits_per_byte "$t/labels/metrics.jsonl"
run "$weft" eval "$t/labels"
passes "eval of classes" ended 0 ", accuracy " " % over 50 rows ("

# ---- bad files, on all ranks alike
train_on plain bad1 2 --set model.inputs=63
passes "another width" ended 3 "plain.h5: dataset inputs: its shape is [3000, 64]; [N, 63] is"
train_on plain bad2 2 --set model.loss=cross_entropy
passes "numbers for classes" ended 3 "dataset targets: its type is float of 4 bytes; classes"
train_on plain bad3 2 --set data.inputs=x
passes "no such dataset" ended 3 "plain.h5: dataset x: is missing or no dataset"
train_on nothing bad4 2
passes "an empty file" ended 3 "nothing.h5: is empty"
finish
