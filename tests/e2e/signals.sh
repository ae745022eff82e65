#!/bin/bash
# Signals and clocks make a run save, or save and stop, at the same step on all ranks; what comes
# after is the run that was never interrupted.
. "$(dirname "$0")/common.bash"
. tests/e2e/background.bash
program=$weft_faults
slow=(--inject "delay@phase=optimizer,times=0,seconds=0.05")

# start NAME RANKS OPTIONS...: like train, but slow, and in the background.
start() {
    local name=$1 ranks=$2
    shift 2
    WEFT_MPIRUN="--timeout $limit" background "$name" launch/local -n "$ranks" \
        --program "$program" "$config" --set run.dir="$t/$name" "${slow[@]}" "$@"
}

# stopped NAME REASON: with exit code 0, a word about how to go on, and one checkpoint, of a step
# before the end, that is the last of the metrics.
stopped() {
    ended 0 "($2)" "--resume auto continues" || return
    local step
    step=$(fingerprint "$1" | sed 's/.* step //')
    [ "$step" -gt 0 ] && [ "$step" -lt 24 ] || { echo "stopped at step $step"; return 1; }
    has_steps "$1" "$step" || return
    [ "$(ls -d "$t/$1"/step-*)" = "$t/$1/step-$(printf %08d "$step")" ] ||
        { echo "checkpoints $(ls "$t/$1")"; return 1; }
}

# continues NAME RANKS...: goes on from there on another layout, to the uninterrupted end.
continues() {
    local name=$1
    shift
    train "$name" "$@" --resume auto
    ended 0 && same_run whole "$name"
}

train whole one

# ---- save and go on ----

start user1 3 --tp 2 --dp 1 # one rank is idle
wait_for steps_done user1 3
kill -USR1 $launcher
wait_for steps_done user1 14
kill -USR1 "$(rank_pid 2)"
ended_by user1
passes "USR1, to the launcher and to one rank: the run" same_run whole user1
passes "USR1: says so" ended 0 "SIGUSR1"
between() { ls "$t/$1" | sed -n 's/^step-0*//p' | awk -v a="$2" -v b="$3" '$1 >= a && $1 <= b' |
    grep -q .; }
passes "USR1 to the launcher: a checkpoint" between user1 3 9
passes "USR1 to a rank: a checkpoint" between user1 14 20
passes "USR1: its checkpoints are good" "$weft" verify "$t/user1"

# ---- save and stop ----

# SIGNAL, whom it is sent to, the reason that the ranks give, ranks and layout that go on
while read -r signal whom reason onward; do
    name="$signal to $whom"
    start "$name" 3 --tp 3 --dp 1
    wait_for steps_done "$name" 4
    case $whom in
    launcher) kill "-$signal" $launcher ;;
    mpirun) kill "-$signal" "$(mpirun_pid)" ;;
    rank) kill "-$signal" "$(rank_pid 2)" ;;
    esac
    ended_by "$name"
    passes "$name: stopped" stopped "$name" "$reason"
    # shellcheck disable=SC2086
    [ -z "$onward" ] || passes "$name: goes on" continues "$name" $onward
done <<'END'
TERM launcher SIGUSR2 2 --tp 1 --dp 2
INT launcher SIGUSR2
USR2 mpirun SIGUSR2 one
TERM rank SIGTERM 2 --tp 2 --dp 1
END

# Before the ranks listen, and before the first step.
for delay in 0.1 0.25; do
    start "early $delay" 2
    sleep $delay
    kill -TERM $launcher
    ended_by "early $delay"
    passes "TERM after $delay s: stopped" ended 0 "weft: stopped "
done
passes "TERM while it starts: goes on" continues "early 0.1" one

# Twice is at once: here the save takes 30 s.
start twice 2 --inject slow-disk@seconds=30
wait_for steps_done twice 2
kill -INT $launcher
sleep 1.2
seconds=$SECONDS
kill -INT $launcher
ended_by twice
passes "INT twice: at once" test $((SECONDS - seconds)) -le 3
passes "INT twice: says so" ended 137 "saving and stopping" "ending it at once"

# ---- clocks ----

start limit 2 --set train.max_minutes=0.02
ended_by limit
passes "train.max_minutes: stopped" stopped limit train.max_minutes

export SLURM_JOB_END_TIME=$((EPOCHSECONDS + 2))
start slurm 2 --set train.max_minutes=60 "${slow[@]}" # twice as slow
ended_by slurm
passes "Slurm's end: stopped" stopped slurm SLURM_JOB_END_TIME
unset SLURM_JOB_END_TIME

start minutes 2 --set checkpoint.minutes=0.01
ended_by minutes
passes "checkpoint.minutes: the run" same_run whole minutes
passes "checkpoint.minutes: a checkpoint" between minutes 1 23
finish
