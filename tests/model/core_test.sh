#!/usr/bin/env bash
# Explores every program with the core as it is.
exec "$TEST_SRCDIR/$TEST_WORKSPACE/tests/model/right" "$@"
