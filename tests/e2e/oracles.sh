#!/bin/bash
# weft gradcheck and weft trace as commands: what they print and write is the same at every layout,
# and how they end.
. "$(dirname "$0")/common.bash"

# ask NAME RANKS WHAT OPTIONS...: the output on stdout in $t/NAME.stdout, all of it in $out.
ask() {
    local name=$1 ranks=$2 what=$3
    shift 3
    out=$t/$name.out
    if [ "$ranks" = one ]; then
        timeout "$limit" "$program" "$what" "$@" >"$t/$name.stdout" 2>"$t/$name.stderr" </dev/null
    else
        WEFT_MPIRUN="--timeout $limit" timeout $((limit + 5)) launch/local -n "$ranks" \
            --program "$program" --command "$what" "$@" \
            >"$t/$name.stdout" 2>"$t/$name.stderr" </dev/null
    fi
    code=$?
    cat "$t/$name.stdout" "$t/$name.stderr" >"$out"
}

narrow() { [ -s "$t/$1.stdout" ] && ! grep -n '.\{81,\}' "$t/$1.stdout"; }

# ---- gradcheck ----

check=("$config" --set model.layers=1 --set ffn.activation=relu --samples 0)
ask check one gradcheck "${check[@]}"
passes "gradcheck" ended 0 "gradcheck: pass: 15 tensors" "mlp.gate_proj.bias" "[172, 64]"
passes "gradcheck, 80 columns" narrow check
ask layout 4 gradcheck "${check[@]}" --tp 2 --dp 2 --set train.recompute=act
passes "gradcheck on tp 2 x dp 2" ended 0 "on tp 2 x dp 2"
passes "the same table" diff <(head -n -1 "$t/check.stdout") <(head -n -1 "$t/layout.stdout")
ask bound one gradcheck "${check[@]}" --bound 1e-15
passes "no bound so low" ended 1 "gradcheck: fail: "
ask alone one gradcheck nowhere.ini
passes "gradcheck without a config" ended 2 "nowhere.ini"
cp "$weft" "$t/alone"
program=$t/alone ask alone one gradcheck "$config"
passes "without the program in double" ended 2 "$t/alone-f64" "make programs"

# ---- trace ----

# trace NAME RANKS OPTIONS...: of $config's initial weights
trace() {
    local name=$1 ranks=$2
    shift 2
    ask "$name" "$ranks" trace "$config" --input tests/data/tiny.txt --out "$t/$name.h5" "$@"
}

trace first one
passes "trace" ended 0 "first.h5: 32 tensors" "the model reads 32 tokens"
trace threads 2 --tp 2 --set run.threads=2 --set train.recompute=block
passes "the same bytes on tp 2 with 2 threads" cmp "$t/first.h5" "$t/threads.h5"
trace three 4 --tp 3 --set train.recompute=act --against "$t/first.h5"
passes "the same bytes on tp 3 of 4 ranks" cmp "$t/first.h5" "$t/three.h5"
passes "a trace against itself" ended 0 "trace: pass: 32 tensors within 0.0e+00"
passes "trace, 80 columns" narrow three
trace other 2 --tp 2 --set ffn.activation=gelu --against "$t/first.h5" --tolerance 1e-5
passes "another activation is found where it acts" ended 1 "trace: fail: layers/0/ffn.act, element"
trace dropout one --training
fails "dropout changes the trace" cmp "$t/first.h5" "$t/dropout.h5"
trace dropped 3 --training --tp 3
passes "in the same way at every layout" cmp "$t/dropout.h5" "$t/dropped.h5"
trace first one
passes "a file that is there stays" ended 2 "--out $t/first.h5: exists already"
ask nameless one trace "$config" --input tests/data/tiny.txt --out ""
passes "no name" ended 2 "--out: a name is needed"
ln -s nowhere "$t/link.h5"
trace link one
passes "a link to nowhere" ended 2 "link.h5: exists already"
cp tests/data/tiny.txt "$t/own.h5.tmp"
ask own one trace "$config" --input "$t/own.h5.tmp" --out "$t/own.h5"
passes "an input beside" ended 0
passes "it stays" cmp tests/data/tiny.txt "$t/own.h5.tmp"
rm -f "$t/own.h5.tmp"
ask both-1 one trace "$config" --input tests/data/tiny.txt --out "$t/both.h5" &
trace both one
wait
passes "two at once: one is whole" cmp "$t/first.h5" "$t/both.h5"
passes "and the other says so" grep -q "exists already\|another process is making it" \
    "$t/both.stderr" "$t/both-1.stderr"

head -c 9 tests/data/tiny.txt >"$t/short.txt"
ask short one trace "$config" --input "$t/short.txt" --out "$t/short.h5"
passes "a short text is padded" ended 0 "has 9 tokens from 0 on: the window of 32 is padded" "over 8 targets"
ask none one trace "$config" --input "$t/none.txt" --out "$t/none.h5"
passes "no input" ended 3 "none.txt"
ask nameless one trace "$config"
passes "no file named" ended 2 "--input FILE and --out FILE are expected"

train run 2 --stop-at 2
ask saved 2 trace "$t/run" --input tests/data/tiny.txt --out "$t/saved.h5"
passes "trace of a checkpoint" ended 0 "saved.h5: 32 tensors"
fails "trained weights" cmp "$t/first.h5" "$t/saved.h5"
mark=$(fingerprint run | cut -d ' ' -f 2)
out=$t/saved.attributes
h5dump -A "$t/saved.h5" >"$out"
passes "names its state" says "$mark"
passes "and the branch equation" says "act(gate("
step=$(echo "$t"/run/step-*)
ask inside one trace "$step" --input tests/data/tiny.txt --out "$step/trace.h5"
passes "no trace inside of a checkpoint" ended 2 "lies inside of a checkpoint"
# ---- the other model ----

# numbers NAME COLUMNS: 40 rows of them, as a dataset of $t/rows.h5
numbers() {
    awk -v columns="$2" 'BEGIN { srand(columns); for (i = 0; i < 40; i++) {
        for (j = 0; j < columns; j++) printf "%.5f ", 4 * rand() - 1; print "" } }' >"$t/$1.txt"
    printf '%s\n' "PATH $1" "INPUT-CLASS TEXTFP" "RANK 2" "DIMENSION-SIZES 40 $2" \
        "OUTPUT-CLASS FP" "OUTPUT-SIZE 64" >"$t/$1.conf"
}
numbers inputs 5
numbers targets 3
h5import "$t/inputs.txt" -c "$t/inputs.conf" "$t/targets.txt" -c "$t/targets.conf" -o "$t/rows.h5"
config=$t/mlp.ini
cat >"$config" <<'INI'
[model]
kind = mlp
inputs = 5
outputs = 3
loss = squared_error
d_model = 16
layers = 2
[ffn]
d_ff = 23
hidden_dropout = 0.1
[grid]
tensor = 3
data = 1
[train]
steps = 2
global_batch = 8
micro_batch = 8
[optim]
warmup = 1
[eval]
every = 0
[data]
kind = hdf5
INI
printf '%s\n' "train = $t/rows.h5" "[run]" "dir = $t/rows" "threads = 1" >>"$config"
ask rows 3 gradcheck "$config" --tp 3 --seed 7
passes "gradcheck of an mlp" ended 0 "gradcheck: pass: 14 tensors" "output.bias"
train rows 2
passes "an mlp is trained" ended 0
ask one one trace "$t/rows" --input "$t/rows.h5" --out "$t/rows-1.h5"
passes "trace of an mlp" ended 0 "rows-1.h5: 19 tensors" "over 40 targets"
ask three 3 trace "$t/rows" --input "$t/rows.h5" --out "$t/rows-3.h5" --tp 3
passes "the same bytes on tp 3" cmp "$t/rows-1.h5" "$t/rows-3.h5"
ask blind 3 trace "$t/rows" --input "$t/rows.h5" --out "$t/blind.h5" --set data.targets=nothing \
    --tp 3 --against "$t/rows-1.h5"
passes "outputs of rows without targets" ended 0 "blind.h5: 17 tensors, no targets and no loss" \
    "has no dataset nothing" "trace: pass: 17 tensors within 0.0e+00"
number() { h5dump -d "$1" -s "3,$3" -c 1,1 "$2" | sed -n 's/.*(3,[0-9]*): //p'; } # DATASET FILE COLUMN
moment() { # NAME COLUMN: of the targets' normalisation
    "$weft" inspect "$t/rows" | sed -n "s/^normalisation.targets.$1 = \\[\\(.*\\)\\]/\\1/p" |
        cut -d , -f $(($2 + 1))
}
units() { # COLUMN: outputs are logits * scale + mean
    echo "$(number logits "$t/blind.h5" "$1") $(moment scale "$1") $(moment mean "$1")" \
        "$(number outputs "$t/blind.h5" "$1")" |
        awk '{ print; d = $1 * $2 + $3 - $4; exit !(NF == 4 && d * d < 1e-10 * (1 + $4 * $4)) }'
}
passes "outputs are in the units of the data" units 2
ask later one trace "$t/rows" --input "$t/rows.h5" --out "$t/later.h5" --first 25
passes "from a row on" ended 0 "over 15 targets"
ask beyond one trace "$t/rows" --input "$t/rows.h5" --out "$t/beyond.h5" --first 40
passes "beyond the last row" ended 3 "there are 40 rows in it, none from 40 on"
ask start 3 trace "$config" --input "$t/rows.h5" --out "$t/rows-0.h5" --against "$t/rows-1.h5"
passes "normalised alike before training" ended 1 "trace: fail: input, element"
passes "nothing is left beside" test -z "$(find "$t" -name "*.tmp*")"
finish
