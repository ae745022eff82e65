# For scripts that do something to a run while it runs; to be sourced after common.bash.
#
#   background NAME COMMAND...   starts the command; its process is $launcher, its output $t/NAME.out.
#                                Ctrl-C's signal works as from a terminal
#   wait_for COMMAND...          until it succeeds, at most 20 s
#   ended_by NAME                waits for the end of the command: $code and $out are as after `run`

background() {
    out=$t/$1.out
    shift
    env --default-signal=INT "$@" >"$out" 2>&1 </dev/null &
    launcher=$!
}

wait_for() {
    local i
    for i in {1..400}; do
        "$@" 2>/dev/null && return
        sleep 0.05
    done
    echo "waited in vain for $*"
}

ended_by() {
    wait "$launcher"
    code=$?
    out=$t/$1.out
}

# steps_done NAME N: the run has done so many.
steps_done() { [ "$(wc -l <"$t/$1/metrics.jsonl")" -ge "$2" ]; }

children() { cat "/proc/$1/task/"*/children; }

# The launcher's mpirun (prterun, it calls itself in Open MPI 5).
mpirun_pid() {
    local pid
    for pid in $(children "$launcher"); do
        grep -qzE '(^|/)(mpirun|prterun)$' "/proc/$pid/cmdline" && echo "$pid"
    done
}

# One of its ranks, counted from 1.
rank_pid() { children "$(mpirun_pid)" | cut -d ' ' -f "$1"; }
