#!/bin/bash
# Bad files on several ranks, and files that are bad for one rank alone: the exit code and a
# message that names the file, on every layout, without a hang. (What else can be wrong with a
# config or a text, on one rank, stands in bad_configs.txt.)
. "$(dirname "$0")/common.bash"

mkdir "$t/here" "$t/there" "$t/folder"
cp tests/data/tiny.txt "$t/here/text"
: >"$t/empty"
head -c 200 tests/data/tiny.txt >"$t/short"
head -c 20001 tests/data/tiny.txt >"$t/odd"
# 300 tokens 257, enough for 9 samples of which two steps use all; in the other file one is 65535
head -c 600 /dev/zero | tr '\0' '\001' >"$t/fine"
{ head -c 300 "$t/fine"; printf '\377\377'; head -c 298 "$t/fine"; } >"$t/one"
tokens=(--set data.kind=tokens --set model.vocab=258 --set data.held_out=0 --set eval.every=0)

# bad NAME CODE TEXT OPTIONS...: on one rank and on two, which both see it.
bad() {
    local name=$1 wanted=$2 text=$3
    shift 3
    for ranks in one 2; do
        train bad $ranks "$@"
        passes "$name, ranks: $ranks" ended "$wanted" "$text"
        rm -rf "$t/bad"
    done
}
bad "a missing text" 3 "$t/missing: can't open: No such file" --set data.train="$t/missing"
bad "a folder for a text" 3 "$t/folder: is a directory" --set data.train="$t/folder"
bad "an empty text" 3 "$t/empty: is empty" --set data.train="$t/empty"
bad "a short text" 3 "$t/short: too short: 180 tokens" --set data.train="$t/short"
bad "a missing held-out text" 3 "$t/missing: can't open" --set data.held="$t/missing"
bad "a text and a small vocab" 2 "model.vocab = 255" --set model.vocab=255
bad "a torn token" 3 "$t/odd: 20001 bytes" --set data.train="$t/odd" "${tokens[@]}"
bad "tokens beyond the vocab" 3 "is 257; model.vocab = 257 allows 0 to 256" \
    --set data.train="$t/fine" "${tokens[@]}" --set model.vocab=257

train within 2 --tp 1 --dp 2 --set data.train="$t/fine" "${tokens[@]}" --stop-at 2
passes "tokens within the vocab" ended 0 " step 2"
train beyond 2 --tp 1 --dp 2 --set data.train="$t/one" "${tokens[@]}"
passes "one token beyond the vocab, which one rank reads" ended 3 \
    "$t/one: token 150 is 65535; model.vocab = 258 allows 0 to 257"
passes "that rank is named" grep -q 'error: rank [01]: ' "$out"
train beyond2 2 --tp 2 --dp 1 --set data.train="$t/one" "${tokens[@]}"
passes "one token beyond the vocab, which both ranks read" ended 3 "$t/one: token 150 is 65535"

# by_rank FIRST SECOND COMMAND...: two ranks; `@` in the command stands for what its rank is given.
# (Open MPI 5.0.7's mpirun crashes on two programs with a colon between them.)
by_rank() {
    # shellcheck disable=SC2016
    run mpirun --timeout $limit -n 2 bash -c '
        if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then mine=$1; else mine=$2; fi
        shift 2
        exec "${@/@/$mine}"' by_rank "$@"
}

# apart OPTIONS...: rank 0 in folder `here`, rank 1 in `there`; data.train is a relative path.
absolute=$(realpath "$weft")
apart() {
    out=$t/apart.out
    by_rank here there env -C "$t/@" "$absolute" train "$PWD/$config" --set run.dir="$t/apart" \
        --set data.train=text --stop-at 1 "$@"
    rm -rf "$t/apart"
}
for layout in "--tp 2 --dp 1" "--tp 1 --dp 2"; do
    rm -f "$t/there/text"
    # shellcheck disable=SC2086
    apart $layout
    passes "no text for rank 1, $layout" ended 3 "error: rank 1: text: can't open: No such file"
    cp "$t/short" "$t/there/text"
    # shellcheck disable=SC2086
    apart $layout
    passes "a short text for rank 1, $layout" ended 3 "error: rank 1: text: too short: 180 tokens"
done
head -c 30000 tests/data/tiny.txt >"$t/there/text"
apart --tp 2 --dp 1
passes "a shorter text for rank 1" ended 4 "rank 1: the data differs: \"training: 27000 tokens" \
    "\"training: 36009 tokens"
tr e f <tests/data/tiny.txt >"$t/there/text"
apart --tp 2 --dp 1
passes "another text of the same length for rank 1" ended 4 "rank 1: the data differs: "
cp tests/data/tiny.txt "$t/there/text"
apart --tp 2 --dp 1
passes "the same text for rank 1" ended 0 " step 1"

# both CONFIG: rank 0 has the usual config, rank 1 this one.
both() {
    out=$t/both.out
    by_rank "$config" "$1" "$weft" train @ --set run.dir="$t/both" --stop-at 1
}
both "$t/missing.ini"
passes "no config for rank 1" ended 2 "error: rank 1: config $t/missing.ini: can't read"
passes "no run directory is left" test ! -e "$t/both"
sed 's/^lr = .*/lr = 1e-3/' "$config" >"$t/other.ini"
both "$t/other.ini"
passes "another config for rank 1" ended 4 \
    "rank 1: the config differs: \"lr = 0.001\" here, \"lr = 0.003\""

# A text that may not be read. Root may read everything, so somebody else tries.
if [ "$(id -u)" -eq 0 ]; then
    somebody=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    chmod 711 "$t"
else
    somebody=(env)
fi
mkdir -m 777 "$t/open"
cp tests/data/tiny.txt "$t/secret"
chmod 000 "$t/secret"
cp "$weft" "$t/weft"
cp "$config" "$t/config.ini"
out=$t/secret.out
(cd "$t" && run "${somebody[@]}" "$t/weft" train config.ini --set run.dir="$t/open/run" \
    --set data.train="$t/secret"; exit $code)
code=$?
passes "a text that may not be read" ended 3 "$t/secret: can't open: Permission denied"
finish
