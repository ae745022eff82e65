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
passes "64 ranks" ended 0 "1 x47" "6 x16"
passes "64 ranks fit" fits
passes "64 ranks in few lines" test "$(wc -l <"$out")" -lt 70


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
