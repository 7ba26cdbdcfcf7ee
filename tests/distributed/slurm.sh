#!/usr/bin/env bash
# slurm.sh COMMAND ARGS...: runs a command beside a Slurm of its own, of this machine alone, as eight processors: srun, scancel and sinfo work in it. As
# root, with Debian's packages slurm-wlm and munge; its daemons and all of their files are gone afterwards. By hand, not part of any test:
#
#     tests/distributed/slurm.sh srun -n 4 --mpi=pmix bazel-bin/docs/examples/distributed/ranks        a program of OpenMPI
#     tests/distributed/slurm.sh srun -n 4 --mpi=pmi2 bazel-bin/docs/examples/distributed/ranks        one of MPICH
set -eu
for tool in munged slurmctld slurmd srun; do
    command -v $tool >/dev/null || { echo "slurm.sh: no $tool; apt-get install slurm-wlm munge" >&2; exit 1; }
done
cluster=$(mktemp -d /tmp/nd-slurm-XXXXXX)
chmod 755 "$cluster"
stop() {
    local daemon pid
    for daemon in slurmd slurmctld munged; do
        [ ! -s "$cluster/$daemon.pid" ] || read -r pid <"$cluster/$daemon.pid"
        [ -z "${pid:-}" ] || kill "$pid" 2>/dev/null || true
        while [ -n "${pid:-}" ] && kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
        pid=
    done
    rm -rf "$cluster"
}
trap stop EXIT

host=$(hostname -s)
port=$((20000 + RANDOM % 10000))
mkdir "$cluster/state" "$cluster/spool"
(umask 077 && head -c 1024 /dev/urandom >"$cluster/munge.key")
cat >"$cluster/slurm.conf" <<END_OF_CONFIGURATION
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthInfo=socket=$cluster/munge.socket
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmctldPidFile=$cluster/slurmctld.pid
SlurmdPidFile=$cluster/slurmd.pid
SlurmctldLogFile=$cluster/slurmctld.log
SlurmdLogFile=$cluster/slurmd.log
StateSaveLocation=$cluster/state
SlurmdSpoolDir=$cluster/spool
# What wants no control groups.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
END_OF_CONFIGURATION
munged --force --key-file="$cluster/munge.key" --socket="$cluster/munge.socket" --pid-file="$cluster/munged.pid" \
    --log-file="$cluster/munged.log" --seed-file="$cluster/munge.seed"
export SLURM_CONF=$cluster/slurm.conf
slurmctld -i
slurmd -N "$host"
for ((i = 0; i < 300; i++)); do
    [ "$(sinfo -h -o %T 2>/dev/null)" != idle ] || break
    sleep 0.1
done
"$@"
