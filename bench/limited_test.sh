#!/usr/bin/env bash
# Leaking workloads in 60 % of their memory, in small: off fails and says why, on completes with the same result.
set -u
limited=$(realpath "$1")
folder=${TEST_TMPDIR:-$(mktemp -d)}
"$limited" --only cnn >/dev/null 2>&1
[ $? -eq 2 ] || { echo "FAILED: work that leaves nothing behind is not refused"; exit 1; }
"$limited" --only wgan_gp cnn >/dev/null 2>&1
[ $? -eq 2 ] || { echo "FAILED: of two names one is not looked at"; exit 1; }
"$limited" --json "$folder/nowhere/x.json" >"$folder/table.txt" 2>&1
[ $? -eq 2 ] && ! grep -q 'address peak' "$folder/table.txt" || { echo "FAILED: it runs before it looks at the file"; exit 1; }
CUDA_VISIBLE_DEVICES= "$limited" --device cuda >"$folder/table.txt" || { echo "FAILED: no device is no answer"; exit 1; }
grep -qx 'no CUDA device' "$folder/table.txt" || { echo "FAILED: no device is not said"; exit 1; }
# Work that is smaller than the program: a part of both says nothing about it.
"$limited" --only long --steps 10 --threads 1 >"$folder/table.txt" 2>&1
for run in "off, 60 %" "on, 60 %" "pressure, 20 %"; do
    grep -q "NOT JUDGED  long, $run: .* do not hold one step" "$folder/table.txt" || { cat "$folder/table.txt"; exit 1; }
done
# What a thread of the workload's own was told is the error, too.
"$limited" --only serve --steps 20 --threads 1 >"$folder/table.txt" 2>&1
grep -q "HOLDS .*serve, off, quota 50 %: .*the error names holders" "$folder/table.txt" && ! grep -q 'no error' "$folder/table.txt" ||
    { echo "FAILED: the error of a thread is lost"; cat "$folder/table.txt"; exit 1; }
# So few steps leave less than its threads take; and requests that must be refused are no failure of the ladder.
for claim in "NOT JUDGED  serve, off, 60 %: .* do not hold one step" "NOT JUDGED  serve, on, 60 %: .* do not hold one step" \
    "HOLDS       serve, pressure, quota 20 %: cycles collected .* but those beyond their own quotas"; do
    grep -q "$claim" "$folder/table.txt" || { echo "FAILED: no $claim"; cat "$folder/table.txt"; exit 1; }
done
# Large data in few objects. A fifth of what so few steps take of address space does not hold one.
"$limited" --only large_images --steps 10 --threads 1 >"$folder/table.txt" 2>&1 || { cat "$folder/table.txt"; exit 1; }
for claim in "HOLDS .*large_images, off, 60 %: .*the error names holders and what was tried" \
    "HOLDS .*large_images, off, quota 50 %: .*the error names holders and what was tried" \
    "HOLDS .*large_images, pressure, quota 20 %: cycles collected when there is no room; no request fails" \
    "ND_ERROR_QUOTA: .*largest holders: .*workloads/large_images.c:.*tried: nothing, as the collector is off"; do
    grep -q "$claim" "$folder/table.txt" || { echo "FAILED: no $claim"; cat "$folder/table.txt"; exit 1; }
done
"$limited" --only wgan_gp --steps 60 --threads 1 --json "$folder/limited.json" || exit 1
python3 - "$folder/limited.json" <<'END'
import json, sys

report = json.load(open(sys.argv[1]))
assert report["bench"] == "limited" and [work["workload"] for work in report["workloads"]] == ["wgan_gp"]
metrics = report["metrics"]
assert all(type(value) in (int, float) for value in metrics.values()), metrics
assert metrics["wgan_gp_off_completed"] == metrics["wgan_gp_on_60_completed"] == 1, metrics
assert metrics["wgan_gp_off_60_completed"] == 0 and metrics["wgan_gp_pressure_quota_20_walks"] > 0, metrics
runs = {run["run"]: run for run in report["workloads"][0]["runs"]}
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
group_off, group_on = runs["off, group 60 %"], runs["on, group 60 %"]
assert group_off["group_bytes"] == group_on["group_bytes"] == int(0.6 * leaking["peak_resident_bytes"])
assert group_off["skipped"] == group_on["skipped"]
skipped = group_off["skipped"]
completed = [leaking, on, quota_on, pressure, runs["pressure, quota 20 %"]]
if skipped:
    print("SKIPPED: control groups:", skipped)
else:
    assert group_off["status"] != "ND_OK" and group_off["group_kills"] == 1 and 0 < group_off["steps"] < 60, group_off
    assert group_off["message"] == "ended by signal 9 (Killed)"
    assert group_on["group_kills"] == 0 and group_on["group_peak_bytes"] < group_on["group_bytes"], group_on
    completed.append(group_on)
for run in completed:
    assert run["status"] == "ND_OK" and run["steps"] == 60, run
assert on["peak_bytes"] < leaking["peak_bytes"] / 10 and quota_on["peak_bytes"] <= quota_on["quota_bytes"]
assert pressure["walks"] > 0 and pressure["trim_reached"] > 0 and pressure["collect_enough"] > 0, pressure
bounded = runs["pressure, quota 20 %"]
assert bounded["quota_bytes"] == leaking["peak_bytes"] // 5 >= bounded["peak_bytes"], bounded
assert bounded["walks"] > 0 and bounded["trim_reached"] == 0 and bounded["collect_enough"] > 0, bounded
assert pressure["retire_reached"] == bounded["retire_reached"] == 0  # the CPU has no queue
assert all(run["remaining_objects"] == 0 for run in runs.values())
for claim in report["claims"]:
    assert claim["verdict"] == "HOLDS" or (skipped and "NOT JUDGED" == claim["verdict"] and ", group 60 %: " in claim["claim"]), claim
print("passed")
END
