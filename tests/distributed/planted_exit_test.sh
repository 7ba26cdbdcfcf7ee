#!/usr/bin/env bash
# planted_exit_test.sh PROGRAM: fails when faults_test.sh passes with a program whose ranks wait at exit for those that they gave up.
set -u
program=$1
said=$(tests/distributed/faults_test.sh 2 "$program" hangs 2>&1)
code=$?
echo "$said"
! grep -q "^SKIPPED" <<<"$said" || exit 0
[ "$code" -ne 0 ] && grep -q "came to its end after" <<<"$said"
