#!/bin/bash
# launch/elastic over hosts: a host that is cut off is left out, and taken again when it is back; the
# run ends like one on one machine.
. "$(dirname "$0")/hosts.bash"
. tests/e2e/background.bash
hosts_up 3

# As a remote shell would be: no answer from a host without network.
cat >"$t/shell" <<END
#!/bin/bash
"$agent" "\$1" ip link show eth0 | grep -q 'state UP' || exit 255
exec "$agent" "\$@"
END
chmod +x "$t/shell"

ranks_on() {
    local network file
    network=$(readlink "/proc/$(cat "$t/$1.pid")/ns/net")
    for file in /proc/[0-9]*/ns/net; do
        [ "$(readlink "$file")" = "$network" ] || continue
        file=${file%/ns/net}
        grep -qz '^OMPI_COMM_WORLD_RANK=' "$file/environ" 2>/dev/null && echo "${file#/proc/}"
    done
}

short=(--set train.steps=16 --set grid.data=1) # so that each rank has work
train whole one "${short[@]}"

background run "$agent" h1 launch/elastic --hosts h1:1,h2:1,h3:1 --agent "$t/shell" --patience 1 \
    --program "$weft_faults" "$config" --set run.dir="$t/run" "${short[@]}" \
    --set checkpoint.every=2 --set train.hang_timeout=2 \
    --inject delay@phase=optimizer,times=0,seconds=0.2
wait_for test -e "$t/run/step-00000004"
unplug h3
wait_for grep -q "going on from" "$out"
passes "the host that is cut off is left out" says "on 2 ranks on h1:1,h2:1 (no answer: h3)"
wait_for steps_done run 10
plug h3
# shellcheck disable=SC2046
kill -KILL $(ranks_on h2)
ended_by run
passes "the host that is back is taken again" says "on 3 ranks on h1:1,h2:1,h3:1"
passes "the run" same_run whole run 16
finish
