#!/usr/bin/env bash
# example_test.sh PROGRAM SOURCE PAGE: the program that docs/distributed.md shows is the one that runs, and two ranks add up.
set -eu
program=$1 code=$2 page=$3
python3 - "$code" "$page" <<'END'
import sys
code, page = (open(path).read() for path in sys.argv[1:])
sys.exit(0 if code.split("\n", 1)[1].strip() in page else "docs/distributed.md does not show the example as it is")
END
source tests/distributed/mpirun.sh
run_ranks 2 "$program" >"$scratch/said" 2>&1 || status=$?
cat "$scratch/said"
if [ "${status:-0}" -ne 0 ]; then
    grep -q "without MPI" "$scratch/said" && echo "SKIPPED: built without MPI"
else
    grep -qF "[3., 3., 3.]" "$scratch/said"
fi
