#!/bin/bash
# The comparison of invariance.sh must see what breaks the promise: a sum by MPI_Allreduce, a
# dropout mask keyed by rank, rows that a block doesn't get, a bias that a fused kernel leaves out, BLAS on
# two threads. A control that passes is a failing test.
# (That BLAS's threads do change a product of wide.ini is asserted by unit/test_blas_threads.c.)
. "$(dirname "$0")/common.bash"
config=$t/tiny.ini steps=12
sed "s/^steps = .*/steps = $steps/" tests/configs/tiny.ini >"$config"

train one one
train "exact on 3 ranks" 3 --tp 3 --dp 1
passes "exact sums on 3 ranks" same_run one "exact on 3 ranks"
train allreduce 3 --tp 3 --dp 1 --set grid.reduction=allreduce
fails "MPI_Allreduce on tp 3" same_run one allreduce

program=$weft_faults
train "no fault" 2 --tp 2 --dp 1
passes "the program with faults, none switched on" same_run one "no fault"
train "rank mask" 2 --tp 2 --dp 1 --inject rank-mask
fails "a mask keyed by rank on tp 2" same_run one "rank mask"

train "own rows" 3 --tp 3 --dp 1 --set parallel.sequence=true
passes "each rank its own rows, no fault" same_run one "own rows"
train "lost rows" 3 --tp 3 --dp 1 --set parallel.sequence=true --inject rows-not-gathered
fails "rows of one rank that aren't gathered" same_run one "lost rows"
train "own gains" 3 --tp 3 --dp 1 --set parallel.sequence=true --inject gain-own-rows
passes "gains of own rows alone" ended 4 "replicas have drifted" "norm.weight"
train "own gains, unseen" 3 --tp 3 --dp 1 --set parallel.sequence=true --set train.drift_every=0 \
    --inject gain-own-rows
fails "gains of own rows alone, not checked for drift" same_run one "own gains, unseen"

for level in eager packed gate block; do
    train "no bias in tiles, $level" 2 --tp 2 --dp 1 --set kernels.fusion=$level --inject bias-not-in-tile
done
for level in eager packed gate; do
    passes "a fused end of a block isn't in $level" same_run one "no bias in tiles, $level"
done
fails "a fused end of a block without bias" same_run one "no bias in tiles, block"

config=tests/configs/wide.ini
train wide one
train "wide on 2 ranks" 2 --tp 2 --dp 1
passes "BLAS on one thread" same_run wide "wide on 2 ranks" 3
train "BLAS threads" one --inject blas-threads
fails "BLAS on two threads" same_run wide "BLAS threads" 3
train "BLAS threads on 2 ranks" 2 --tp 2 --dp 1 --inject blas-threads
fails "BLAS on two threads, tp 2" same_run wide "BLAS threads on 2 ranks" 3
finish
