#!/bin/bash
# One rank alone fails, or is late, in each phase of a run: the job ends with an exit code and a
# message that names the rank, never with a hang; a late rank changes nothing. Under mpirun's
# timeout a hang would end with another code than the failure's.
. "$(dirname "$0")/common.bash"
phases="startup data forward backward optimizer save load write"

train base one --stop-at 2
train whole one --stop-at 3
resume=(--resume "$t/base/step-00000002" --stop-at 3)

# on_layout TP DP: every phase and rank of a layout. All runs resume, take a step and save.
on_layout() {
    local ranks=$(($1 * $2)) where="tp $1 x dp $2" phase rank name delays start
    for ((rank = 0; rank < ranks; rank++)); do
        delays=()
        for phase in $phases; do
            delays+=(--inject "delay@rank=$rank,phase=$phase")
            name="fail in $phase on rank $rank of $where"
            train fail "$ranks" --tp "$1" --dp "$2" "${resume[@]}" \
                --inject "fail@rank=$rank,phase=$phase"
            passes "$name" ended 4 "rank $rank: injected failure in phase $phase"
            passes "$name publishes nothing" test ! -e "$t/fail/step-00000003"
            rm -rf "$t/fail"
        done
        start=${EPOCHREALTIME/./}
        train late "$ranks" --tp "$1" --dp "$2" "${resume[@]}" "${delays[@]}"
        passes "rank $rank of $where is late in every phase" ended 0 "$(fingerprint whole)"
        passes "eight times a quarter of a second" test $((${EPOCHREALTIME/./} - start)) -gt 2000000
        rm -rf "$t/late"
    done
}

program=$weft_faults
on_layout 3 1
on_layout 1 2

train all 3 --tp 3 --dp 1 "${resume[@]}" --inject fail@phase=data
passes "all ranks fail: no rank is named" ended 4 "error: injected failure in phase data"
train publish 2 --tp 2 --dp 1 "${resume[@]}" --inject fail@phase=publish
passes "the first rank fails when it publishes" ended 4 \
    "rank 0: injected failure in phase publish, step 2"
passes "and publishes nothing" test -z "$(find "$t/publish" -name '*step-*')"
train other 2 --tp 2 --dp 1 "${resume[@]}" --inject fail@rank=1,step=7
passes "a fault of another step" ended 0 "$(fingerprint whole)"
train unknown one --inject explode
passes "an unknown fault" ended 2 "kind \"explode\": one of fail, delay"
train unknown one --inject fail@phase=lunch
passes "an unknown phase" ended 2 "\"phase=lunch\""

# The released program knows nothing of all this.
program=$weft
train released one --inject fail
passes "--inject in the released program" ended 2 "unrecognized option '--inject"
passes "no fault in the released program" test 0 = \
    "$(grep -acE 'injected failure|rank-mask|lose-moments|inject' "$weft")"
passes "they are in the other one" test 0 -lt \
    "$(grep -acE 'injected failure|rank-mask|lose-moments|inject' "$weft_faults")"
finish
