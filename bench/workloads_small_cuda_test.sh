#!/usr/bin/env bash
# The workloads with the largest models on CUDA devices without a GPU, a few steps each of an eighth of their batches and pictures, off
# and on: nothing is left, every step has the same bits on both sides, and what leaks is freed by one collection.
set -u
workloads=$(realpath "$1")
export ND_CUBLAS=$(realpath "$2")
folder=${TEST_TMPDIR:-$(mktemp -d)}
names=(cnn wgan_gp rnn_lstm rnn_attached transformer large_images serve)

"$workloads" --no-peer --device cuda --threads 2 --seconds 100000 --steps "${ND_STEPS:-2}" --only "${names[@]}" \
    --json "$folder/result.json" || exit 1
python3 - "$folder/result.json" "${names[@]}" <<'END'
import json, sys

report, names = json.load(open(sys.argv[1])), sys.argv[2:]
workloads = {workload["workload"]: workload for workload in report["workloads"]}
assert sorted(workloads) == sorted(names), sorted(workloads)
for name, workload in workloads.items():
    for side in workload["sides"]:
        assert side["peak_device_bytes"] > 0, (name, side["side"])
        assert side["remaining_objects"] == 0 and side["remaining_bytes"] == 0, (name, side["side"])
# Eight threads with one model: one request of the 250 asked for too much, and no other one noticed.
assert all(side["score"] > 0.9 and ", 1 refused" in side["made"] for side in workloads["serve"]["sides"]), workloads["serve"]
END
