#!/usr/bin/env bash
# Writes kernels/cuda/budget.txt, or with `check` before the files compares it with what the compiler says now.
set -eu
here=kernels/cuda # in the runfiles, where Bazel starts it
case "${1:-}" in
check) shift && exec python3 "$here/budget.py" check "$here/budget.txt" "$@" ;;
write) shift && python3 "$here/budget.py" write "$@" >"$BUILD_WORKSPACE_DIRECTORY/kernels/cuda/budget.txt" ;;
esac
