#!/usr/bin/env bash
# python_test.sh FILE: a test of the module of tools/python, with a Python that has NumPy and PyTorch where there is one, else with less.
set -eu
root="$TEST_SRCDIR/$TEST_WORKSPACE"
. "$root/tests/reference/python.sh"
python=$(python_with "numpy, torch") || python=$(python_with numpy) || python=python3
export ND_LIBRARY="$root/libnd.so" ND_INCLUDE="$root/include" ND_INTERFACE="$root/tests/symbols/interface.txt"
export ND_PROGRAM="$root/tests/python/libprogram.so"
export PYTHONPATH="$root/tools/python" PYTHONDONTWRITEBYTECODE=1
exec "$python" "$root/$1"
