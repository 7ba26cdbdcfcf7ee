#!/usr/bin/env bash
# The GPU kit on the runtime without a GPU: it is made, builds in a bare folder with nothing of this machine but its compiler, runs
# some of its first part, and goes on behind a step that does not build. It asks Bazel itself, so it is no test of Bazel's but a
# step of .ci/run cuda:
#
#     tests/gpu/kit_test.sh [FOLDER]
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=${1:-$(mktemp -d)}
[ $# -gt 0 ] || trap 'rm -rf "$folder"' EXIT

tests/gpu/kit.sh --fake "$folder/kit"
echo '#error "planted"' >>"$folder/kit/tests/gpu/device_test.c"
# -O1: what the tests are for here is the kit. (-O0 is more than gcc 12 can do with AVX-512.)
run_tests() { # run_tests SECONDS RESUME
    (cd / && env -i PATH=/usr/bin:/bin HOME=/nonexistent KIT_OUT="$folder/results" KIT_EXTRA_CC=-O1 KIT_SECONDS="$1" KIT_RESUME="$2" \
        KIT_ONLY='device_test,operations_test,out_test,behaviour callbacks*' "$folder/kit/run.sh" tests)
}
run_tests 4 '' || { echo "steps without time fail"; exit 1; }
status=0
run_tests 1200 1 || status=$?
[ $status -eq 1 ] || { echo "a step that does not build gives status $status, not 1"; exit 1; }
# Only what was not built is tried again: with its build two lines, and the last.
run_tests 1200 1 >"$folder/resumed" || true
grep -q 'device_test' "$folder/resumed" && [ "$(wc -l <"$folder/resumed")" -eq 3 ] || { cat "$folder/resumed"; exit 1; }
(cd / && env -i PATH=/usr/bin:/bin KIT_OUT="$folder/results" KIT_SANITIZER=/nonexistent "$folder/kit/run.sh" sanitizers) ||
    { echo "without compute-sanitizer its part fails"; exit 1; }
python3 - "$folder/results" <<'END'
import json, sys

def steps(part):
    report = json.load(open("%s/%s.json" % (sys.argv[1], part)))
    assert report["part"] == part and report["cuda"] == "fake" and report["machine"]["cores"] > 0, report
    return {step.pop("step"): step for step in report["steps"]}

tests = steps("tests")
assert len(tests) == 7, sorted(tests)
assert tests["build of 5 programs"]["status"] == tests["build of 2 programs"]["status"] == "failed"
assert tests["device_test"]["status"] == "not built"
for name, cases in (("operations_test", 10), ("out_test", 2), ("behaviour callbacks", 10), ("behaviour callbacks on the GPU", 10)):
    step = tests[name]
    assert step["status"] == "passed" and step["cases_passed"] >= cases and step["cases_failed"] == 0, (name, step)
assert list(steps("sanitizers").values())[0]["status"] == "not found"
END
echo "the kit is made, builds and runs"
