#!/bin/bash
# Run directories on small file systems: a save that finds no room ends the run with its message and
# exit code, leaves no debris, and the checkpoints before it are good. The small file system is
# mounted in a mount namespace of this script; where nobody lets us have one, that is said.
if [ "${1:-}" != inside ]; then
    for flags in -m -rm; do
        unshare $flags sh -c 'mount -t tmpfs -o size=1m tmpfs /mnt' 2>/dev/null || continue
        exec unshare $flags "$0" inside
    done
    echo "skipped: neither unshare -m nor unshare -rm may mount a small file system here"
    echo "1 passed, 0 failed"
    exit
fi
. "$(dirname "$0")/common.bash"

train whole one --set checkpoint.every=2 --set checkpoint.keep=0 --stop-at 6
one=$(du -sk "$t/whole/step-00000002" | cut -f 1)

# Room for one checkpoint and different parts of the next.
for part in 2 5 9 14 19; do
    mkdir "$t/full"
    mount -t tmpfs -o size=$((one + one * part / 20 + 40))k tmpfs "$t/full"
    train full/run 2 --set checkpoint.every=2 --set checkpoint.keep=0
    passes "$part/20 of a checkpoint: the message" ended 4 "No space left on device"
    passes "$part/20: no debris" test -z "$(find "$t/full/run" -name '.tmp*')"
    passes "$part/20: the one before is good" "$weft" verify "$t/full/run"
    umount "$t/full"
    rmdir "$t/full"
done

# Enough room when the save begins, none when it is written; then for the run that goes on.
mkdir "$t/full"
mount -t tmpfs -o size=$((3 * one))k tmpfs "$t/full"
program=$weft_faults
train full/run 2 --set checkpoint.every=2 --stop-at 6 --inject slow-disk@step=3,seconds=1 &
until [ -e "$t/full/run/.tmp-step-00000004" ] || ! kill -0 $! 2>/dev/null; do sleep 0.01; done
head -c $((3 * one))k /dev/zero >"$t/full/other" 2>/dev/null
wait $!
out=$t/full/run.out
passes "the disk fills up during a save" says "No space left on device"
passes "which leaves no debris" test -z "$(find "$t/full/run" -name '.tmp*')"
passes "and the checkpoint before" "$weft" verify "$t/full/run"
rm "$t/full/other"
program=$weft
train full/run 3 --resume auto --stop-at 6
passes "the run goes on when there is room" ended 0 "resuming from $t/full/run/step-00000002" \
    "$(fingerprint whole)"

# A file system that nobody may write to.
mount -o remount,ro "$t/full"
out=$t/read-only.out
run launch/local -n 2 "$config" --set run.dir="$t/full/run" --resume auto
passes "a read-only run directory" ended 4 "$t/full/run/.claim" "Read-only file system"
run "$weft" verify "$t/full/run"
passes "can still be verified" ended 0 good
umount "$t/full"
finish
