# Several hosts on this machine, for scripts of this folder, which source it in place of
# common.bash. Each has a network, a name and a /dev/shm of its own; a bridge joins them, and the
# files are shared. The script runs once more in namespaces of its own: with its end, however it
# comes, all of that and every process in it are gone. Where such namespaces can't be had it says so
# and ends.
#
#   hosts_up N                makes h1 to hN, with addresses 10.77.0.1 to N
#   on HOST COMMAND...        runs a command there
#   unplug HOST, plug HOST    takes a host's network away, and gives it back
#   $agent                    a remote shell, for mpirun: reaches hosts that are not unplugged
#   train_over HOST:RANKS,... NAME OPTIONS...   like train, over hosts, by an mpirun on the first
#   no_ranks_left HOST...     a test: every rank there has ended, or will soon
if [ "${1:-}" != inside ]; then
    probe='ip link add br0 type bridge && mount -t tmpfs tmpfs /dev/shm'
    for user in '' r; do
        unshare -${user}mnpf --kill-child --mount-proc sh -c "$probe" 2>/dev/null || continue
        # What is set for one host doesn't fit several.
        for name in $(compgen -e | grep -E '^(OMPI|PRTE)_'); do unset "$name"; done
        exec unshare -${user}mnpf --kill-child --mount-proc "$0" inside
    done
    echo "skipped: hosts can't be made here (unshare of network, process and mount namespaces; ip)"
    echo "1 passed, 0 failed"
    exit
fi

# Open MPI 4 and 5: by the hosts' own network alone.
export WEFT_HOSTS=yes OMPI_MCA_btl_tcp_if_include=eth0
export OMPI_MCA_oob_tcp_if_include=eth0 PRTE_MCA_oob_tcp_if_include=eth0
export PRTE_MCA_prte_silence_shared_fs=1
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
enter=$t/enter agent=$t/agent
export OMPI_MCA_plm_rsh_agent=$agent PRTE_MCA_plm_ssh_agent=$agent

cat >"$enter" <<A
#!/bin/bash
pid=\$(cat "$t/\$1.pid") || exit 255
shift
exec nsenter -t "\$pid" -n -u -m bash -c "cd '$PWD' && \$*"
A
cat >"$agent" <<A
#!/bin/bash
"$enter" "\$1" ip link show up | grep -q eth0 || { echo "\$1 doesn't answer" >&2; exit 255; }
exec "$enter" "\$@"
A
chmod +x "$enter" "$agent"

hosts_up() {
    local i pid
    echo "127.0.0.1 localhost" >"$t/hosts"
    for ((i = 1; i <= $1; i++)); do echo "10.77.0.$i h$i" >>"$t/hosts"; done
    ip link set lo up && ip link add br0 type bridge && ip link set br0 up || exit 2
    for ((i = 1; i <= $1; i++)); do
        unshare -num sh -c "hostname h$i && ip link set lo up &&
            mount -t tmpfs tmpfs /dev/shm && mount --bind $t/hosts /etc/hosts &&
            echo \$\$ >$t/h$i.new && mv $t/h$i.new $t/h$i.pid && exec sleep infinity" &
        pid=$!
        until [ -e "$t/h$i.pid" ]; do kill -0 $pid && sleep 0.01 || exit 2; done
        ip link add v$i type veth peer name eth0 netns $pid && ip link set v$i master br0 up &&
            on h$i ip addr add "10.77.0.$i/24" dev eth0 && on h$i ip link set eth0 up || exit 2
    done
}

on() {
    local host=$1
    shift
    "$enter" "$host" "$(printf '%q ' "$@")"
}

unplug() { on "$1" ip link set eth0 down; }
plug() { on "$1" ip link set eth0 up; }

train_over() {
    local hosts=$1 name=$2 ranks=0 entry
    shift 2
    for entry in ${hosts//,/ }; do ranks=$((ranks + ${entry#*:})); done
    out=$t/$name.out
    set -- mpirun --timeout "$limit" -n "$ranks" --host "$hosts" "$program" train "$config" \
        --set run.dir="$t/$name" "$@"
    run "$enter" "${hosts%%:*}" "$(printf '%q ' "$@")"
}

# The ranks that are alive on a host.
ranks_on() {
    local network file
    network=$(readlink "/proc/$(cat "$t/$1.pid")/ns/net")
    for file in /proc/[0-9]*/ns/net; do
        if [ "$(readlink "$file")" = "$network" ]; then
            { grep -lz '^OMPI_COMM_WORLD_RANK=' "${file%ns/net}environ"; } 2>/dev/null
        fi
    done
}

# no_ranks_left HOST...: within 10 seconds
no_ranks_left() {
    local host i
    for host in "$@"; do
        for i in {1..100}; do
            [ -n "$(ranks_on "$host")" ] || continue 2
            sleep 0.1
        done
        return 1
    done
}
