#!/usr/bin/env bash
# reference_test.sh PROGRAM CALLS [PACKAGES [ARGUMENTS]]: runs a program of this folder with the Python of ND_REFERENCE
# (environment.sh), which has these packages ("numpy, torch"), and with these arguments behind calls and seed.
#
# ND_REFERENCE_CALLS and ND_REFERENCE_SEED say how many calls (or programs), and which.
set -eu
root="$TEST_SRCDIR/$TEST_WORKSPACE"
python=${ND_REFERENCE:-${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/ndarc-rivals}/bin/python
if ! "$python" -c "import ${3:-numpy, torch}" 2>/dev/null; then
    echo "SKIPPED: $1: no Python with ${3:-numpy, torch} at $python (tests/reference/environment.sh makes one)"
    exit 0
fi
export ND_LIBRARY="$root/libnd.so" ND_INCLUDE="$root/include"
export PYTHONPATH="$root/tests/reference:$root/tools/python" PYTHONDONTWRITEBYTECODE=1
exec "$python" -W ignore "$root/tests/reference/$1" "${ND_REFERENCE_CALLS:-$2}" "${ND_REFERENCE_SEED:-1}" "${@:4}"
