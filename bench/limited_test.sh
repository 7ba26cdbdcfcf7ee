#!/usr/bin/env bash
# The leaking workload in 60 % of its memory, in small: off fails and says why, on completes with the same result.
set -u
limited=$(realpath "$1")
folder=${TEST_TMPDIR:-$(mktemp -d)}
"$limited" --steps 60 --threads 1 --json "$folder/limited.json" || exit 1
python3 - "$folder/limited.json" <<'END'
import json, sys

report = json.load(open(sys.argv[1]))
assert report["bench"] == "limited" and report["workload"] == "wgan_gp"
runs = {run["run"]: run for run in report["runs"]}
leaking, off, on, pressure = (runs[name] for name in ("off", "off, 60 %", "on, 60 %", "pressure, 20 %"))
assert off["limit_bytes"] == on["limit_bytes"] == int(0.6 * leaking["peak_address_bytes"])
assert off["status"] == "ND_ERROR_OUT_OF_MEMORY" and off["steps"] < 60, off
for words in ("largest holders: ", "workloads/wgan_gp.c:", "tried: caches trimmed", "but the collector is off"):
    assert words in off["message"], off["message"]
quota_off, quota_on = runs["off, quota 50 %"], runs["on, quota 50 %"]
assert quota_off["quota_bytes"] == quota_on["quota_bytes"] == leaking["peak_bytes"] // 2
assert quota_off["status"] == "ND_ERROR_QUOTA" and quota_off["steps"] < 60, quota_off
for words in ("largest holders: ", "workloads/wgan_gp.c:", "tried: nothing, as the collector is off"):
    assert words in quota_off["message"], quota_off["message"]
for run in (leaking, on, quota_on, pressure):
    assert run["status"] == "ND_OK" and run["steps"] == 60, run
assert on["peak_bytes"] < leaking["peak_bytes"] / 10 and quota_on["peak_bytes"] <= quota_on["quota_bytes"]
assert pressure["walks"] > 0
assert all(run["remaining_objects"] == 0 for run in runs.values())
assert all(claim["verdict"] == "HOLDS" for claim in report["claims"]), report["claims"]
print("passed")
END
