#!/bin/bash
# Saves beside training: what is written is the state at the save, whatever happens meanwhile; a
# save that fails costs nothing but itself.
. "$(dirname "$0")/common.bash"
steps() { (cd "$t/$1" && echo step-* | sed 's/step-0*//g'); }

train whole one --set checkpoint.every=10 --set checkpoint.keep=0 --stop-at 20

# waits_for SECONDS CONDITION...: until the condition holds.
waits_for() {
    local tries=$((${1} * 50))
    shift
    until "$@"; do
        [ $((tries--)) -gt 0 ] || return 1
        sleep 0.02
    done
}

# same_files A B STEP: the same HDF5 files.
same_files() {
    local file
    for file in "$t/$1/step-000000$3"/*.h5; do
        cmp -s "$file" "$t/$2/step-000000$3/${file##*/}" || { echo "${file##*/} differs"; return 1; }
    done
}

# A writer that takes two seconds, and more than five steps of training meanwhile.
program=$weft_faults
train slow 2 --set checkpoint.every=10 --set checkpoint.keep=0 --stop-at 20 \
    --inject slow-disk@step=9,seconds=2 &
passes "training goes on while a slow disk is written" waits_for 40 \
    grep -qs '"step":16' "$t/slow/metrics.jsonl"
passes "for the save isn't published yet" test ! -e "$t/slow/step-00000010"
passes "it is on its way" test -e "$t/slow/.tmp-step-00000010"
wait $!
passes "the run ends like another" same_run whole slow 20
passes "the slow save holds the state of its step" same_files whole slow 10
passes "so does the last one, which is waited for" same_files whole slow 20
passes "both verify" "$weft" verify "$t/slow/step-00000010"

# The next save waits for the last.
train twice 2 --set checkpoint.every=4 --set checkpoint.keep=0 --stop-at 20 \
    --inject slow-disk@times=3,seconds=0.5,rank=1
passes "saves that come faster than the disk" same_run whole twice 20
passes "are all there" test "$(steps twice)" = "4 8 12 16 20"
passes "and right" same_files whole twice 20
train waits 2 --set checkpoint.every=10 --set checkpoint.async=false --stop-at 20
passes "checkpoint.async = false" same_run whole waits 20
passes "writes the same" same_files whole waits 10

# No space: an error at the next step, or a warning.
train stop 2 --set checkpoint.every=4 --stop-at 20 --inject enospc@step=7,rank=1
passes "a failed save ends the run" ended 4 "rank 1: $t/stop/.tmp-step-00000008/shard-" \
    "No space left on device"
passes "the one before is there, and no debris" test "$(ls -A "$t/stop" | tr '\n' ' ')" = \
    ".claim config.ini metrics.jsonl step-00000004 "
train stop 3 --set checkpoint.every=4 --stop-at 20 --resume auto
passes "from which it goes on" same_run whole stop 20
train warn 2 --set checkpoint.every=4 --set checkpoint.on_error=warn --set checkpoint.keep=0 \
    --stop-at 20 --inject enospc@step=7,rank=0
passes "checkpoint.on_error = warn" ended 0 \
    "the checkpoint of step 8 is not saved" "No space left on device" "the run goes on"
passes "goes on to the same end" same_run whole warn 20
passes "without the failed one" test "$(steps warn)" = "4 12 16 20"
train last 2 --set checkpoint.every=0 --set checkpoint.on_error=warn --stop-at 8 \
    --inject enospc@step=7
passes "the last save may not fail" ended 4 "No space left on device"

# A bit that turns on its way to the disk is found before older checkpoints are deleted.
train flipped one --set checkpoint.every=4 --set checkpoint.keep=1 --stop-at 8 \
    --inject bitflip@step=7,phase=save
passes "a new checkpoint that doesn't verify" ended 4 "older checkpoints stay" "damaged"
passes "doesn't drive out the good one" test "$(steps flipped)" = "4 8"
train flipped one --stop-at 20 --resume auto
passes "which is taken then" ended 0 "step-00000008: skipped:" "resuming from $t/flipped/step-00000004"
passes "with the same end" same_run whole flipped 20

# The run directory is taken away, or something else stands in the way.
train gone 2 --set checkpoint.every=10 --stop-at 20 --inject slow-disk@step=9,seconds=1 &
waits_for 40 test -e "$t/gone/.tmp-step-00000010"
mv "$t/gone" "$t/elsewhere"
wait $!
out=$t/gone.out code=$(grep -c 'weft: error' "$t/gone.out")
passes "a directory that is removed during a save is named" says "$t/gone/.tmp-step-00000010"
passes "once" test "$code" = 1

# Moved between saves, and another run in its place: neither writes into the other's.
train mine one --set checkpoint.every=4 --set checkpoint.async=false --stop-at 12 \
    --inject delay@step=5,phase=optimizer,seconds=3 &
waits_for 20 grep -qs '"step":5' "$t/mine/metrics.jsonl"
mv "$t/mine" "$t/moved"
train_other() { "$weft" train "$config" --set run.dir="$t/mine" --set run.seed=7 --stop-at 3; }
train_other >/dev/null 2>&1
wait %%
out=$t/mine.out
passes "a run whose directory has been replaced ends" says \
    "run.dir = $t/mine: is no longer the directory that this run has begun in"
passes "the other's checkpoint is still there" test "$(steps mine)" = 3
passes "and its own" "$weft" verify "$t/moved"

# A checkpoint is no place for a run.
out=$t/inside.out
run "$weft" train "$config" --set run.dir="$t/whole/step-00000010/deep/run"
passes "a run directory inside of a checkpoint" ended 2 "lies inside of a checkpoint"
run "$weft" reshard "$t/whole" --tensor 3 --out "$t/whole/step-00000010/x"
passes "a reshard into one" ended 2 "--out $t/whole/step-00000010/x: lies inside of a checkpoint"
passes "which stays good" "$weft" verify "$t/whole/step-00000010"
train pipe one --stop-at 2
mkfifo "$t/pipe/config.ini.tmp"
train pipe one --resume auto --stop-at 4
passes "a pipe where a file is written aside" ended 0 "step 4"

train link one --set checkpoint.every=4 --stop-at 4
mkdir "$t/target"
ln -s "$t/target" "$t/link/step-00000010"
touch "$t/target/precious"
train link 2 --set checkpoint.every=10 --stop-at 20 --resume auto
passes "a link in the place of a checkpoint" ended 4 "step-00000010: is in the way of a checkpoint"
passes "is left alone" test -e "$t/target/precious"
train claimed one --stop-at 20 --inject delay@seconds=4,phase=optimizer,step=5 &
waits_for 20 grep -qs '"step":5' "$t/claimed/metrics.jsonl"
job=$!
out=$t/second.out
run "$program" train "$config" --set run.dir="$t/claimed" --resume auto
passes "a second job in the run directory" ended 2 "run.dir = $t/claimed: another job is at work"
wait $job
passes "doesn't disturb the first" same_run whole claimed 20

# Which checkpoints stay.
program=$weft
train keeps one --set checkpoint.every=2 --set checkpoint.keep=2 --set checkpoint.keep_every=6 \
    --set checkpoint.keep_best=true --set eval.every=4 --stop-at 20
best=$(sed -n 's/.*"step":\([0-9]*\),.*"held_out_loss":\([0-9.]*\),.*/\2 \1/p' \
    "$t/keeps/metrics.jsonl" | sort -n | head -n 1 | cut -d ' ' -f 2)
passes "the last two, every sixth and the best" test "$(steps keeps)" = \
    "$(printf '%s\n' 6 12 18 20 "$best" | sort -nu | tr '\n' ' ' | sed 's/ $//')"
finish
