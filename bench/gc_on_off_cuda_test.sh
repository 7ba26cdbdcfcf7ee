#!/usr/bin/env bash
# The main job in small on a CUDA device without a GPU: what leaks without the collector does not with it, in the device's memory,
# and nobody computes anything else. ND_SAMPLES=n takes n samples instead of 600, where each takes long.
set -u
job=$(realpath "$1")
export ND_CUBLAS=$(realpath "$2")
folder=${TEST_TMPDIR:-$(mktemp -d)}

"$job" --device cuda --epochs 3 --samples "${ND_SAMPLES:-600}" --seconds 100000 --json "$folder/result.json" || exit 1
python3 - "$folder/result.json" <<'END'
import json, sys

report = json.load(open(sys.argv[1]))
assert report["remaining_objects"] == 0 and report["remaining_bytes"] == 0
runs = {(run["scenario"], run["gc"]): run for run in report["runs"]}
scenarios = ["plain", "second_order", "callbacks", "escape"]
assert sorted(runs) == sorted((name, gc) for name in scenarios for gc in ("off", "on")), sorted(runs)
for key, run in runs.items():
    assert len(run["epochs"]) == 3, key


def live(name, gc):
    return [epoch["live_bytes"] for epoch in runs[name, gc]["epochs"]]


for name in ("second_order", "callbacks"):
    assert all(after > before for before, after in zip(live(name, "off"), live(name, "off")[1:])), live(name, "off")
    assert len(set(live(name, "on")[1:])) == 1, live(name, "on")
    assert runs[name, "off"]["left_bytes"] == runs[name, "off"]["freed_by_collection_bytes"] > 0, name
    assert min(epoch["collected_objects"] for epoch in runs[name, "on"]["epochs"]) > 0, name
for name in scenarios:
    assert runs[name, "on"]["left_objects"] == 0 and runs[name, "on"]["left_bytes"] == 0, name
    assert runs[name, "off"]["test_accuracy"] == runs[name, "on"]["test_accuracy"], name
assert not [claim for claim in report["claims"] if claim["verdict"] == "FAILS"], report["claims"]
END
