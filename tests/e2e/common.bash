# Shared by the scripts of this folder, which source it first and end with `finish`. A script is a
# list of runs, and of tests of what came out:
#
#   train NAME RANKS OPTIONS...    trains $config into the run directory $t/NAME under mpirun; RANKS
#                                  `one` starts one process without it. Returns the exit code,
#                                  which is in $code too; the output is in $out
#   passes NAME COMMAND...         a test: passes when the command returns 0
#   fails NAME COMMAND...          a control: passes when the command, a comparison, returns 1
#
# A script ends with the test that WEFT_TEST names, if it is set.
#
# $t is a scratch folder that goes away at the end. WEFT and WEFT_FAULTS, when set, are the
# programs; $program is the one that trains, $steps are those of $config. Nothing here takes longer
# than $limit seconds.
set -u
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
. launch/mpi-env
# mpirun would give the ranks of a job that has failed a second between SIGTERM and SIGKILL.
export OMPI_MCA_odls_base_sigkill_timeout=0 PRTE_MCA_odls_base_sigkill_timeout=0

weft=${WEFT:-build/weft}
weft_faults=${WEFT_FAULTS:-build/weft-faults}
program=$weft
config=tests/configs/tiny.ini
steps=24
limit=60
passed=0 failed=0 code=0

t=$(mktemp -d)
export TMPDIR=$t
out=$t/nothing.out
: >"$out"
trap 'rm -rf "$t"' EXIT

# run COMMAND...: its exit code in $code, what it prints in $out. Runs at the same time have no TMPDIR
# in common: an mpirun that ends takes away the folder in which another begins, and Open MPI 5 trips
# over what a killed one left.
run() {
    mkdir -p "$t/tmp.$BASHPID"
    TMPDIR=$t/tmp.$BASHPID timeout -k 5 $((limit + 5)) "$@" >"$out" 2>&1 </dev/null
    code=$?
    return $code
}

train() {
    local name=$1 ranks=$2
    shift 2
    out=$t/$name.out
    set -- "$config" --set run.dir="$t/$name" "$@"
    if [ "$ranks" = one ]; then
        run "$program" train "$@"
    else
        WEFT_MPIRUN="--timeout $limit" run launch/local -n "$ranks" --program "$program" "$@"
    fi
}

passes() {
    local name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $name ($*)"
        echo "last exit code $code, output of the last run:"
        { head -n 4 "$out"; echo ...; tail -n 4 "$out"; } | cut -c 1-300 | sed 's/^/    | /'
    fi
    [ "$name" != "${WEFT_TEST:-}" ] || finish
}

fails() {
    local name=$1
    shift
    passes "$name" differs "$@"
}

# A comparison says 1 for a difference; 2 is for things that can't be compared.
differs() {
    "$@" >"$t/difference" 2>&1
    [ $? -eq 1 ]
}

# ended CODE TEXT...: how the last run ended, and that it printed every text.
ended() {
    local wanted=$1 text
    shift
    [ "$code" -eq "$wanted" ] || { echo "exit code $code instead of $wanted"; return 1; }
    for text in "$@"; do says "$text" || return 1; done
}

says() { grep -qF -- "$1" "$out" || { echo "does not say \"$1\""; return 1; }; }

silent_about() { ! grep -qF -- "$1" "$out" || { echo "says \"$1\""; return 1; }; }

# What must not depend on who computes, of the metrics of run $1: a line per step.
trajectory() {
    local field
    while read -r line; do
        for field in step loss_hex lr grad_norm samples held_out_loss_hex; do
            [[ $line =~ \"$field\":(\"[^\"]*\"|[^,}]*) ]] && printf '%s ' "${BASH_REMATCH[1]}"
        done
        echo
    done <"$t/$1/metrics.jsonl"
}

# The last line that train and inspect print. (Open MPI 5 ends a failed job with a NUL, and may put
# a line of stdout within one of stderr.)
fingerprint() { grep -ao 'fingerprint [0-9a-f]\{32\} step [0-9]*$' "$t/$1.out" | tail -n 1; }

# has_metrics NAME N: its metrics are those of steps 1 to N.
has_metrics() {
    local found
    found=$(sed -n 's/^{"step":\([0-9]*\),.*}$/\1/p' "$t/$1/metrics.jsonl" | tr '\n' ' ')
    [ "$found" = "$(seq -s ' ' "$2") " ] || { echo "$1: metrics of steps $found"; return 2; }
}

# has_steps NAME N: the run has ended at step N.
has_steps() {
    has_metrics "$1" "$2" || return
    [[ $(fingerprint "$1") == *" step $2" ]] || { echo "$1: no fingerprint of step $2"; return 2; }
}

# same_run A B [STEPS]: both are complete, with the same losses and the same fingerprint.
same_run() {
    has_steps "$1" "${3:-$steps}" && has_steps "$2" "${3:-$steps}" || return 2
    same_losses "$1" "$2" || return 1
    [ "$(fingerprint "$1")" = "$(fingerprint "$2")" ] ||
        { echo "$1: $(fingerprint "$1"), $2: $(fingerprint "$2")"; return 1; }
}

same_losses() {
    diff <(trajectory "$1") <(trajectory "$2") >"$t/trajectories" && return 0
    echo "$1 and $2 part:"
    head -n 4 "$t/trajectories"
    return 1
}

# flip FILE DATASET: changes one bit of a dataset's first value in an HDF5 file.
flip() {
    local place byte
    place=$(h5dump -p -H -d "$2" "$1" | sed -n 's/^ *OFFSET \([0-9]*\)$/\1/p')
    byte=$(od -An -tu1 -j "$place" -N 1 "$1")
    printf "\\x$(printf %x $((byte ^ 64)))" |
        dd of="$1" bs=1 seek="$place" conv=notrunc status=none
}

finish() {
    echo "$passed passed, $failed failed"
    [ $failed -eq 0 ]
    exit
}
