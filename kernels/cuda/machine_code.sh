#!/usr/bin/env bash
# Runs machine_code.py over the kernels' objects, which Bazel hands over.
set -eu
here=kernels/cuda # in the runfiles, where Bazel starts it
exec python3 "$here/machine_code.py" "$here/budget.txt" "$@"
