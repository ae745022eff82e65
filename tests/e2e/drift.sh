#!/bin/bash
# A replica that one rank alone has changed, by one ulp of one norm gain, is found and named.
. "$(dirname "$0")/common.bash"
program=$weft_faults

# drifts NAME RANKS STEP OPTIONS...: the nudge on rank 1 comes after step STEP + 1; the check every
# 4 steps must end the run.
drifts() {
    local name=$1 ranks=$2 step=$3
    shift 3
    train "$name" "$ranks" "$@" --set train.drift_every=4 --stop-at 8 \
        --inject "nudge@rank=1,step=$step"
    passes "$name" ended 4 "replicas have drifted" "on rank 1 isn't what rank 0 holds"
}

for layout in 2x1 3x1 1x2 1x3 2x2; do
    tp=${layout%x*} dp=${layout#*x}
    drifts "tp $tp x dp $dp" $((tp * dp)) 3 --tp $tp --dp $dp
    passes "names the tensor" says "model.norm.weight on rank 1 "
    passes "at once" has_metrics "tp $tp x dp $dp" 3
done
drifts "after a step without a check" 2 4 --tp 2 --dp 1
passes "at the next check" has_metrics "after a step without a check" 7

train unchecked 2 --tp 2 --dp 1 --set train.drift_every=0 --stop-at 8 --inject nudge@rank=1,step=3
passes "drift_every = 0 checks nothing" ended 0
train whole 2 --tp 2 --dp 1 --set train.drift_every=1 --stop-at 8
passes "no drift without a nudge, tp 2" ended 0 " step 8"
train whole2 2 --tp 1 --dp 2 --set train.drift_every=1 --stop-at 8
passes "no drift without a nudge, dp 2" ended 0 " step 8"
fails "the nudge changes the result" same_run whole unchecked 8
finish
