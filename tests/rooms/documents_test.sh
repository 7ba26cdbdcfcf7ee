#!/usr/bin/env bash
exec python3 "$TEST_SRCDIR/$TEST_WORKSPACE/tests/rooms/documents_test.py" "$TEST_SRCDIR/$TEST_WORKSPACE"
