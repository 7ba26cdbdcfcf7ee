#!/usr/bin/env bash
# The binary interface is the recorded one (docs/stability.md), and a change would be noticed.
exec "$TEST_SRCDIR/$TEST_WORKSPACE/tests/symbols/interface.sh"
