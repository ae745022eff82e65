#!/bin/bash
# Odd and large numbers of ranks, most of which own nothing of some tensors: two kv heads, and 31
# logical shards.
. "$(dirname "$0")/common.bash"
grid=(--set grid.tensor=31 --set checkpoint.every=2 --set train.drift_every=2)

train whole one "${grid[@]}" --stop-at 6
train many 31 "${grid[@]}" --tp 31 --dp 1 --stop-at 3
passes "31 ranks" ended 0 "tp 31 x dp 1"
passes "write a checkpoint without a hole" "$weft" verify "$t/many" --deep
train many 5 "${grid[@]}" --tp 5 --dp 1 --resume auto --stop-at 5
passes "five go on with it" ended 0 "at step 3"
train many 10 "${grid[@]}" --tp 5 --dp 2 --resume auto --stop-at 6
passes "ten in two replicas" same_run whole many 6
for file in "$t/whole/step-00000006"/*.h5; do
    cmp -s "$file" "$t/many/step-00000006/${file##*/}" || differing=$file
done
passes "with the same files" test -z "${differing:-}"
finish
