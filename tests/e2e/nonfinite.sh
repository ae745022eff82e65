#!/bin/bash
# A NaN in a step, injected or by divergence, never reaches the parameters: a transient one leaves no
# trace but a warning, a persistent one stops the run or is skipped, as the config says.
. "$(dirname "$0")/common.bash"
program=$weft_faults
again="finite when computed again: a transient fault (memory, hardware)"

# marked NAME KEY: the steps whose metrics line says "KEY":true.
marked() { sed -n "s/^{\"step\":\([0-9]*\),.*\"$2\":true.*/\1/p" "$t/$1/metrics.jsonl" | xargs; }

# has_marks NAME REPEATED SKIPPED
has_marks() {
    [ "$(marked "$1" repeated)|$(marked "$1" skipped)" = "$2|$3" ] ||
        { echo "repeated: $(marked "$1" repeated), skipped: $(marked "$1" skipped)"; return 1; }
}

# The message that ended the last run, without the rank: that depends on the layout.
message() { sed -n 's/^weft: error: \(.*\)/\1/p' "$out" | sed 's/, rank [0-9]*//'; }

is() { [ "$1" = "$2" ] || { echo "\"$1\" is not \"$2\""; return 1; }; }

# ---- transient: each rank, both phases
train clean one --stop-at 3
transient() {
    local tp=$1 dp=$2 ranks=$(($1 * $2)) phase rank name
    shift 2
    for phase in forward backward; do
        for ((rank = 0; rank < ranks; rank++)); do
            name="tp $tp x dp $dp, $phase of rank $rank${*:+, own rows}"
            train "$name" "$ranks" --tp "$tp" --dp "$dp" --stop-at 3 "$@" \
                --inject "nan@rank=$rank,step=1,phase=$phase"
            passes "$name: as if nothing had been" same_run clean "$name" 3
            passes "$name: it is told" ended 0 "warning: step 2: loss" "$again"
            passes "$name: in the metrics too" has_marks "$name" 2 ""
            [ "$phase$dp" = forward2 ] && passes "$name: its rank" says "hardware) on rank $rank;"
        done
    done
}
transient 3 1
transient 1 2
transient 2 1 --set parallel.sequence=true
passes "without a fault nothing is told" has_marks clean "" ""

# ---- persistent: stop
train stop 3 --tp 3 --dp 1 --set checkpoint.every=1 \
    --inject nan@rank=1,step=2,phase=forward,times=0
passes "persistent in forward" ended 4 "step 3: loss nan, gradient norm nan, also when computed again" \
    "first to go: microbatch 0, forward, layer 1, ffn.act, element [0, " " = nan, rank 1;"
passes "nothing is saved then" is "$(cd "$t/stop" && echo step-*)" "step-00000001 step-00000002"
passes "what was saved is good" "$weft" verify "$t/stop/step-00000002"
train stop 1 --resume auto --stop-at 3
passes "it goes on from there" is "$(fingerprint stop)" "$(fingerprint clean)"
train backward 2 --tp 1 --dp 2 --inject nan@rank=1,step=2,phase=backward,times=0
passes "persistent in backward" ended 4 "gradient norm nan" \
    "microbatch 4, backward, layer 1, gradient of layer.input, element [0, 0] = nan, rank 1;"
train "own rows" 3 --tp 3 --dp 1 --set parallel.sequence=true \
    --inject nan@rank=1,step=2,phase=backward,times=0
passes "persistent in backward, own rows" ended 4 \
    "gradient of layer.input, element [8, 0] = nan, rank 1;"
train thrice one --inject nan@step=2,phase=forward,times=9
passes "finite the third time" ended 4 "finite when computed a third time; this machine isn't reliable"
train flipped 3 --tp 3 --dp 1 --set train.on_nonfinite=skip \
    --inject bitflip@rank=2,step=1,phase=optimizer
passes "a flipped bit in a parameter" ended 4 \
    "first to go: parameter model.norm.weight, element [0] = nan, rank 2, before the step"

# ---- persistent: skip
skip=(--set train.on_nonfinite=skip --set checkpoint.every=1 --set checkpoint.keep=0)
nan=nan@step=2,phase=forward,times=0
train skip one "${skip[@]}" --stop-at 5 --inject $nan
passes "a skipped step" ended 0 "warning: step 3: loss nan" "the step is skipped: no update" "layer 1, ffn.act"
passes "the metrics say so" has_marks skip 3 3
passes "they have no number there" grep -q '^{"step":3,"loss":null,' "$t/skip/metrics.jsonl"
same_state() {
    local file
    for file in "$t/skip/step-0000000$1"/shard-*.h5; do
        cmp "$file" "$t/skip/step-0000000$2/${file##*/}" || return
    done
}
passes "parameters and moments are those of the step before" same_state 2 3
fails "other steps change them" same_state 3 4
train whole one --stop-at 5
fails "it is another run than one without the fault" same_run whole skip 5
train skip3 3 --tp 3 --dp 1 "${skip[@]}" --stop-at 5 --inject $nan
passes "the same on 3 tensor ranks" same_run skip skip3 5
train skip2 2 --tp 1 --dp 2 "${skip[@]}" --stop-at 3 --inject $nan,rank=1
train skip2 2 --tp 2 --dp 1 "${skip[@]}" --resume auto --stop-at 5
passes "the same on 2 data ranks, cut in two after it" same_run skip skip2 5
train ever one "${skip[@]}" --inject nan@phase=backward,times=0
passes "ten in a row are enough" ended 4 "after 10 skipped steps in a row, step 11: loss"
passes "they are in the metrics" has_metrics ever 10

# ---- a run that diverges by itself
for where in "1 1 none" "1 1 block" "3 1 act" "1 2 block"; do
    read -r tp dp recompute <<<"$where"
    train diverged $((tp * dp)) --tp "$tp" --dp "$dp" --set optim.lr=1000 --set init.std=10 \
        --set optim.warmup=0 --set optim.clip=0 --set train.recompute="$recompute"
    passes "divergence at $where" ended 4 "first to go: microbatch 0, forward, layer 0, ffn.down"
    passes "the same message at $where" is "$(message)" "${first:=$(message)}"
    rm -r "$t/diverged"
done
finish
