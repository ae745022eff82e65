#!/bin/bash
# `weft plan`: published numbers as they are printed, the warning of an unequal comparison, and
# screens that fit.
. "$(dirname "$0")/common.bash"

plan() { run "$weft" plan tests/configs/tiny.ini "$@"; }
fits() { ! grep -qE '.{81}' "$out"; }

large=(--set model.d_model=4096 --set model.heads=32 --set model.kv_heads=32 --set ffn.bias=false)
# tiny.ini says d_ff; a rule needs a config that doesn't
sed '/^d_ff/d' tests/configs/tiny.ini >"$t/no_width.ini"
sed 's/^d_ff.*/d_ff = 16384\nkind = dense\nactivation = gelu/; s/^d_model.*/d_model = 4096/; s/^bias.*//' \
    tests/configs/tiny.ini >"$t/dense.ini"
sed 's/^kind.*//' "$t/dense.ini" >"$t/gated.ini"

run "$weft" plan "$t/no_width.ini" "${large[@]}" --set ffn.width=llama
passes "llama's width" ended 0 "ffn.width = llama: 11008 channels (10922.667 unrounded" \
    "135,266,304 weights and 0 biases" "1,048,576 weights a layer more"
run "$weft" plan "$t/no_width.ini" --set ffn.bias=false --set model.d_model=128 --set ffn.width=floor
passes "floor" ended 0 "ffn.width = floor: 341 channels" "130,944 weights"
run "$weft" plan "$t/no_width.ini" "${large[@]}" --set ffn.width=match
passes "match" ended 0 "ffn.width = match: 10923 channels (10922.667 unrounded"
sed 's/^d_ff.*/&\nwidth = llama/' tests/configs/tiny.ini >"$t/two_widths.ini"
run "$weft" plan "$t/two_widths.ini"
passes "two widths" ended 2 "ffn.d_ff = 172 and ffn.width = llama"
plan --set ffn.width=llama
passes "a rule in place of the file's number" ended 0 "ffn.width = llama: 256 channels"
run "$weft" plan "$t/two_widths.ini" --set ffn.d_ff=99
passes "a number in place of the file's rule" ended 0 "ffn.width = explicit: 99 channels"

run "$weft" plan "$t/gated.ini" --against "$t/dense.ini"
passes "unequal" ended 0 "134,217,728" "warning: at equal d_ff = 16384 the gated FFN has 1.500 times"
run "$weft" plan "$t/no_width.ini" "${large[@]}" --set ffn.width=llama --against "$t/dense.ini"
passes "equal" ended 0 "135,266,304" "134,217,728"
passes "no warning" silent_about "warning"
run "$weft" plan "$t/gated.ini" --against "$t/nothing.ini"
passes "no such config" ended 2 "--against" "nothing.ini"

plan --ranks 7
passes "7 ranks" ended 0 "H  A * U" "1 x3"
passes "7 ranks fit" fits
plan --ranks 6 --tp 3 --dp 2
passes "what own rows would save" ended 0 "MB; under parallel.sequence "
plan --ranks 6 --tp 3 --dp 2 --set parallel.sequence=true
passes "own rows" ended 0 "X  norm(x)      T x d_model   again" "gains and biases" \
    "under parallel.sequence (now) "
passes "own rows fit" fits
plan --set grid.data=8 --ranks 64 --tp 8 --dp 8
passes "64 ranks" ended 0 "2 x32" "6 x16"
passes "64 ranks fit" fits
passes "64 ranks in few lines" test "$(wc -l <"$out")" -lt 70


# ---- predictions: what they say, never how long
fits_100() { ! grep -qE '.{101}' "$out"; }
# rows N: so many rows of layouts with all their columns; the best first for each
# number of ranks, of which some stay idle
rows() {
    local row='^ *[0-9]+ +[0-9]+ x [0-9]+ +[0-9]+ +[0-9]+\.[0-9]{4} +[0-9.]+ +[0-9.]+ % +[0-9.]+ % +[0-9.]+$'
    [ "$(grep -cE "$row" "$out")" -eq "$1" ] || { echo "not $1 rows of layouts"; return 1; }
    grep -E "$row" "$out" |
        awk '$1 == ranks && $6 < last || $2 * $4 + $5 != $1 { exit 1 } { ranks = $1; last = $6 }'
}
# The parts of a step and their sum, in hundredths, of each column.
adds_up() {
    awk '/^the best layout/ { on = 1; next }
        on && /^  all / { for (i = 2; i <= NF; i++) if ((d = $i - sum[i - 1]) > 0.05 || d < -0.05) exit 1; seen = 1; exit }
        on { for (i = 0; i < count; i++) sum[count - i] += $(NF - i) }
        END { exit !seen }' count="$1" "$out"
}

plan --net 2us,10GB/s --ranks 1,4,64
passes "what is measured is said" says "weft: measuring shares of a step: 5, each twice; the last of tp 8"
passes "a prediction" ended 0 "1 thread; 1 rank on a node" "2 us, and 10 GB/s"
if grep -q "as on 4: no more of them would be faster" "$out"; then wanted=4; else wanted=7; fi
passes "rows of layouts" rows $wanted
passes "parts add up" adds_up 3
passes "a prediction fits" fits_100
passes "where it stops" grep -qE "^(stops scaling at|scales to) [0-9]+ rank" "$out"
plan --net 0s,1000GB/s --ranks 2,2 --tp 2 --dp 1 --ranks-per-node 2
passes "one layout" ended 0 "2 ranks on a node" "2     2 x 1"
passes "a number given twice is one row" rows 1
run script -qec "'$weft' plan tests/configs/tiny.ini --net 0s,1000GB/s --ranks 2 --tp 2 --dp 1" /dev/null
passes "on a terminal in one line" ended 0 "measuring share 1 of 2: tp 1, round 1 of 2" \
    "measuring share 2 of 2: tp 2, round 2 of 2"
plan --net 2us,10GB/s --ranks 2 --set run.threads=1024
passes "more threads than cores" ended 2 "run.threads = 1024: this machine has $(getconf _NPROCESSORS_ONLN) core" \
    "predict with --set run.threads=$(getconf _NPROCESSORS_ONLN), or on a machine"
plan --net 0s,1000GB/s --ranks 2,4 --tp 2 --dp 1
passes "nothing for more ranks" ended 0 "4     2 x 1         2  as on 2: no more of them would be faster"
plan --net 2us,10GB/s --ranks 64 --tp 9
passes "more than the grid" ended 2 "--tp 9: between 1 and grid.tensor = 8 is possible"
plan --net 2us,10GB/s --ranks 2 --set parallel.sequence=true --tp 2
passes "rows of the stream shared out" ended 0 "2     2 x 1"
plan --net 2us,10GB/s --ranks 2,1 --tp 2
passes "too few ranks for --tp" ended 2 "--ranks 1: --tp 2 --dp 1 is a layout of 2: give --ranks 2 or more"
passes "nothing of starting them" silent_about mpirun
plan --net 2us --ranks 2
passes "half a network" ended 2 "--net 2us: LATENCY,BANDWIDTH is expected" "like 2us,10GB/s"
plan --net 2,10GB/s --ranks 2
passes "no unit" ended 2 'the latency "2" has no unit' "ns, us, ms or s"
plan --net 2us,10Gb --ranks 2
passes "another unit" ended 2 'the bandwidth "10Gb" has a unit' "Gbit/s"
for unit in Gb/s gbps GBit; do
    plan --net 2us,10$unit --ranks 2
    passes "a unit like ours, $unit" ended 2 "(bit/s are bits, B/s bytes); after the number"
done
plan --ranks 2,4
passes "a list without a network" ended 2 "several numbers of --ranks" "--net LATENCY,BANDWIDTH is missing"
plan --ranks 2 --ranks-per-node 2
passes "nodes without a network" ended 2 "--ranks-per-node" "--net LATENCY,BANDWIDTH is missing"
core=$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//')
taskset -c "$core" sh -c 'while :; do :; done' &
beside=$!
run taskset -c "$core" "$weft" plan "$config" --net 2us,10GB/s --tp 1 --dp 1
kill $beside
passes "a steady load beside it" grep -qE '^machine unquiet others used ([4-9][0-9]|100) % of the cores' "$out"
plan --net 2us,10GB/s --ranks 2,,4
passes "a hole in the list" ended 2 "--ranks 2,,4: a whole number from 1 to 2147483647 is expected"
for ranks in 0 -2 two 2.5 4, 2x 2147483648 99999999999; do
    plan --net 2us,10GB/s --ranks=$ranks
    passes "--ranks $ranks" ended 2 "ranks $ranks: a whole number from 1 to 2147483647 is expected"
done
plan --net 2us,10GB/s --ranks 1,2,3,4,5,6,7
passes "too many numbers" ended 2 "at most 6 numbers"
plan --net 2us,10GB/s --ranks 2 --ranks-per-node 65
passes "too many on a node" ended 2 "--ranks-per-node 65: at most 64"
run "$weft" ping
passes "a ping alone" ended 2 "two ranks are needed"
run mpirun --timeout 60 -n 2 "$weft" ping
passes "a ping" ended 0 "latency" "both ways at once"
passes "a ping of memory" says "note: both ranks are on one node"
passes "as --net takes it" grep -qE '^--net [0-9.]+us,[0-9.]+GB/s$' "$out"

# ---- launch/local, taken for other launchers
out=$t/launch.out
run launch/local eval runs/none
passes "a command as config" ended 2 "say --command eval before it"
run launch/local -np 2 "$config"
passes "-np" ended 2 "the number of ranks is -n"
run launch/local "$config" -n 2
passes "-n at the end" ended 2 "-n RANKS comes before the config"
run "$weft" plan "$config" --set model.layers 3
passes "--set with a blank" ended 2 "--set model.layers: expected section.key=value"
run "$weft" help config
passes "a default that is none" ended 0 "d_ff = (not given)"
finish
