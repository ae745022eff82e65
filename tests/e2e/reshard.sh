#!/bin/bash
# weft reshard: the same state on other grids, in files that training goes on from; what it prints,
# refuses, and leaves behind when it is stopped.
. "$(dirname "$0")/common.bash"

train whole one --set checkpoint.every=4 --set checkpoint.keep=0 --stop-at 8
step=step-00000004
source=$t/whole/$step
out=$t/source.out
run "$weft" inspect "$source"

# reshard FROM TO OPTIONS...
reshard() {
    local from=$1 to=$2
    shift 2
    out=$t/reshard.out
    run "$weft" reshard "$from" --out "$t/$to" "$@"
}

# made TO: what the last reshard has made is good and has the source's fingerprint.
made() {
    ended 0 "$(fingerprint source)" || return 1
    run "$weft" verify "$t/$1" || return 1
    run "$weft" inspect "$t/$1" && says "$(fingerprint source)"
}

# same_files A B: two step directories have the same HDF5 files, byte for byte.
same_files() {
    local file
    [ "$(cd "$1" && echo *.h5)" = "$(cd "$2" && echo *.h5)" ] || { echo "other files"; return 1; }
    for file in "$1"/*.h5; do cmp "$file" "$2/${file##*/}" || return 1; done
}

# nothing_left NAME: neither a directory nor one aside.
aside() { find "$t" -maxdepth 1 -name ".tmp-$1-*"; }
nothing_left() { [ ! -e "$t/$1" ] && [ -z "$(aside "$1")" ]; }

# ---- round trips over the files
from=$source
for n in 4 3 7 8; do
    reshard "$from" "trip$n" --tensor $n
    passes "a trip to $n" made trip$n
    from=$t/trip$n
done
passes "8 -> 4 -> 3 -> 7 -> 8" same_files "$source" "$t/trip8/$step"
fails "4 and 8 are cut in other ways" cmp "$source/shard-t001-d000.h5" \
    "$t/trip4/$step/shard-t001-d000.h5"
reshard "$source" g12 --tensor 12 --data 2
passes "12 x 2" made g12
reshard "$t/g12" g6 --tensor 6 --data 1
passes "6 x 1" made g6
reshard "$t/g6" g1 --tensor 1
passes "1 x 1" made g1
passes "1 x 1 are four things" test "$(cd "$t/g1/$step" && echo *)" = \
    "checkpoint.h5 manifest.json shard-t000-d000.h5"
reshard "$t/g1" g31 --tensor 31 --data 2
passes "31 x 2, more shards than heads" made g31
reshard "$t/g31" g5 --tensor 5 --data 2
passes "5 x 2" made g5
reshard "$t/g5" g8 --tensor 8 --data 4
passes "back at 8 x 4" made g8
passes "and the files are the first ones" same_files "$source" "$t/g8/$step"

# ---- training goes on
goes_on() {
    local ranks=$1 name=$2
    shift 2
    config=$t/$name/config.ini
    train "$name" "$ranks" --resume auto --stop-at 8 "$@"
    config=tests/configs/tiny.ini
}
goes_on 2 trip8
passes "on the grid that it came from" ended 0 "$(fingerprint whole)"
goes_on one g1
passes "on 1 x 1" ended 0 " step 8"
cp -r "$t/trip3" "$t/again"
goes_on 2 trip3
goes_on one again --set run.dir="$t/again"
passes "on 3 x 4, on 2 ranks as on one" test "$(fingerprint trip3)" = "$(fingerprint again)"
fails "sums go another way there" test "$(fingerprint trip3)" = "$(fingerprint whole)"
goes_on 3 g31
passes "on 31 x 2, where ranks own nothing of some tensors" ended 0 " step 8"

# ---- the plan
before=$(ls -aR "$t")
reshard "$source" dry --tensor 3 --data 2 --dry-run
passes "a dry run" ended 0 "(grid 8 x 4) -> $t/dry (grid 3 x 2)" "total: 6 shard files"
passes "touches nothing" test "$before" = "$(ls -aR "$t")"
line='^    rows \[([0-9]+), ([0-9]+)\) cols \[([0-9]+), ([0-9]+)\)  from shard-t00[0-7]-d00[0-3].h5'
line="$line"' at \[[0-9]+, [0-9]+\]  to \[[0-9]+, [0-9]+\]$'
planned() { echo $(($(sed -nE "s/$line/(\2 - \1) * (\4 - \3)/p" "$out" | paste -sd+))); }
bytes=$(sed -n 's/^total:.* datasets, \([0-9]*\) bytes.*/\1/p' "$out")
passes "its ranges add up" test "$(($(planned) * 4))" = "$bytes"
passes "to what lies in the source" test "$bytes" = \
    "$(du -b --apparent-size -c "$source"/shard-*.h5 | awk 'END { print $1 }' |
        awk -v b="$bytes" '$1 > b && $1 < 3 * b { print b }')"
datasets=$(grep -cE '^  (value|moment1|moment2)/' "$out")
reshard "$source" wet --tensor 3 --data 2
passes "and to as many datasets as there will be" test "$datasets" = \
    "$(grep -c '"dataset"' "$t/wet/$step/manifest.json")"

# ---- refusals
reshard "$source" wet --tensor 4
passes "an --out that is there" ended 2 "$t/wet: exists already"
ln -s nowhere "$t/link"
reshard "$source" link --tensor 4
passes "a link to nowhere" ended 2 "$t/link: exists already"
reshard "$source" wet --tensor 4 --dry-run
passes "an --out that is there, dry" ended 2 "$t/wet: exists already"
reshard "$source" bad --tensor 4 --data 3
passes "a batch that can't be cut so" ended 2 "train.global_batch = 8 is not a multiple"
reshard "$source" bad --tensor 65
passes "too many shards" ended 2 "--tensor 65" "at most 64"
reshard "$source" bad --tensor 0
passes "no shards" ended 2 "--tensor 0: a whole number from 1 to 2147483647"
reshard "$source" bad
passes "no --tensor" ended 2 "--tensor N is needed"
run "$weft" reshard "$source" --tensor 4
passes "no --out" ended 2 "--out DIR is needed"
reshard "$t/nowhere" bad --tensor 4
passes "no source" ended 3 "$t/nowhere: no such directory"
passes "nothing is left of all these" nothing_left bad

cp -r "$t/whole" "$t/damaged"
dataset=moment1/model.layers.1.mlp.up_proj.weight
flip "$t/damaged/$step/shard-t006-d001.h5" /$dataset
reshard "$t/damaged/$step" bad --tensor 4
passes "a flipped bit" ended 3 "$t/damaged/$step is damaged" "shard-t006-d001.h5: dataset $dataset"
passes "a flipped bit: no debris" nothing_left bad
rm "$t/damaged/$step/shard-t006-d001.h5"
reshard "$t/damaged/$step" bad --tensor 4
passes "a missing file" ended 3 "shard-t006-d001.h5: file is missing"
passes "a missing file: no debris" nothing_left bad
truncate -s 9000 "$t/damaged/step-00000008/shard-t002-d003.h5"
reshard "$t/damaged" bad --tensor 4
passes "a cut file" ended 3 "step-00000008/shard-t002-d003.h5"
passes "a cut file: no debris" nothing_left bad

# ---- killed
run "$weft_faults" reshard "$source" --tensor 4 --out "$t/killed" --inject kill@phase=save
passes "killed in the middle" ended 137
passes "leaves no directory" test ! -e "$t/killed"
passes "but one aside, with files" test -n "$(find "$(aside killed)" -name 'shard-*.h5')"
left=$(aside killed)
cp -r "$left" "${left/killed/busy}"
flock "${left/killed/busy}/.claim" sleep 20 &
holder=$!
sleep 0.2
reshard "$source" busy --tensor 4
passes "where another one is at work" ended 2 "--out $t/busy: another process is making it"
passes "that one's files are left alone" diff -r "$left" "${left/killed/busy}"
pkill -P $holder
wait $holder 2>/dev/null
reshard "$source" killed --tensor 4
passes "the next one makes it" made killed
passes "as if nothing had been" same_files "$t/trip4/$step" "$t/killed/$step"
passes "and nothing stays aside" test -z "$(aside killed)"
mkdir "$t/.tmp-mine"
echo mine >"$t/.tmp-mine/file"
reshard "$source" mine --tensor 4
passes "what isn't weft's stays" test -s "$t/.tmp-mine/file"
passes "and isn't in the way" made mine

# ---- little space: a mount of our own, where we may have one
small='mount -t tmpfs -o size=600k tmpfs "$1" && shift && exec "$@"'
mkdir "$t/small"
for flags in -m -rm; do
    unshare $flags sh -c "$small" sh "$t/small" true 2>/dev/null || continue
    run unshare $flags sh -c "$small" sh "$t/small" \
        "$weft" reshard "$source" --tensor 4 --out "$t/small/new"
    passes "too little space" ended 4 " GB are needed in $t/small" " GB are free" \
        "nothing is written"
    break
done

# ---- a terminal sees a bar, a file only the end
reshard "$source" told --tensor 4
passes "one line of stderr" test "$(grep -c '^weft: ' "$out")" = 1
run script -qec "$weft reshard $source --tensor 4 --out $t/seen" "$t/typescript"
passes "a bar" ended 0 "[########################]" " MB/s"
finish
