#!/usr/bin/env bash
# The smallest leaking workload in 60 % of the memory that it takes of a CUDA device without a GPU, and in a fifth of it: off fails
# and says why, on completes with the same bits, and under pressure alone each stage of the ladder has its part.
set -u
limited=$(realpath "$1")
export ND_CUBLAS=$(realpath "$2")
folder=${TEST_TMPDIR:-$(mktemp -d)}

"$limited" --device cuda --only long --steps 100 --threads 1 --json "$folder/limited.json" || exit 1
python3 - "$folder/limited.json" <<'END'
import json, sys

report = json.load(open(sys.argv[1]))
(work,) = report["workloads"]
runs = {run["run"]: run for run in work["runs"]}
leaking, off, on, pressure = (runs[name] for name in ("off", "off, device 60 %", "on, device 60 %", "pressure, device 20 %"))
used = leaking["used_device_bytes"]
assert used > leaking["peak_bytes"] > 0, leaking  # data are rounded up
assert off["device_bytes"] == on["device_bytes"] == int(0.6 * used) and pressure["device_bytes"] == int(0.2 * used)
assert off["status"] == "ND_ERROR_OUT_OF_MEMORY" and 0 < off["steps"] < 100, off
for words in ("no memory on cuda:0", f"the limit is {off['device_bytes']}", "largest holders: ", "workloads/long.c:",
              "tried: finished frees taken back, caches trimmed", "device waited for", "but the collector is off"):
    assert words in off["message"], off["message"]
for run in (leaking, on, pressure):
    assert run["status"] == "ND_OK" and run["steps"] == 100, run
assert on["peak_bytes"] < leaking["peak_bytes"] / 4, on
for stage in ("retire_reached", "trim_reached", "collect_reached"):
    assert pressure[stage] > 0, (stage, pressure)
assert all(run["remaining_objects"] == 0 for run in runs.values())
verdicts = {claim["claim"]: claim["verdict"] for claim in report["claims"]}
assert all(verdict == "HOLDS" for verdict in verdicts.values()), verdicts
assert sum(", device " in claim for claim in verdicts) == 4, verdicts
END
