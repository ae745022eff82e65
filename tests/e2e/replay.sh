#!/bin/bash
# weft replay: a checkpoint carries the proof of what came after it, anybody can repeat those steps
# on any number of ranks, and what isn't as it was is named.
. "$(dirname "$0")/common.bash"

# replay RANKS DIR OPTIONS...: like train, for weft replay.
replay() {
    local ranks=$1
    shift
    out=$t/replay.out
    if [ "$ranks" = one ]; then
        run "$program" replay "$@"
    else
        WEFT_MPIRUN="--timeout $limit" run launch/local -n "$ranks" --program "$program" \
            --command replay "$@"
    fi
}

copy() { cp -r "$t/$1" "$t/$2"; }
step() { echo "$t/$1/step-0000000$2"; }

# proves NAME STEP STEPS...: the proof of this checkpoint is of these steps.
proves() {
    local found
    found=$(sed -n '/^ "steps"/,$s/^   "step": \([0-9]*\),/\1/p' "$(step "$1" "$2")/proof.json" |
        tr '\n' ' ')
    shift 2
    [ "$found" = "$* " ] || { echo "steps $found"; return 1; }
}

# ---- what a run leaves, on any number of ranks
train whole 2 --tp 2 --dp 1 --set checkpoint.every=2 --set checkpoint.keep=0 --stop-at 7
passes "two steps each" proves whole 2 3 4
passes "the second too" proves whole 4 5 6
passes "what there was of it, at the end of the run" proves whole 6 7
passes "none after the last step" test ! -e "$(step whole 7)/proof.json"
passes "nothing unfinished beside them" test ! -e "$t/whole/.proof.json"

state_of_disk() { find "$t/whole" -printf '%p %i %s %T@ %C@\n' | sort; }
state_of_disk >"$t/before"
header="loss there"
replay one "$(step whole 2)"
passes "one rank" ended 0 "$header" \
    "replay: pass: 2 steps after step-00000002 repeated bit for bit on tp 1 x dp 1"
passes "a row for each step" test 2 = "$(grep -c 'equal       equal       equal$' "$out")"
replay 3 "$(step whole 4)" --tp 3 --dp 1
passes "tp 3" ended 0 "2 steps after step-00000004 repeated bit for bit on tp 3 x dp 1" \
    "made on tp 2 x dp 1"
replay 5 "$t/whole/" --tp 2 --dp 2
passes "a run directory, tp 2 x dp 2 and a surplus rank" ended 0 \
    "1 step after step-00000006 repeated bit for bit on tp 2 x dp 2"
replay 2 "$(step whole 2)" --set train.recompute=block --set run.threads=2
passes "what changes no bit may be set" ended 0 "repeated bit for bit on tp"
replay one "$(step whole 7)"
passes "the last checkpoint" ended 3 "step-00000007 has no proof.json: no step was trained after it"
passes "nothing is written" diff "$t/before" <(state_of_disk)

replay 2 "$(step whole 2)" --set optim.lr=1e-3 --set grid.reduction=allreduce
passes "what decides the steps may not be set" ended 2 "other steps than those of the proof" \
    "optim.lr 0.003 -> 0.001" "grid.reduction exact -> allreduce"
cp tests/data/tiny.txt "$t/moved.txt"
replay one "$(step whole 6)" --set data.train="$t/moved.txt"
passes "a text that has moved" ended 0 "repeated bit for bit"
tr e f <tests/data/tiny.txt >"$t/other.txt"
replay one "$(step whole 6)" --set data.train="$t/other.txt"
passes "another text" ended 3 "other.txt isn't the data that the steps were made from"

# ---- what is damaged, or wrong
copy whole edited
sed -i 's/"loss": "0x1\./"loss": "0x1.5/' "$(step edited 6)/proof.json"
replay 2 "$t/edited"
passes "an edited loss" ended 3 "step-00000006/proof.json: damaged or edited"
run "$weft" verify --deep "$(step edited 6)"
passes "is found by verify --deep" ended 1 "proof.json: damaged or edited"
rm "$(step edited 6)"/shard-t001-d001.h5 "$(step edited 7)"/shard-t001-d001.h5
replay 2 "$t/edited"
passes "a run directory's newest good one with a proof" ended 0 "step-00000006: skipped" \
    "2 steps after step-00000004 repeated"

# One ulp of a norm gain on all ranks, after step 2 and after step 5, before those are saved.
program=$weft_faults
train nudged 2 --tp 2 --dp 1 --set checkpoint.every=2 --set checkpoint.keep=0 --stop-at 6 \
    --inject nudge@step=1 --inject nudge@step=4
program=$weft
replay one "$(step nudged 2)"
passes "a checkpoint holds its own state" ended 0 "repeated bit for bit"
replay 3 "$(step nudged 4)" --tp 3 --dp 1
passes "a step whose result was changed" ended 1 \
    "replay: fail: step 5: tensor value/model.norm.weight (2 steps after step-00000004"
cp "$(step whole 2)/proof.json" "$(step nudged 2)"
replay 2 "$(step nudged 2)" --tp 1 --dp 2
passes "a checkpoint that is one ulp off" ended 1 \
    "fail: step 2, the checkpoint as it is loaded: tensor value/model.norm.weight ("
program=$weft_faults
replay 2 "$(step whole 2)" --tp 2 --dp 1 --inject rank-mask@rank=1,step=3
passes "a step that is computed wrongly" ended 1 "replay: fail: step 4: loss 0x1." \
    "; tensor value/model.embed_tokens.weight, the first of "
replay 2 "$(step whole 2)" --tp 2 --dp 1 --inject lose-moments
passes "a resume that loses the moments" ended 1 "as it is loaded: tensor moment1/"
passes "nothing of that is written" diff "$t/before" <(state_of_disk)

# ---- resumed runs
copy whole repeated
rm -r "$(step repeated 6)" "$(step repeated 7)"
copy repeated steered
copy repeated broken
cp "$(step repeated 4)/proof.json" "$t/proof4"
train broken 3 --tp 3 --dp 1 --resume auto --stop-at 7 --inject nudge@step=5
passes "a repeated step that isn't what it was is told" ended 0 "warning: " \
    "step-00000004/proof.json: step 6 isn't what it was: tensor value/model.norm.weight"
passes "and the proof stays" cmp "$t/proof4" "$(step broken 4)/proof.json"
program=$weft
train repeated 3 --tp 3 --dp 1 --resume auto --set checkpoint.every=1 --stop-at 6
passes "equal ones aren't" silent_about "isn't what it was"
passes "nor is the proof touched" cmp "$t/proof4" "$(step repeated 4)/proof.json"
train steered one --resume auto --set optim.lr=1e-3 --set checkpoint.every=2 --stop-at 7
passes "nor other ones under another lr" silent_about "isn't what it was"
passes "whose next checkpoint has its own" proves steered 6 7
copy whole changed
rm -r "$(step changed 6)" "$(step changed 7)" "$(step changed 4)/proof.json"
train changed one --resume auto --set optim.lr=1e-3 --stop-at 6
passes "a resume begins a proof where there is none" proves changed 4 5 6
replay 2 "$(step changed 4)"
passes "and its lr is the one that is repeated" ended 0 "2 steps after step-00000004 repeated bit"
passes "which isn't the checkpoint's" grep -q 'lr = 0.001\\n' "$(step changed 4)/proof.json"

# ---- how many steps, and when
train overlap 2 --set checkpoint.every=1 --set checkpoint.keep=0 --set checkpoint.proof_steps=3 \
    --stop-at 5
passes "a save at every step" proves overlap 1 2 3 4
passes "three steps each" proves overlap 2 3 4 5
passes "and what there was of them" proves overlap 4 5
replay 2 "$(step overlap 1)"
passes "can be repeated" ended 0 "3 steps after step-00000001 repeated bit for bit"
train pruned 2 --set checkpoint.every=1 --set checkpoint.keep=1 --stop-at 4
passes "a checkpoint that was removed again" ended 0
passes "is passed over in silence" silent_about warning
passes "and doesn't come back" test step-00000004 = "$(ls "$t/pruned" | grep step)"
program=$weft_faults
train late one --set checkpoint.every=2 --stop-at 6 --set checkpoint.proof_steps=1 \
    --inject slow-disk@step=2,seconds=0.5
program=$weft
passes "a checkpoint that is published after its steps" proves late 2 3
train none one --set checkpoint.every=1 --set checkpoint.proof_steps=0 --stop-at 3
passes "proof_steps = 0 writes none" test -z "$(ls "$t"/none/*/proof.json 2>/dev/null)"
replay 2 "$t/none"
passes "and says so" ended 3 "step-00000003 has no proof.json: it was made with" "proof_steps = 0"
mkdir "$t/empty"
replay 2 "$t/empty"
passes "no checkpoint" ended 3 "empty: there is no checkpoint in it"

# ---- sums that depend on the layout
train baseline 2 --tp 2 --dp 1 --set grid.reduction=allreduce --set checkpoint.every=2 --stop-at 4
replay 2 "$(step baseline 2)" --tp 2 --dp 1
passes "allreduce on the same layout" ended 0 "repeated bit for bit"
replay 3 "$(step baseline 2)" --tp 3 --dp 1
passes "allreduce on another" ended 1 "grid.reduction = allreduce: bits depend on the layout" \
    "replay: fail: step 3: loss 0x1."
replay 3 "$(step baseline 2)" --tp 3 --dp 1 --tolerance 1e-5
passes "within a tolerance" ended 0 "replay: pass: 2 steps after step-00000002 repeated closely" \
    "1e-05 is allowed; fingerprints aren't compared"
replay 3 "$(step baseline 2)" --tp 3 --dp 1 --tolerance 1e-13
passes "outside of one" ended 1 "replay: fail: step 3: " "relative, 1.0e-13 is allowed"

# ---- another kind of core: said in advance; the products are the same
program=$weft_faults
replay one "$(step whole 2)" --inject other-core
passes "another kind of core is told in advance" ended 0 "weft: made by (vectors " \
    "this is (vectors others; " "bits may differ; --tolerance" "repeated bit for bit on tp 1 x dp 1"
finish
