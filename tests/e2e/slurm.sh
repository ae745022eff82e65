#!/bin/bash
# launch/weft.sbatch in a Slurm over three hosts: a job that is told to stop saves, queues again and
# ends like a run that was never interrupted.
# Runs alone: its clocks count seconds.
command -v slurmctld >/dev/null && command -v munged >/dev/null ||
    { echo "skipped: no Slurm here (packages slurm-wlm, munge)"; echo "1 passed, 0 failed"; exit; }
. "$(dirname "$0")/hosts.bash"
. tests/e2e/background.bash
hosts_up 3

mkdir "$t/state"
head -c 1024 /dev/urandom >"$t/munge.key"
chmod 600 "$t/munge.key"
cat >"$t/slurm.conf" <<END
ClusterName=box
SlurmctldHost=h1
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$t/munge.sock,cred_expire=5
MpiDefault=pmix
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
KillWait=2
SlurmdParameters=config_overrides
TmpFS=$t/tmp.%n
StateSaveLocation=$t/state
SlurmdSpoolDir=$t/spool.%n
SlurmctldPidFile=$t/ctld.pid
SlurmdPidFile=$t/d.%n.pid
SlurmctldLogFile=$t/ctld.log
SlurmdLogFile=$t/d.%n.log
SchedulerParameters=sched_interval=1
PartitionName=p Nodes=ALL Default=YES MaxTime=60 State=UP
NodeName=h[1-3] CPUs=4 RealMemory=500 State=UNKNOWN
END
export SLURM_CONF=$t/slurm.conf
munged --socket="$t/munge.sock" --key-file="$t/munge.key" --pid-file="$t/munged.pid" \
    --log-file="$t/munged.log" --seed-file="$t/munged.seed" --force 2>/dev/null
on h1 slurmctld
for host in h1 h2 h3; do
    mkdir "$t/spool.$host" "$t/tmp.$host"
    on $host slurmd
done
wait_for sh -c "'$agent' h1 timeout 5 sinfo -h -t idle -o %D | grep -q 3"

# slurm COMMAND...: on the first host, as on a login node.
slurm() { on h1 timeout 20 "$@"; }

# submit NAME [sbatch options] -- [train options]; the job's number is in $job.
submit() {
    local name=$1 options=()
    shift
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    shift
    out=$t/$name.out
    job=$(slurm env WEFT="$PWD/$weft_faults" sbatch --parsable --output="$out" "${options[@]}" \
        launch/weft.sbatch "$t/$name" "$config" \
        --inject delay@phase=optimizer,times=0,seconds=0.1 "$@") || echo "sbatch failed"
}

train whole one

submit run --ntasks=3 --nodes=3 --time=10 --
wait_for steps_done run 2
slurm scancel --signal=USR1 "$job"
wait_for grep -q SIGUSR1 "$out"
slurm scancel --signal=USR2 "$job"
wait_for grep -q "queued again" "$out"
passes "told to save, it saves" says "saving step"
passes "told to stop, it saves and stops" says "(SIGUSR2), which is saved in"
wait_for grep -q "^fingerprint .* step 24$" "$out"
passes "queued again, it ends like one that was never told" same_run whole run
finish
