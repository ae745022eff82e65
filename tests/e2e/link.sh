#!/bin/bash
# Training over several hosts: the same bits as on one, sums by windows where a group is on one host
# and by messages where it isn't; and a link that is cut: the ranks that still live say what they
# wait in, the job ends, and goes on elsewhere as if nothing had been.
. "$(dirname "$0")/hosts.bash"
hosts_up 3

train one one
train_over h1:1,h2:1 two --tp 2 --dp 1
passes "2 hosts" same_run one two
passes "by messages" says "the ranks of a group are on several nodes: sums go by messages"
train_over h1:2,h2:2 four --tp 2 --dp 2
passes "2 hosts of 2 ranks" same_run one four
passes "within hosts by windows" says "sums over tensor ranks by window"
passes "between them by messages" says "sums over data ranks by messages"
train_over h1:1,h2:2,h3:1 uneven --tp 4 --dp 1
passes "3 hosts, unevenly" same_run one uneven

# mpirun waits for the daemon of a host that it can't reach until the kernel gives the connection
# up: after 15 minutes, or as soon as this setting says.
on h1 sh -c 'echo 3 >/proc/sys/net/ipv4/tcp_retries2'
program=$weft_faults
start=$SECONDS
train_over h1:1,h2:1 cut --tp 2 --dp 1 --set checkpoint.every=2 --set train.hang_timeout=3 \
    --inject delay@phase=optimizer,times=0,seconds=0.2 &
job=$!
until [ -e "$t/cut/step-00000004" ] || ! kill -0 $job 2>/dev/null; do sleep 0.05; done
unplug h2
wait $job
code=$? out=$t/cut.out
passes "a cut link ends the job" ended 4 "rank 0: no progress for 3 s: step "
passes "it tells what it waits in" grep -q \
    "step [0-9]*, phase [a-z]*, waiting in [a-z -]* over \(tensor ranks\|all ranks of the grid\)" "$out"
passes "within a minute" test $((SECONDS - start)) -lt 60
passes "the lost rank has ended by itself" fails_soon has_ranks h2
passes "the last checkpoint is good" "$weft" verify "$t/cut"
program=$weft
train_over h1:2 cut --resume auto
passes "the host that is left goes on" ended 0 "resuming from $t/cut/step-"
passes "to the same end" same_run one cut
finish
