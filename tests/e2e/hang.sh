#!/bin/bash
# A rank that hangs: each rank tells where it is and what it waits in, the job ends with exit code
# 4, and goes on from its checkpoints to the same end. Ranks that are slow, or have nothing to do,
# are let alone.
. "$(dirname "$0")/common.bash"
options=(--set train.steps=8 --set checkpoint.every=2)
train whole one "${options[@]}"

# The jobs mostly wait, so they run at the same time. start NAME OPTIONS...: like train
jobs=()
start() {
    rm -rf "${t:?}/$1"
    {
        begun=${EPOCHREALTIME/./}
        train "$@" "${options[@]}"
        echo $code $(((${EPOCHREALTIME/./} - begun) / 1000)) >"$t/$1.end"
    } &
    jobs+=($!)
}
# take NAME: its exit code and output are the last run's; it took $milliseconds.
take() {
    out=$t/$1.out
    read -r code milliseconds <"$t/$1.end"
}

# says_line RANK TEXT: what a rank said.
says_line() { grep -aq "^weft: error: rank $1: no progress for $2; ends the job in 1 s" "$out"; }

# ---- each phase of a step, and those in which a disk may be slow: ten times the limit there -----
program=$weft_faults
limit=40
begin=$SECONDS
start forward 3 --tp 3 --dp 1 --set train.hang_timeout=2 --inject hang@rank=1,step=5,phase=forward
start backward 2 --tp 1 --dp 2 --set train.hang_timeout=2 --inject hang@rank=0,step=5,phase=backward
start optimizer 3 --tp 2 --dp 1 --set train.hang_timeout=2 \
    --inject hang@rank=1,step=5,phase=optimizer
start startup 2 --set train.hang_timeout=0.5 --inject hang@rank=1,phase=startup
start data 2 --set train.hang_timeout=0.5 --inject hang@rank=0,phase=data
start save 2 --set train.hang_timeout=0.5 --inject hang@rank=1,step=5,phase=save
start write 2 --set train.hang_timeout=0.5 --inject hang@rank=1,step=5,phase=write
wait "${jobs[@]}"
passes "they end in time" test $((SECONDS - begin)) -lt 30

take forward
passes "forward" ended 4
for rank in 0 2; do
    passes "rank $rank waits for it" says_line $rank \
        "2 s: step 6, phase forward, waiting in exact sum by [a-z]* over tensor ranks"
done
passes "rank 1 hangs" says_line 1 "2 s: step 6, phase forward, in no collective"
take backward
passes "backward" ended 4
passes "rank 0 hangs" says_line 0 "2 s: step 6, phase backward, in no collective"
passes "rank 1 waits" says_line 1 \
    "2 s: step 6, phase backward, waiting in exact sum by [a-z]* over data ranks"
take optimizer
passes "optimizer" ended 4
passes "rank 1 hangs" says_line 1 "2 s: step 6, phase optimizer, in no collective"
passes "rank 0 waits" says_line 0 \
    "2 s: step 6, phase optimizer, waiting in .* over all ranks of the grid"
passes "a surplus rank says nothing" silent_about "rank 2: no progress"
take startup
passes "startup" ended 4
passes "rank 1 hangs" says_line 1 "5 s: before the first step, phase startup, in no collective"
passes "rank 0 waits" says_line 0 \
    "5 s: before the first step, phase startup, waiting in agreement on errors over all ranks"
take data
passes "data" ended 4
passes "rank 0 hangs" says_line 0 "5 s: before the first step, phase data, in no collective"
for phase in save write; do
    take $phase
    passes "$phase" ended 4
    passes "rank 1 hangs" says_line 1 "5 s: step [0-9], phase save, in no collective"
    passes "rank 0 waits" says_line 0 "5 s: step [0-9], phase save, waiting in .* over .*ranks.*"
done

# ---- nothing is lost
for name in forward backward optimizer save write; do
    passes "$name: the last checkpoint is good" "$weft" verify "$t/$name"
    train $name one "${options[@]}" --resume auto
    passes "$name: it goes on from it" says "resuming from $t/$name/step-0000000"
    passes "$name: to the same end" same_run whole $name 8
done

# ---- not a hang, or nobody is to look; and the released program, in which a process is stopped --
jobs=()
start late 2 --tp 2 --dp 1 --set train.hang_timeout=2 --inject delay@rank=1,times=3,seconds=1
start evaluation 3 --tp 1 --dp 2 --set train.hang_timeout=1 \
    --inject delay@step=7,phase=forward,times=0,seconds=0.15
limit=5
start unwatched 2 --set train.hang_timeout=0 --inject hang@rank=1,step=5,phase=forward
limit=40 program=$weft options=(--set train.steps=400 --set checkpoint.every=2)
start stopped 2 --tp 2 --dp 1 --set train.hang_timeout=2
until [ -e "$t/stopped/step-00000002" ] || ! kill -0 ${jobs[3]} 2>/dev/null; do sleep 0.05; done
for process in /proc/[0-9]*; do
    { grep -qz '^OMPI_COMM_WORLD_RANK=1$' "$process/environ" &&
        grep -qzF "run.dir=$t/stopped" "$process/cmdline"; } 2>/dev/null && kill -STOP "${process#/proc/}"
done
wait "${jobs[@]}"

take late
passes "a late rank" same_run whole late 8
passes "is let alone" silent_about "no progress"
take evaluation
passes "a long evaluation" same_run whole evaluation 8
passes "is let alone, and a surplus rank that waits" silent_about "no progress"
passes "it was long: 16 times 0.15 s" test "$milliseconds" -gt 2400
take unwatched
passes "train.hang_timeout = 0: nobody looks" silent_about "no progress"
passes "and mpirun's own limit ends the job" test "$code" -ne 0
take stopped
passes "a stopped process" ended 4
passes "those that live tell" says_line 0 \
    "2 s: step [0-9]*, phase [a-z]*, waiting in .* over .*ranks.*"
passes "it can't tell" silent_about "rank 1: no progress"
passes "its last checkpoint is good" "$weft" verify "$t/stopped"
finish
