#!/usr/bin/env bash
# ranks.sh RANKS PROGRAM [ARGS]: runs a test on so many ranks of this machine. Passes when all of them do; with RANKS 0 the program
# runs by itself, as nothing but rank 0 of 1. Without mpirun it says SKIPPED and passes.
set -u
ranks=$1 program=$2
shift 2
source tests/distributed/mpirun.sh
if [ "$ranks" -eq 0 ]; then
    "$program" "$@"
else
    run_ranks "$ranks" "$program" "$@"
fi
