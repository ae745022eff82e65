#!/bin/bash
# `weft bench`: each part prints its rows with figures, alone and on two ranks; what it doesn't know is
# refused. No figure is held against a bound.
. "$(dirname "$0")/common.bash"
limit=120

# bench RANKS PART OPTIONS...
bench() {
    local ranks=$1 part=$2
    shift 2
    out=$t/$part.$ranks.out
    WEFT_MPIRUN="--timeout $limit" run launch/local -n "$ranks" --program "$weft" --command bench \
        "$config" --part "$part" --pairs 7 --set run.threads=1 --tp "$ranks" --dp 1 "$@"
}

# has_rows NAME...: the run has ended well, and each name begins a row with a finite figure within its
# interval (`name  1.2 unit  (1.1 .. 1.3)`).
has_rows() {
    local name
    ended 0 "7 pairs" || return 1
    for name in "$@"; do
        awk -F '  +' -v name="$name" '
            $1 == name && match($0, /\([0-9.]+ \.\. [0-9.]+\)$/) {
                split(substr($0, RSTART + 1, RLENGTH - 2), bound, " ")
                if ($2 + 0 >= bound[1] + 0 && $2 + 0 <= bound[3] + 0) found = 1
            }
            END { exit !found }' "$out" || { echo "no row \"$name\" with a figure"; return 1; }
    done
}

# The parts of a step add up to it.
adds_up() {
    awk -F '  +' '/^part: / { sum += $2; n++ } $1 == "parts together" { all = $2 }
        END { exit !(n == 15 && all > 0.99 && all < 1.001) }' "$out" ||
        { echo "the parts don't add up"; return 1; }
}

bench 1 step
passes "step" has_rows "gemm 2048, one call a core" "training step" "step / gemm on all cores" \
    "throughput" "part: ffn products" "part: attention heads" "part: AdamW"
passes "parts of a step" adds_up
if grep -qw avx2 /proc/cpuinfo; then # BLAS has kernels for the vectors that this machine has
    passes "a BLAS that knows the cores" silent_about "Prescott"
    OPENBLAS_CORETYPE=Prescott bench 1 adamw
    passes "a core type of the user's own" says "Prescott"
fi
bench 2 step
passes "step on 2 ranks" has_rows "training step" "share of communication" "part: communication"
passes "parts of a step on 2 ranks" adds_up
bench 1 sgemm
passes "sgemm" has_rows "call list / gemm on all cores" "call list / BLAS at the same shapes" \
    "q, k, v forward / BLAS" "down weight gradient / sgemm 2048" "head input gradient / BLAS"
bench 1 ffn
passes "ffn" has_rows "FFN step" "FFN step / gemm on all cores" "share of products"
bench 1 attention
passes "attention" has_rows "attention step / gemm on all cores" "its heads / gemm on all cores"
bench 1 adamw
passes "adamw" has_rows "AdamW" "AdamW / stream" "gradient norm / stream"
bench 1 pointwise
passes "pointwise" has_rows "silu value" "gelu value and slope / stream" "gated backward / stream" \
    "norm backward / stream" "residual add with dropout" "cross-entropy sums"
bench 2 sgemm --set parallel.sequence=true
passes "sgemm, sequence-parallel" has_rows "call list / gemm on all cores" "o forward / BLAS"
bench 2 pointwise --set parallel.sequence=true
passes "pointwise, sequence-parallel" has_rows "norm backward / stream"
bench 2 exchange
passes "exchange by windows" has_rows "exact sum of 64 KB" "64 KB: MPI_Allreduce / exact" \
    "32768 KB: exact / unordered"
passes "windows" says "by window"
bench 2 exchange --set grid.transport=messages
passes "exchange by messages" has_rows "64 KB: exact / unordered" "32768 KB: MPI_Allreduce / exact"
passes "messages" says "by messages"
bench 1 exchange
passes "exchange on one rank" ended 2 "--tp 2 or more"
bench 2 reduction
passes "reduction" has_rows "step, exact / allreduce" "share of communication, exact"
bench 1 reduction
passes "reduction on one rank" ended 2 "two or more"
for ranks in 1 2; do
    bench $ranks checkpoint --set run.dir="$t/saves$ranks" --set grid.data=1
    passes "checkpoint on $ranks" has_rows "longest stall" "longest stall / memcpy" \
        "10 steps with a save / without" "save / plain write and fsync" "load / plain read"
done
run "$weft" verify "$t/saves2"
passes "what it saved is good" ended 0 "good"
bench 1 checkpoint --set run.dir="$t/saves1"
passes "somebody's run directory" ended 2 "run.dir"

# The parts on an mlp, which has no attention.
build/synthetic "$t/rows.h5" 500 >/dev/null
config=tests/configs/mlp.ini rows=(--set data.train="$t/rows.h5")
for part in step sgemm ffn adamw pointwise; do
    bench 1 $part "${rows[@]}"
    passes "$part of an mlp" ended 0 "7 pairs" " .. "
done
bench 1 attention "${rows[@]}"
passes "attention of an mlp" ended 2 "model.kind = mlp has none"
config=tests/configs/tiny.ini

# serve RANKS: the answers to some lines.
serve() {
    out=$t/serve.$1.out
    printf 'step\nmemory\nnonsense\ngemm\nstep\nquit\nstep\n' |
        timeout 60 mpirun -n "$1" "$weft" bench "$config" --serve --set run.threads=1 >"$out" 2>"$t/err"
    code=$?
}
for ranks in 1 2; do
    serve $ranks
    passes "serving on $ranks" grep -qzP '^ready\n[0-9.]+ [0-9.]+\n[0-9]+\nunknown: nonsense: .*\n[0-9.]+ [0-9.e+]+\n[0-9.]+ [0-9.]+\n\0?$' "$out"
done
passes "the same losses on 1 and 2" diff <(awk 'NF == 2 && $2 < 100 { print $2 }' "$t/serve.1.out") \
    <(awk 'NF == 2 && $2 < 100 { print $2 }' "$t/serve.2.out")

# The driver of pairs, and the table of goals.
stub() { echo "printf 'ready\n'; while read -r line; do case \$line in step) echo '$1 1.5' ;; memory) echo $2 ;; *) break ;; esac; done"; }
run tests/bench/pairs -n 7 fast "$(stub 0.25 100)" slow "$(stub 0.5 400)"
passes "pairs" ended 0 "fast / slow, speed" "fast / slow, memory"
passes "what pairs reckon" has_rows "fast" "slow" "fast / slow, speed" "fast / slow, memory"
passes "twice the speed" grep -qE '^fast / slow, speed +2\.000 ' "$out"
passes "a quarter of the memory" grep -qE '^fast / slow, memory +0\.250 ' "$out"
run tests/bench/pairs -n 7 good "$(stub 0.25 100)" bad "echo no; exit 3"
passes "a job that fails" ended 4 "bad"
told() { echo "echo $1 >>$t/told; $(stub 0.25 100)"; }
run tests/bench/pairs -n 7 a "$(told a)" b "$(told b)"
passes "both orders of starting" test "$(tr -d '\n' <"$t/told")" = abba

cat >"$t/table" <<'END'
== ffn-4096: made up
FFN step / gemm on all cores                     0.950 of the rate  (0.940 .. 0.960)
== step-125m: made up
step / gemm on all cores                         0.790 of the rate  (0.700 .. 0.800)
== exchange-2: made up
64 KB: MPI_Allreduce / exact                     3.000 times its time  (2.500 .. 3.500)
256 KB: MPI_Allreduce / exact                    1.500 times its time  (1.400 .. 1.600)
64 KB: exact / unordered                         1.000 times its time  (0.900 .. 1.100)
256 KB: exact / unordered                        1.040 times its time  (0.950 .. 1.200)
== exchange-4: made up
64 KB: MPI_Allreduce / exact                     0.100 times its time  (0.050 .. 0.200)
END
run tests/bench/goals "$t/table"
# goal PATTERN: a line of the goals, blanks squeezed
goal() { tr -s ' ' <"$out" | grep -qxE "$1" || { echo "no line $1"; return 1; }; }
passes "a goal that is met" goal 'FFN step, D 1024, T 4096 / sgemm >= 0\.92 0\.950 \(0\.940 \.\. 0\.960\) met'
passes "a goal that isn't" goal '125 M decoder, step / sgemm >= 0\.80 0\.790 \(0\.700 \.\. 0\.800\) not met'
passes "the worst of several, from below" goal 'MPI_Allreduce / exact sum, worst size >= 2\.00 1\.500 .* not met'
passes "the worst of several, from above" goal 'exact / unordered sum, windows, worst size <= 1\.05 1\.040 .* met'
passes "a goal without a figure" goal 'AdamW / stream >= 0\.95 not measured'

{ echo "\$ make bench ONLY='adamw|step-.*'"; cat "$t/table"; } >"$t/some"
run tests/bench/goals "$t/some"
passes "a section that gave no figure" goal 'AdamW / stream >= 0\.95 not measured'
passes "by a pattern" goal 'communication exposed, tp 2 <= 0\.05 not measured'
passes "a section outside the pattern that is there" goal 'FFN step, .* met'
passes "what wasn't asked for" silent_about "longest stall"
passes "which is said" says "measured with ONLY=adamw|step-.*; goals of other sections, left out: 14"

# What its scripts don't know.
for script in run pairs memory profile saving scaling goals peer-check; do
    run env -C tests "bench/$script" --help
    passes "$script --help" ended 0 "usage: "
    run tests/bench/$script --nothing
    passes "$script --nothing" ended 2 "tests/bench/$script: --nothing"
done
OUT=$t/made run tests/bench/run ffn
passes "no such section" ended 2 "matches ffn as a whole" " ffn-1024 ffn-4096 " " peer-tensor"
passes "no table is made" test ! -e "$t/made"
PAIRS=17 run tests/bench/run adamw
passes "PAIRS" ended 2 "PAIRS=17: 7 to 16"
run tests/bench/memory nothing
passes "no such configuration" ended 2 "no name matches nothing" '"tensor 2"'
run tests/bench/saving 1 "$t/nothing.ini"
passes "saving of no config" ended 4 "config $t/nothing.ini: can't read"
run tests/bench/pairs -n none a "$(stub 1 1)"
passes "no number of rounds" ended 2 "-n none"
run tests/bench/goals "$t/none"
passes "no table" ended 2 "$t/none: can't be read"

run "$weft" bench --help
passes "help on parts" ended 0 "7 to 64" "sgemm       each product" "checkpoint  saving"
run "$weft" bench "$config" --part nothing
passes "no such part" ended 2 "--part nothing" "step, sgemm, ffn"
run "$weft" bench "$config" --part ffn --serve
passes "parts aren't served" ended 2 "--part ffn: --serve answers for training steps alone"
run "$weft" bench "$config" --pairs 3
passes "too few pairs" ended 2 "--pairs 3: a whole number from 7 to 64"
run "$weft" bench "$config" --pairs 65
passes "too many pairs" ended 2 "--pairs 65: a whole number from 7 to 64"
finish
