#!/usr/bin/env bash
# Workloads on CUDA devices without a GPU, a few steps each, off and on: nothing is left, every step has the same bits on both
# sides, and what leaks is freed by one collection. Those whose steps take the emulated device seconds are left to a person
# (docs/workloads.md).
set -u
workloads=$(realpath "$1")
export ND_CUBLAS=$(realpath "$2")
folder=${TEST_TMPDIR:-$(mktemp -d)}

"$workloads" --no-peer --device cuda --threads 2 --seconds 100000 --steps 3 --only rnn_gru pipeline objects minilm \
    --json "$folder/result.json" || exit 1
python3 - "$folder/result.json" <<'END'
import json, sys

report = json.load(open(sys.argv[1]))
workloads = {workload["workload"]: workload for workload in report["workloads"]}
assert sorted(workloads) == ["minilm", "objects", "pipeline", "rnn_gru"], sorted(workloads)
for name, workload in workloads.items():
    off, on = workload["sides"]
    assert (off["side"], on["side"]) == ("off", "on"), name
    for side in (off, on):
        assert side["steps"] == 3, (name, side["side"])
        assert side["remaining_objects"] == 0 and side["remaining_bytes"] == 0, (name, side["side"])
END
