#!/bin/bash
# What a resume must bring back, what it must refuse, and which checkpoint it takes.
. "$(dirname "$0")/common.bash"

# Every test of this script continues a copy of one of these.
train whole one --set checkpoint.every=4 --set checkpoint.keep=0
train early one --set checkpoint.every=2 --stop-at 4

copy() { cp -r "$t/$1" "$t/$2"; }
steps_of() { ls "$t/$1" | sed -n 's/^step-0*//p' | tr '\n' ' '; }
has_checkpoints() {
    [ "$(steps_of "$1")" = "$2 " ] || { echo "$1: steps $(steps_of "$1")"; return 1; }
}

# The metrics of run $1 go to step $2 at least, and up to there are those of the uninterrupted run.
continues_to() {
    diff <(trajectory whole | head -n "$2") <(trajectory "$1" | head -n "$2") >"$t/lines" && return
    head -n 4 "$t/lines"
    return 1
}

# ---- the state
# The first step after a resume shows that parameters are back; its update, hence the loss of the
# second, that moments and step count are.
copy early moments
train moments one --resume auto --stop-at 6
passes "the second step after a resume" continues_to moments 6
program=$weft_faults
copy early lost
train lost one --resume auto --stop-at 6 --inject lose-moments
passes "a resume without moments ends" ended 0
fails "a resume without moments" continues_to lost 6
passes "a resume without moments has the same first step" continues_to lost 5
program=$weft

# Learning rates: warm-up ends at step 6.
copy early rates
train rates one --resume auto --stop-at 7
train rates one --resume auto --stop-at 13
train rates one --resume auto
passes "learning rates, interrupted in warm-up and in decay" same_run whole rates
rates=$(sed -n 's/.*"lr":\([^,]*\),.*/\1/p' "$t/rates/metrics.jsonl")
passes "the rate changes from step to step but at its peak, steps 6 and 7" \
    test "$(uniq <<<"$rates" | wc -l)" = 23

# Sample ids: 52 samples an epoch, 8 a step: the second epoch goes from step 7 to 13.
head -c 1850 tests/data/tiny.txt >"$t/small.txt"
small=(--set data.train="$t/small.txt")
train epochs one "${small[@]}"
passes "three epochs and a part of the fourth" says " 52 samples an epoch"
train "epochs in parts" 2 --tp 1 --dp 2 "${small[@]}" --stop-at 10
train "epochs in parts" 4 --tp 1 --dp 4 "${small[@]}" --resume auto
passes "sample ids after a resume in epoch 2 on another dp" same_run epochs "epochs in parts"
samples() { sed -n 's/.*"samples":"\([0-9a-f]*\)".*/\1/p' "$t/epochs/metrics.jsonl"; }
passes "no two steps have the same samples" test "$(samples | sort -u | wc -l)" = 24

# ---- the run directory
train fresh one --resume auto --stop-at 1
passes "--resume auto without a directory starts afresh" ended 0 "starting at step 0" " step 1"
mkdir "$t/empty"
train empty one --stop-at 1
passes "an empty directory is taken" ended 0 " step 1"
copy early other
train other one --stop-at 5
passes "a run directory that isn't empty" ended 2 "run.dir = $t/other: isn't empty" "--resume auto"
train other 2 --stop-at 5
passes "a run directory that isn't empty, 2 ranks" ended 2 "run.dir = $t/other: isn't empty"
passes "is left alone" diff -r -x .claim "$t/early" "$t/other"

copy whole cut
rm -r "$t"/cut/step-000000{08,12,16,20,24}
train cut one --resume auto --stop-at 5
passes "metric lines beyond the resumed step are dropped" has_steps cut 5
passes "the others stay" continues_to cut 5
echo '{"step":6,"loss":' >>"$t/cut/metrics.jsonl"
train cut one --resume auto --stop-at 6
passes "so is a line that a crash cut short" has_steps cut 6

train whole one --resume auto
passes "a finished run" ended 0 "$(fingerprint rates)"
passes "a finished run keeps its metrics" has_steps whole 24
passes "keep = 0 keeps all" has_checkpoints whole "4 8 12 16 20 24"
train kept one --set checkpoint.every=2 --set checkpoint.keep=2 --stop-at 7
passes "keep = 2" has_checkpoints kept "6 7"
train kept one --set checkpoint.every=2 --set checkpoint.keep=1 --resume auto --stop-at 9
passes "keep = 1 from now on" has_checkpoints kept 9

# ---- another function
# refused KEY VALUE...: a resume under this config is refused, naming the key and both values.
refused() {
    local key=$1 before=$2 now=$3
    shift 3
    train other one --resume auto --set "$key=$now" "$@"
    passes "another $key" ended 2 "describes another function" "$key: checkpoint $before" \
        ", config $now"
}
refused ffn.kind gated dense
refused ffn.activation silu gelu_tanh
refused ffn.d_ff 172 173
refused ffn.bias true false
refused ffn.hidden_dropout 0.1 0.25
refused ffn.output_dropout 0.2 0.0
refused model.vocab 256 257
refused model.d_model 64 72
refused model.layers 2 3
refused model.heads 4 2
refused model.kv_heads 2 4
refused model.tie_embeddings true false
refused run.seed 1 2
train other one --resume auto --set model.context=16
passes "another context" ended 2 "sample_order.context: checkpoint 32, config 16"
train other one --resume auto --set train.global_batch=16
passes "another global batch" ended 2 "sample_order.global_batch: checkpoint 8, config 16"
train other one --resume auto --set data.train="$t/small.txt"
passes "another text" ended 2 "sample_order.samples: checkpoint 1125, config 52"
train other 2 --resume auto --set ffn.kind=dense --set ffn.d_ff=100 --set run.seed=9
passes "all differences, on 2 ranks" ended 2 "ffn.kind: checkpoint gated, config dense" \
    "ffn.d_ff: checkpoint 172, config 100" "run.seed: checkpoint 1, config 9"
train other one --resume auto --set grid.tensor=4
passes "another logical grid" ended 2 "logical grid tensor 8 x data 4, the config has 4 x 4"

passes "refusals leave the run alone" diff -r -x .claim "$t/early" "$t/other"

# ---- what only steers the future
copy early steered
train steered one --resume auto --stop-at 5 --set optim.lr=1e-3 --set train.steps=30 \
    --set train.recompute=block --set checkpoint.every=5
passes "lr, steps, recompute and checkpointing are printed" ended 0 "changed since the checkpoint" \
    "optim.lr 0.003 -> 0.001" "train.steps 24 -> 30" "train.recompute none -> block" \
    "checkpoint.every 2 -> 5"
passes "and taken" grep -q '"step":5,.*"lr":0.000833' "$t/steered/metrics.jsonl"
copy early steered2
train steered2 2 --tp 2 --dp 1 --resume auto --stop-at 6 --set train.recompute=act
passes "recompute and layout change nothing" continues_to steered2 6

# ---- a damaged newest checkpoint
# skipped NAME FILE COMMAND...: after this damage to step 4 the run goes on from step 2, says why,
# and repeats step 4 with the same result.
skipped() {
    local name=$1 file=$2
    shift 2
    copy early "$name"
    (cd "$t/$name/step-00000004" && "$@")
    train "$name" 2 --resume auto --stop-at 4
    passes "$name" ended 0 "step-00000004: skipped: $file" "step-00000002 at step 2" \
        "$(fingerprint early)"
    passes "$name: the good one is in its place" "$weft" verify "$t/$name" >"$t/verify.out"
}
skipped "a truncated shard" shard-t003-d001.h5 truncate -s 9000 shard-t003-d001.h5
moment=moment2/model.layers.1.mlp.down_proj.weight
skipped "a flipped byte" "shard-t006-d000.h5: dataset $moment: damaged" \
    flip shard-t006-d000.h5 /$moment
skipped "a missing shard file" shard-t000-d003.h5 rm shard-t000-d003.h5
skipped "a garbage manifest" manifest.json eval 'head -c 5000 /dev/urandom >manifest.json'
skipped "a missing manifest" manifest.json rm manifest.json
skipped "an empty directory" manifest.json eval 'rm *'

copy early renamed
cp -r "$t/renamed/step-00000002" "$t/renamed/step-00000009"
train renamed 2 --resume auto --stop-at 6
passes "a step under another's name" ended 0 "step-00000009: skipped: manifest.json: is of step 2" \
    "step-00000004 at step 4"

# ---- another text under the same name
cp tests/data/tiny.txt "$t/mine.txt"
train text2 one --stop-at 2 --set data.train="$t/mine.txt"
tr e f <tests/data/tiny.txt >"$t/mine.txt"
train text2 2 --resume auto --stop-at 4 --set data.train="$t/mine.txt"
passes "another text is told" ended 0 "mine.txt isn't the data that the checkpoint was trained on"

# ---- a run that diverges
train diverged 2 --tp 2 --dp 1 --set optim.lr=1000 --set init.std=10 --set optim.warmup=0 \
    --set optim.clip=0 --set checkpoint.every=1 --set checkpoint.keep=2
passes "a run that diverges stops before the update" ended 4 "the run has diverged and stops before the update"
passes "its last checkpoint is good" "$weft" verify "$t/diverged"

copy early bad
rm "$t"/bad/step-*/shard-t001-d001.h5
train bad one --resume auto
passes "all are bad" ended 3 "step-00000004: skipped: shard-t001-d001.h5" \
    "step-00000002: skipped: shard-t001-d001.h5" "none of its 2 checkpoints is good"
train bad 3 --resume auto
passes "all are bad, 3 ranks" ended 3 "none of its 2 checkpoints is good"
train elsewhere 2 --resume "$t/bad/step-00000002"
passes "a bad one is asked for by name" ended 3 "step-00000002/shard-t001-d001.h5"
train elsewhere2 2 --resume "$t/nowhere"
passes "none is there" ended 3 "$t/nowhere: no such directory"
train elsewhere3 one --resume "$t/early/step-00000002" --stop-at 4
passes "from a step directory into another run directory" ended 0 "$(fingerprint early)"

# ---- one run, one branch, one job to a directory
copy early branch
train branch 2 --resume "$t/branch/step-00000002" --stop-at 3
passes "an older checkpoint while a later one is there" ended 2 "step-00000004, which is later than" \
    "step-00000002: two branches"
rm -r "$t/branch/step-00000004"
train branch 2 --resume "$t/branch/step-00000002" --stop-at 4
passes "and without it" ended 0 "$(fingerprint early)"
copy early mixed
train mixed one --resume "$t/bad/../branch/step-00000004" --stop-at 6
passes "another run's directory" ended 2 "holds another run than"

copy early busy
flock "$t/busy/.claim" sleep 20 &
holder=$!
sleep 0.2
train busy 2 --resume auto --stop-at 6
passes "a directory where another job is at work" ended 2 "run.dir = $t/busy: another job is at work"
pkill -P $holder
wait $holder 2>/dev/null
train busy 2 --resume auto --stop-at 6
passes "and after that job's end" ended 0 " step 6"
finish
