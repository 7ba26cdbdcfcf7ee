#!/usr/bin/env bash
# python_test.sh: the module of tools/python, with the Python of ND_REFERENCE (tests/reference/environment.sh), which has NumPy and
# PyTorch, else with python3 and what that has.
set -eu
root="$TEST_SRCDIR/$TEST_WORKSPACE"
python=${ND_REFERENCE:-${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/ndarc-rivals}/bin/python
[ -x "$python" ] || python=python3
export ND_LIBRARY="$root/libnd.so" ND_INCLUDE="$root/include" ND_INTERFACE="$root/tests/symbols/interface.txt"
export PYTHONPATH="$root/tools/python" PYTHONDONTWRITEBYTECODE=1
exec "$python" "$root/tests/python/python_test.py"
