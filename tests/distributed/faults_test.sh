#!/usr/bin/env bash
# faults_test.sh RANKS PROGRAM [HOW...]: one rank is killed, killed in the middle of its work (while it adds up, while it waits) or of a backward pass, hangs,
# is stopped, or leaves; all others must say that they survived, and no process may be left. mpirun keeps ranks when one dies if it is told to; that of
# MPICH ends the others of the same machine all the same now and then, unless a shell keeps from it that a signal did it.
set -u
ranks=$1 program=$2
shift 2
[ "$#" -gt 0 ] || set -- killed killed-meanwhile killed-adding killed-waiting killed-in-training hangs hangs-adding stopped leaves finalizes \
    killed-at-exit hangs-at-exit
source tests/distributed/mpirun.sh
shell=()
case $mpi in
openmpi) mpirun_options+=(--enable-recovery) ;;
mpich) mpirun_options+=(-disable-auto-cleanup) shell=(sh -c 'trap : USR1; "$@"; exit 0' sh) ;;
*) echo "SKIPPED: this mpirun ends all ranks with the first"; exit 0 ;;
esac

failed=0
for how; do
    SECONDS=0
    ND_TEST_RANKS=$ranks "$mpirun" "${mpirun_options[@]}" -n "$ranks" "${shell[@]}" "$program" "$how" >"$scratch/said" 2>&1 &
    launcher=$!
    while kill -0 $launcher 2>/dev/null && [ "$SECONDS" -lt 60 ]; do sleep 0.1; done
    left=$(pgrep -f "^$program $how")
    # OpenMPI's waits for ever now and then when all ranks have ended in the middle of MPI_Finalize().
    kill -KILL $launcher $left 2>/dev/null
    wait $launcher
    if grep -q "^SKIPPED" "$scratch/said"; then
        cat "$scratch/said"
        exit 0
    fi
    survivors=$((ranks - 1))
    case $how in hangs* | stopped | *-at-exit) survivors=$ranks ;; esac # it comes back to find itself alone, or all was well until then
    survived=$(grep -c "^rank [0-9]*: survived" "$scratch/said")
    echo "$how: $survived of $survivors survived, $(wc -w <<<"$left") processes left, ${SECONDS} s"
    if [ "$survived" -ne "$survivors" ] || [ -n "$left" ]; then
        failed=1
        tail -n 60 "$scratch/said"
    fi
done
exit $failed
