#!/bin/bash
# A /dev/shm of 16 MB: sums whose windows fit use it, others go by messages and say so in one line,
# with the same result. The small file system lies over the real one in a mount namespace of this
# script; where nobody lets us have one, nothing can be shown, and that is said.
if [ "${1:-}" != inside ]; then
    for flags in -m -rm; do
        unshare $flags sh -c 'mount -t tmpfs -o size=16m tmpfs /dev/shm' 2>/dev/null || continue
        # Where Open MPI keeps its own files depends on the room there.
        for name in $(compgen -e | grep -E '^(OMPI|PRTE)_'); do unset "$name"; done
        exec unshare $flags "$0" inside
    done
    echo "skipped: neither unshare -m nor unshare -rm may mount a small /dev/shm here"
    echo "1 passed, 0 failed"
    exit
fi
mount -t tmpfs -o size=16m tmpfs /dev/shm || exit 1
. "$(dirname "$0")/common.bash"

train one one
train small 2 --tp 2 --dp 1
passes "small windows fit" same_run one small
passes "and are used" says "sums over tensor ranks by window"

# 2 data ranks exchange 1.9 million gradients of 4 bytes each.
large=(--set model.d_model=256 --set ffn.d_ff=800 --set train.steps=3 --set train.global_batch=4
       --set optim.warmup=1 --set eval.every=0)
reason='/dev/shm has [0-9]* MB free, [0-9]* MB are needed for windows'
train large one "${large[@]}"
for layout in 1x2 2x2; do
    tp=${layout%x*} dp=${layout#*x}
    train "large $layout" $((tp * dp)) --tp "$tp" --dp "$dp" "${large[@]}"
    passes "$layout: large ones don't fit" same_run large "large $layout" 3
    passes "$layout: one line says so" test 1 = \
        "$(grep -c "$reason: sums go by messages" "$out")"
done
train forced 2 --tp 1 --dp 2 "${large[@]}" --set grid.transport=window
passes "windows that are insisted on" ended 4 "shared windows are not possible: /dev/shm has"
mount -o remount,size=100m /dev/shm
WEFT_MPIRUN="--timeout $limit" run launch/local -n 2 --program "$weft" --command bench "$config" \
    --part exchange --pairs 7 --tp 2 --dp 1 --set run.threads=1
passes "room for one of two windows" ended 4 "/dev/shm has room for one of two windows"
passes "/dev/shm is empty afterwards" test -z "$(ls /dev/shm)"
finish
