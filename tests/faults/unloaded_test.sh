#!/usr/bin/env bash
# F32: a thread ends after libnd.so, which it used, was closed.
exec "$TEST_SRCDIR/$TEST_WORKSPACE/tests/faults/unloaded" "$TEST_SRCDIR/$TEST_WORKSPACE/libnd.so"
