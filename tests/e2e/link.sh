#!/bin/bash
# Training over several hosts: the same bits as on one, sums by windows where a group is on one host
# and by messages where it isn't; and a link that is cut: the ranks that still live say what they
# wait in, the job ends, and goes on elsewhere as if nothing had been.
. "$(dirname "$0")/hosts.bash"
hosts_up 4
short=(--set train.steps=12)

# unplug_soon RUN HOST: after the run's first checkpoint, and not in a save, which has more time
unplug_soon() {
    {
        until [ -e "$t/$1/step-00000004" ]; do sleep 0.05; done
        sleep 0.4
        unplug "$2"
    } &
}

train one one "${short[@]}"
train_over h1:1,h2:1 two --tp 2 --dp 1 "${short[@]}"
passes "2 hosts" same_run one two 12
passes "by messages" says "the ranks of a group are on several nodes: sums go by messages"
train_over h1:2,h2:2 four --tp 2 --dp 2 "${short[@]}"
passes "2 hosts of 2 ranks" same_run one four 12
passes "within hosts by windows" says "sums over tensor ranks by window"
passes "between them by messages" says "sums over data ranks by messages"
train_over h1:1,h2:2,h3:1 uneven --tp 4 --dp 1 "${short[@]}"
passes "3 hosts, unevenly" same_run one uneven 12

out=$t/ping.out
run "$enter" h1 "mpirun --timeout $limit -n 2 --host h1:1,h2:1 $weft ping"
passes "a ping of 2 hosts" ended 0 "--net "
passes "which is one of a network" silent_about "one node"

# ---- two jobs at a time lose a host each: one of mpirun, one of launch/elastic
# mpirun waits for the daemon of a host that it can't reach until the kernel gives the connection
# up: after some 15 minutes, or sooner by this setting. launch/elastic needs no such patience.
on h1 sh -c 'echo 3 >/proc/sys/net/ipv4/tcp_retries2'
program=$weft_faults
slow=("${short[@]}" --set checkpoint.every=4 --set train.hang_timeout=3
      --inject delay@phase=optimizer,times=0,seconds=0.3)
start=$SECONDS
train_over h1:1,h2:1 cut --tp 2 --dp 1 "${slow[@]}" &
job=$!
out=$t/elastic.out
run "$enter" h3 "$(printf '%q ' launch/elastic --hosts h3:1,h4:1 --agent "$agent" --patience 3 \
    --program "$program" "$config" --set run.dir="$t/elastic" "${slow[@]}")" &
elastic=$!
unplug_soon cut h2
unplug_soon elastic h4
wait $job
code=$? out=$t/cut.out
waiting="step [0-9]*, phase [a-z]*, waiting in [a-z -]* over \(tensor\|data\|all\) ranks"
passes "a cut link ends the job" ended 4 "rank 0: no progress for 3 s: step "
passes "it tells what it waits in" grep -aq "$waiting" "$out"
passes "within a minute" test $((SECONDS - start)) -lt 60
passes "the last checkpoint is good" "$weft" verify "$t/cut"
wait $elastic
code=$? out=$t/elastic.out
passes "the elastic launcher goes on" ended 0 "on 1 rank on h3:1 (no answer: h4)" \
    "resuming from $t/elastic/step-0000000"
passes "when the rank left has told what it waits in" grep -aq "$waiting" "$out"
passes "to the same end" same_run one elastic 12
passes "the lost ranks have ended by themselves" no_ranks_left h2 h4

program=$weft
train_over h1:2 cut "${short[@]}" --resume auto
passes "the host that is left goes on" ended 0 "resuming from $t/cut/step-0000000"
passes "to the same end" same_run one cut 12
finish
