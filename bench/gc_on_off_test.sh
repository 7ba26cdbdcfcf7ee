#!/usr/bin/env bash
# The main job in small: a few epochs on some of the digits. Checks the shape of the JSON file, that the figures in it
# show what the job is there to show, and that wrong options are told apart from failed claims.
set -u
job=$(realpath "$1")
folder=${TEST_TMPDIR:-$(mktemp -d)}
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# However busy the machine is, it takes the time for all epochs.
"$job" --epochs 4 --samples 1280 --seconds 100000 --json "$folder/result.json" >"$folder/table.txt" 2>"$folder/errors.txt"
status=$?
cat "$folder/table.txt"
[ "$status" -eq 0 ] || fail "the job ended with status $status: $(cat "$folder/errors.txt")"
[ -s "$folder/errors.txt" ] && fail "something on standard error without a terminal: $(cat "$folder/errors.txt")"

python3 - "$folder/result.json" <<'END' || fail "the figures do not show what they should"
import json, sys

report = json.load(open(sys.argv[1]))
assert report["bench"] == "gc_on_off"
assert report["machine"]["cores"] >= 1 and report["machine"]["cpu"]
assert report["remaining_objects"] == 0 and report["remaining_bytes"] == 0
metrics = report["metrics"]
assert all(type(value) in (int, float) for value in metrics.values()), metrics
assert metrics["T15_on_grows_bytes_per_epoch"] == 0 < metrics["T15_off_grows_bytes_per_epoch"], metrics
assert metrics["plain_on_seconds_per_epoch"] > 0 and metrics["remaining_objects"] == 0, metrics
assert "T14_ratio" not in metrics  # measured on all digits only

runs = {(run["scenario"], run["gc"]): run for run in report["runs"]}
scenarios = ["plain", "second_order", "callbacks", "escape"]
assert sorted(runs) == sorted((name, gc) for name in scenarios for gc in ("off", "on")), sorted(runs)

for key, run in runs.items():
    assert len(run["epochs"]) == 4, key
    assert run["test_accuracy"] > 0.3, (key, run["test_accuracy"])
    for epoch in run["epochs"]:
        assert epoch["seconds"] > 0, key
        for name in ("live_objects", "live_bytes", "collected_objects", "collected_bytes", "gate_closed_us_max"):
            assert epoch[name] >= 0, (key, name)


def column(name, gc, figure):
    return [epoch[figure] for epoch in runs[name, gc]["epochs"]]


def grows(values):
    return all(after > before for before, after in zip(values, values[1:]))


for figure in ("live_objects", "live_bytes"):
    for name in ("second_order", "callbacks"):
        assert grows(column(name, "off", figure)), (name, "off", figure, column(name, "off", figure))
    for name in ("plain", "second_order", "callbacks"):
        assert len(set(column(name, "on", figure)[1:])) == 1, (name, "on", figure, column(name, "on", figure))
    for gc in ("off", "on"):
        assert grows(column("escape", gc, figure)), ("escape", gc, figure)
for name in ("second_order", "callbacks"):
    assert sum(column(name, "off", "collected_objects")) == 0, name
    assert min(column(name, "on", "collected_objects")) > 0, name
    assert min(column(name, "on", "cycles")) > 0, name
    assert runs[name, "off"]["left_bytes"] > 0, name
    assert runs[name, "off"]["left_bytes"] == runs[name, "off"]["freed_by_collection_bytes"], name
for name in scenarios:
    assert runs[name, "on"]["left_objects"] == 0 and runs[name, "on"]["left_bytes"] == 0, name
    # The collector changes what is freed, never what is computed.
    assert runs[name, "off"]["test_accuracy"] == runs[name, "on"]["test_accuracy"], name
for gc in ("off", "on"):
    assert sum(column("escape", gc, "collected_objects")) == 0
    assert any("scenarios.c:" in site for site in runs["escape", gc]["escaped_sites"]), runs["escape", gc]["escaped_sites"]
END

"$job" --scenario nothing >/dev/null 2>&1
[ $? -eq 2 ] || fail "an unknown scenario is not refused"
# And where there is no time, it measures less, says so, and judges what it can.
"$job" --epochs 50 --samples 1280 --seconds 1 --scenario second_order --json "$folder/short.json" >"$folder/short.txt" ||
    fail "without time the job fails: $(cat "$folder/short.txt")"
grep -q 'stopped after .* of 50 epochs' "$folder/short.txt" ||
    fail "nothing says that there was no time: $(cat "$folder/short.txt")"
python3 - "$folder/short.json" <<'END' || fail "the figures of a short run are not those of a short run"
import json, sys

report = json.load(open(sys.argv[1]))
assert report["planned_epochs"] == 50
epochs = {len(run["epochs"]) for run in report["runs"]}
assert len(epochs) == 1 and 3 <= epochs.pop() < 50, epochs
assert not [claim for claim in report["claims"] if claim["verdict"] == "FAILS"], report["claims"]
END
"$job" --epochs 0 >/dev/null 2>&1
[ $? -eq 2 ] || fail "no epochs are not refused"
"$job" --data "$folder/nowhere" >/dev/null 2>"$folder/errors.txt"
[ $? -eq 2 ] && grep -q nowhere "$folder/errors.txt" || fail "a missing folder is not named"
"$job" --plot "$folder/chart.txt" >/dev/null 2>"$folder/errors.txt"
[ $? -eq 2 ] && grep -q 'png or .svg' "$folder/errors.txt" || fail "a chart of unknown ending is not refused"
(PATH= "$job" --plot "$folder/chart.png") >/dev/null 2>"$folder/errors.txt"
[ $? -eq 2 ] && grep -q 'needs gnuplot' "$folder/errors.txt" || fail "a missing gnuplot is not named"
"$job" --help | grep -q -- --scenario || fail "--help does not help"
"$job" --device cuda --epochs 1 --samples 320 --scenario plain --gc on >"$folder/cuda.txt" 2>&1 ||
    fail "--device cuda: $(cat "$folder/cuda.txt")"

if command -v gnuplot >/dev/null; then
    for ending in png svg; do
        "$job" --epochs 1 --samples 320 --scenario callbacks --plot "$folder/chart.$ending" >/dev/null ||
            fail "no chart.$ending"
        [ "$(wc -c <"$folder/chart.$ending")" -gt 5000 ] || fail "chart.$ending is empty"
    done
else
    echo "SKIPPED: gnuplot is not installed, no chart drawn"
fi

[ "$failures" -eq 0 ] && echo "passed"
exit "$failures"
