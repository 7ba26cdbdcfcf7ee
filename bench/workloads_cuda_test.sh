#!/usr/bin/env bash
# Workloads on CUDA devices without a GPU, a few steps each, off and on: nothing is left, every step has the same bits on both
# sides, and what leaks is freed by one collection. PyTorch's side is told of the device, and what it says of the device's memory is
# shown. Those whose steps take the emulated device seconds: workloads_small_cuda_test.sh.
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
    assert ("peak_device_bytes" in on) == (name != "objects"), (name, sorted(on))
    assert (off["side"], on["side"]) == ("off", "on"), name
    for side in (off, on):
        assert side["steps"] == 3, (name, side["side"])
        assert side["remaining_objects"] == 0 and side["remaining_bytes"] == 0, (name, side["side"])
END

# A Python that does no work, and says what it was told.
mkdir -p "$folder/rivals/bin"
cat >"$folder/rivals/bin/python" <<'END'
#!/usr/bin/env python3
import json, sys

print(json.dumps({"library": " ".join(sys.argv[8:])}), flush=True)
for line in sys.stdin:
    if int(line) == 0:
        print(json.dumps({"resident": 1, "device": 3 << 20}), flush=True)
        break
    print(json.dumps({"seconds": 0.1, "value": 1, "resident": 1}), flush=True)
END
chmod +x "$folder/rivals/bin/python"
ND_RIVALS=$folder/rivals TMPDIR=$folder "$workloads" --device cuda --gc on --threads 2 --seconds 100000 --steps 1 --only rnn_gru \
    --json "$folder/beside.json" >"$folder/table.txt"
# Its values are not ours, and that claim fails.
[ $? -eq 1 ] && grep -q 'PyTorch .* 3.0 MiB ' "$folder/table.txt" || { cat "$folder/table.txt"; exit 1; }
python3 - "$folder/beside.json" <<'END'
import json, sys

rival = json.load(open(sys.argv[1]))["workloads"][0]["sides"][-1]
assert rival["library"] == "cuda" and rival["peak_device_bytes"] == 3 << 20, rival
END
