#!/usr/bin/env bash
# reference_test.sh PROGRAM CALLS [PACKAGES [ARGUMENTS]]: runs a program of this folder with a Python (python.sh) that has these
# packages ("numpy, torch"; "numpy, gguf|numpy": those, or else fewer), and with these arguments behind calls and seed.
#
# ND_REFERENCE_CALLS and ND_REFERENCE_SEED say how many calls (or programs), and which.
set -eu
root="$TEST_SRCDIR/$TEST_WORKSPACE"
. "$root/tests/reference/python.sh"
IFS='|' read -ra choices <<<"${3:-numpy, torch}"
for packages in "${choices[@]}"; do
    ! python=$(python_with "$packages") || break
done
if [ -z "$python" ]; then
    echo "SKIPPED: $1: no Python with ${3:-numpy, torch} (tests/reference/environment.sh makes one)"
    exit 0
fi
export ND_LIBRARY="$root/libnd.so" ND_INCLUDE="$root/include"
export PYTHONPATH="$root/tests/reference:$root/tools/python" PYTHONDONTWRITEBYTECODE=1
exec "$python" -W ignore "$root/tests/reference/$1" "${ND_REFERENCE_CALLS:-$2}" "${ND_REFERENCE_SEED:-1}" "${@:4}"
