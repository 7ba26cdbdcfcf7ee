#!/usr/bin/env bash
# fragments_test.sh: see fragments.py.
set -u
cd "$TEST_SRCDIR/$TEST_WORKSPACE" || exit 1
if ! command -v cc >/dev/null || ! command -v c++ >/dev/null; then
    echo "SKIPPED: no compiler"
    exit 0
fi
mkdir -p "$TEST_TMPDIR/lib" "$TEST_TMPDIR/run" && cp -L libnd.so* "$TEST_TMPDIR/lib/" || exit 1
[ ! -e libnd_cudart.so.0 ] || cp -L libnd_cudart.so.0 "$TEST_TMPDIR/lib/" # CUDA's runtime, which lies beside it
[ -e "$TEST_TMPDIR/lib/libnd.so.0" ] || cp "$TEST_TMPDIR/lib/libnd.so" "$TEST_TMPDIR/lib/libnd.so.0"
exec python3 tests/docs/fragments.py . "$TEST_TMPDIR/lib/libnd.so" "$TEST_TMPDIR/run"
