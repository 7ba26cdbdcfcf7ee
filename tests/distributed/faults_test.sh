#!/usr/bin/env bash
# faults_test.sh RANKS PROGRAM [HOW...]: one rank is killed, killed in the middle of its work (while it adds up, while it waits) or of a backward pass, hangs,
# is stopped, or leaves; all others must say that they survived, and no process may be left. mpirun keeps ranks when one dies if it is told to; that of
# MPICH ends those of the same machine all the same now and then, so each rank has a machine, by its name.
set -u
ranks=$1 program=$2
shift 2
[ "$#" -gt 0 ] || set -- killed killed-meanwhile killed-adding killed-waiting killed-in-training hangs hangs-adding stopped leaves finalizes
source tests/distributed/mpirun.sh
case $mpi in
openmpi) mpirun_options+=(--enable-recovery) ;;
mpich) mpirun_options+=(-disable-auto-cleanup -launcher fork -ppn 1 -hosts "$(seq -s , -f 127.0.0.%g "$ranks")") ;;
*) echo "SKIPPED: this mpirun ends all ranks with the first"; exit 0 ;;
esac

failed=0
for how; do
    SECONDS=0
    timeout 60 "$mpirun" "${mpirun_options[@]}" -n "$ranks" "$program" "$how" >"$scratch/said" 2>&1
    if grep -q "^SKIPPED" "$scratch/said"; then
        cat "$scratch/said"
        exit 0
    fi
    survivors=$((ranks - 1))
    case $how in hangs* | stopped) survivors=$ranks ;; esac # it comes back to find itself alone
    survived=$(grep -c "^rank [0-9]*: survived" "$scratch/said")
    left=$(pgrep -f "^$program $how" | wc -l)
    echo "$how: $survived of $survivors survived, $left processes left, ${SECONDS} s"
    if [ "$survived" -ne "$survivors" ] || [ "$left" -ne 0 ]; then
        failed=1
        tail -n 60 "$scratch/said"
    fi
done
exit $failed
