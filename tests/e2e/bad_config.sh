#!/bin/bash
# Runs `weft train` on every row of bad_configs.txt: each must end with its exit code and a message
# that names the thing, within 60 seconds and without leaving a run directory.
# usage: tests/e2e/bad_config.sh [PATTERN]     (a regular expression that names match)
#
# Environment: WEFT, the program (build/weft).
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 2
weft=${WEFT:-build/weft}
table=tests/e2e/bad_configs.txt
pattern=${1:-}
seconds=60

t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
zeros=$(printf '%0600d' 0)

make_texts() {
    mkdir "$t/folder"
    mkfifo "$t/pipe"
    : >"$t/empty.txt"
    ln -s "$t/missing.txt" "$t/dangling.txt"
    head -c 200 tests/data/tiny.txt >"$t/short.txt"
    printf 'x' >"$t/one.txt"
    head -c 20001 tests/data/tiny.txt >"$t/odd.bin"
    head -c 40000 /dev/zero | tr '\0' '\377' >"$t/high.bin"
}

# A scratch name in a row's text becomes what it stands for; nothing else is expanded.
fill_in() {
    local text=${1//'$t'/$t}
    printf '%s' "${text//'$zeros'/$zeros}"
}

# run_row WHAT: leaves the output in $t/out; returns the exit code. Makes the config first.
run_row() {
    local config=$t/config.ini options=()
    rm -rf "$config" "$t/run"
    case $1 in
    nothing) ;;
    folder) mkdir "$config" ;;
    file:*) printf '%b' "$(fill_in "${1#file: }")" >"$config" ;;
    *)
        cp tests/configs/tiny.ini "$config"
        read -ra options <<<"$(fill_in "$1")"
        ;;
    esac
    timeout -k 5 $seconds "$weft" train "$config" --set run.dir="$t/run" "${options[@]}" \
        >"$t/out" 2>&1 </dev/null
}

passed=0 failed=0
check_row() {
    local name=$1 code=$2 message=$3 what=$4 got problem=
    run_row "$what"
    got=$?
    [ $got -eq "$code" ] || problem="exit code $got instead of $code"
    grep -qF -- "$message" "$t/out" || problem="${problem:+$problem; }no message \"$message\""
    [ "$code" -ne 2 ] || [ ! -e "$t/run" ] || problem="${problem:+$problem; }a run directory is left"
    if [ -z "$problem" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$name: $problem"
        head -n 5 "$t/out" | cut -c 1-300 | sed 's/^/    | /'
    fi
}

make_texts
while IFS='|' read -r name code message what; do
    read -r name <<<"$name"
    case $name in '' | '#'*) continue ;; esac
    [[ $name =~ $pattern ]] || continue
    read -r message <<<"$message"
    read -r what <<<"$what"
    check_row "$name" "${code// /}" "$message" "$what"
done <"$table"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
