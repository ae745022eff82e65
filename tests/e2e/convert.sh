#!/bin/bash
# weft convert: the FFN of a run in other layouts, as h5dump sees them, and back; what it says,
# refuses, and leaves behind when it is stopped.
. "$(dirname "$0")/common.bash"

train run one --stop-at 2
step=$t/run/step-00000002
before=$(find "$step" -type f -exec sha256sum {} + | sort)

# convert FROM TO OPTIONS...
convert() {
    local from=$1 to=$2
    shift 2
    out=$t/convert.out
    run "$weft" convert "$t/$from" --out "$t/$to" "$@"
}

# values FILE DATASET ROW,COL ROWS,COLS: numbers as h5dump prints them, one a line.
values() {
    h5dump -y -m %.9g -w 1 -d "$2" -s "$3" -c "$4" "$1" |
        sed -n '/DATA {/,/}/s/^ *\([-0-9.][^ ,]*\),\{0,1\} *$/\1/p'
}

# same A_FILE A_DATASET A_START B_FILE B_DATASET B_START COUNT [B_COUNT]
same() {
    local a b
    a=$(values "$1" "$2" "$3" "$7") b=$(values "$4" "$5" "$6" "${8:-$7}")
    [ -n "$a" ] || { echo "h5dump shows nothing of $2"; return 2; }
    [ "$a" = "$b" ]
}

# aside NAME: the directories in which it is being made, or was.
aside() { find "$t" -maxdepth 1 -name ".tmp-$1-*"; }
nothing_left() { [ ! -e "$t/$1" ] && [ -z "$(aside "$1")" ]; }

# ---- what lies where: 172 channels, 64 columns, 8 shards of 21 and 22
whole=$step/checkpoint.h5
mlp=model.layers.1.mlp
gate=$mlp.gate_proj.weight up=$mlp.up_proj.weight down=$mlp.down_proj.weight packed=$mlp.gate_up_proj.weight
convert run gate_up.h5 --to packed_gate_up
passes "to [gate; up]" ended 0 "$step: separate" "$t/gate_up.h5: packed_gate_up (rows [gate; up])" \
    "known row: the same through both; 2 layers, " "every element the same"
passes "gate is above" same "$whole" $gate 0,0 "$t/gate_up.h5" $packed 0,0 172,64
passes "up is below" same "$whole" $up 0,0 "$t/gate_up.h5" $packed 172,0 172,64
fails "gate isn't up" same "$whole" $gate 0,0 "$t/gate_up.h5" $packed 172,0 172,64
passes "biases too" same "$whole" $mlp.up_proj.bias 0 "$t/gate_up.h5" $mlp.gate_up_proj.bias 172 172
convert run shards.h5 --to packed_shard
passes "to shards" ended 0 "packed_shard (rows [gate_s; up_s] of each shard s in turn), 8 shards"
passes "gate of shard 1" same "$whole" $gate 21,0 "$t/shards.h5" $packed 42,0 22,64
passes "its up follows" same "$whole" $up 21,0 "$t/shards.h5" $packed 64,0 22,64
convert run ranks.h5 --to packed_ranks --ranks 3 --names megatron
passes "to ranks" ended 0 "3 ranks, names megatron"
rank=/rank-001/decoder.layers.1.mlp
passes "gate of rank 1" same "$whole" $gate 57,0 "$t/ranks.h5" $rank.linear_fc1.weight 0,0 57,64
passes "up of rank 1" same "$whole" $up 57,0 "$t/ranks.h5" $rank.linear_fc1.weight 57,0 57,64
passes "down of rank 1" same "$whole" $down 0,57 "$t/ranks.h5" $rank.linear_fc2.weight 0,0 64,57
convert run turned.h5 --to transposed
passes "a column becomes a row" same "$whole" $gate 0,3 "$t/turned.h5" $gate 3,0 172,1 1,172

# ---- and back: files say what they are
convert run separate.h5 --to separate
passes "as the view shows it" same "$whole" $down 0,0 "$t/separate.h5" $down 0,0 64,172
for name in gate_up shards ranks turned; do
    convert $name.h5 again.h5 --to separate
    passes "$name and back" cmp "$t/separate.h5" "$t/again.h5"
    rm -f "$t/again.h5"
done
fails "layouts differ" cmp "$t/gate_up.h5" "$t/separate.h5"
convert gate_up.h5 up_gate.h5 --to packed_up_gate
passes "the attributes tell" test "$(h5dump -a layout "$t/up_gate.h5" | grep -c packed_up_gate)" = 1

# ---- what contradicts, and what can't be known
convert up_gate.h5 bad.h5 --from packed_gate_up --to separate
passes "another order than the file says" ended 3 "layout says packed_up_gate, but --from says"
convert run bad.h5 --to separate --set ffn.activation=relu
passes "another activation than the run's" ended 3 "ffn.activation: $t/run silu, --set relu"
convert run bad.h5 --to separate --set train.steps=3
passes "a key of something else" ended 2 "--set train.steps=3: says nothing of the weights"
for name in $(h5ls "$t/up_gate.h5" | awk '{ print $1 }'); do
    h5copy -i "$t/up_gate.h5" -o "$t/stranger.h5" -s "$name" -d "$name"
done
convert stranger.h5 bad.h5 --to separate
passes "a stranger's layout" ended 2 "declare it with --from LAYOUT"
convert stranger.h5 bad.h5 --to separate --from packed_gate_up
passes "a stranger's kind" ended 2 "declare it with --set ffn.kind=..."
network="--set ffn.kind=gated --set ffn.activation=silu --set model.d_model=64 --set ffn.d_ff=172
    --set model.layers=2"
# shellcheck disable=SC2086
convert stranger.h5 bad.h5 --to separate --from packed_gate_up $network
passes "a stranger's biases" ended 3 "bias in group / is extra" "ffn.gate_bias = false"
network="$network --set ffn.bias=true"
# shellcheck disable=SC2086
convert stranger.h5 bad.h5 --to separate --from packed_gate_up $network --against "$t/run"
passes "a stranger's order, against the run" ended 1 "the FFN of layer 0 takes a known row to"
# shellcheck disable=SC2086
convert stranger.h5 own.h5 --to separate --from packed_up_gate $network --against "$t/run"
passes "the right one" ended 0 "known row: as through $t/run"
passes "is the run's" cmp "$t/own.h5" "$t/separate.h5"
passes "nothing is left of all these" nothing_left bad.h5

# ---- refusals
convert run gate_up.h5 --to separate
passes "a file that is there" ended 2 "$t/gate_up.h5: exists already; nothing is replaced"
convert gate_up.h5 gate_up.h5 --to separate
passes "over its source" ended 2 "exists already"
ln -s nowhere "$t/link"
convert run link --to separate
passes "a link to nowhere" ended 2 "exists already"
convert run bad.h5
passes "no --to" ended 2 "--to LAYOUT is needed"
run "$weft" convert "$t/run" --to separate
passes "no --out" ended 2 "--out FILE is needed"
run "$weft" convert
passes "no source" ended 2 "SOURCE is expected"
run "$weft" convert --help
passes "help" ended 0 "Usage: weft convert [OPTION...] SOURCE" "packed_interleaved" "megatron"
head -c 20000 "$t/gate_up.h5" >"$t/cut.h5"
convert cut.h5 bad.h5 --to separate
passes "a cut file" ended 3 "$t/cut.h5: can't open"
cp -r "$t/run" "$t/damaged"
flip "$t/damaged/step-00000002/shard-t003-d001.h5" /value/$up
convert damaged bad.h5 --to separate
passes "a flipped bit in a checkpoint" ended 3 "shard-t003-d001.h5"
passes "nothing is left of these" nothing_left bad.h5

# ---- killed
run "$weft_faults" convert "$t/run" --to separate --out "$t/killed.h5" --inject kill@phase=save
passes "killed before the proof" ended 137
passes "there is no file" test ! -e "$t/killed.h5"
passes "but one aside" test -s "$(aside killed.h5)/killed.h5"
convert run killed.h5 --to separate
passes "the next one makes it" cmp "$t/killed.h5" "$t/separate.h5"
passes "and nothing stays aside" test -z "$(aside killed.h5)"

# ---- what only looks as if weft had left it
mkdir "$t/.tmp-mine.h5" "$t/.tmp-mine.h5-1-0123456789abcdef"
cp "$t/separate.h5" "$t/.tmp-mine.h5/source.h5"
echo mine >"$t/.tmp-mine.h5-1-0123456789abcdef/file"
convert .tmp-mine.h5/source.h5 mine.h5 --to separate
passes "a source in .tmp-NAME" ended 0
passes "it stays" cmp "$t/separate.h5" "$t/.tmp-mine.h5/source.h5"
passes "and others' files" test -s "$t/.tmp-mine.h5-1-0123456789abcdef/file"
mkdir "$t/own"
echo mine >"$t/own/file"
ln -s own "$t/.tmp-linked.h5"
convert run linked.h5 --to separate
passes "what a link leads to stays" test -s "$t/own/file"

# ---- two at once
# twice COMMAND...: one has made it, the other says that it hasn't.
twice() {
    "$@" >"$t/first.out" 2>&1 &
    local other=$!
    run "$@"
    wait $other
    [ "$((code + $?))" = 2 ] || { echo "both $code"; return 1; }
    cat "$t/first.out" >>"$out"
    grep -q "exists already\|another process is making it" "$out"
}
for i in 1 2 3; do
    out=$t/twice.out
    passes "two at once" twice "$weft" convert "$t/run" --to separate --out "$t/twice$i.h5"
    passes "one is whole" cmp "$t/separate.h5" "$t/twice$i.h5"
    passes "and nothing else" test -z "$(aside "twice$i.h5")"
done
# the first one is slow at the end, where what it has made is proved
if strace -o /dev/null true 2>/dev/null; then
    strace -f -o /dev/null -e inject=fsync:delay_exit=700000 \
        "$weft" convert "$t/run" --to separate --out "$t/slow.h5" >"$t/slow.out" 2>&1 &
    slow=$!
    while ! compgen -G "$t/.tmp-slow.h5*/slow.h5" >"$t/seen" && kill -0 $slow; do sleep 0.05; done
    for i in $(seq 12); do
        convert run slow.h5 --to packed_gate_up
        passes "nobody else makes it" ended 2
        sleep 0.1
    done
    wait $slow
    passes "the slow one has made it" cmp "$t/separate.h5" "$t/slow.h5"
fi

# ---- a bit that flips on its way: the row goes through layers 0, 2 and 3
train deep one --stop-at 1 --set model.layers=4
for layer in 0 1; do
    run "$weft_faults" convert "$t/deep" --to packed_shard --out "$t/flipped.h5" \
        --inject bitflip@phase=save,step=$layer
    passes "a flipped bit in layer $layer" ended 4 "layer $layer" "; nothing is published"
    passes "there is no file of it" nothing_left flipped.h5
done
passes "which no known row has seen" says "layer 1: the weight of gate differs in rows 0 to 171"

# ---- little space: a mount of our own, where we may have one
small='mount -t tmpfs -o size=100k tmpfs "$1" && shift && exec "$@"'
mkdir "$t/small"
for flags in -m -rm; do
    unshare $flags sh -c "$small" sh "$t/small" true 2>/dev/null || continue
    run unshare $flags sh -c "$small" sh "$t/small" \
        "$weft" convert "$t/run" --to separate --out "$t/small/new.h5"
    passes "too little space" ended 4 " GB are needed in $t/small" "nothing is written"
    break
done

passes "the run is as it was" test "$before" = "$(find "$step" -type f -exec sha256sum {} + | sort)"
finish
