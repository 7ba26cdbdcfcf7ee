#!/usr/bin/env bash
# //bench:gpu says that there is no device, or has every figure on the runtime without a GPU (--//bazel:cuda=fake, as .ci/run cuda
# has it).
set -u
bench=$(realpath "$1")
export ND_CUBLAS=$(realpath "$2")
folder=${TEST_TMPDIR:-$(mktemp -d)}

"$bench" --json "$folder/result.json" >"$folder/table" || { cat "$folder/table"; exit 1; }
cat "$folder/table"
if grep -q '^SKIPPED: no CUDA device$' "$folder/table"; then
    [ ! -e "$folder/result.json" ] || { echo "figures without a device"; exit 1; }
    exit 0
fi
python3 - "$folder/result.json" "$(grep -c 'the figures mean nothing' "$folder/table")" <<'END'
import json, sys

report = json.load(open(sys.argv[1]))
metrics = report["metrics"]
assert report["bench"] == "gpu" and report["machine"]["gpus"] > 0, report
for name in """gbps_add gbps_exp gbps_transpose gbps_sum gbps_sum_rows gbps_sum_columns gbps_softmax gbps_layer_norm tflops_f32_4096
        tflops_bf16_4096 tflops_f16_4096 ns_take_1k ns_take_64m ns_release_in_flight us_mlp_128 us_cnn_128 us_gpt us_captured_mlp_128 us_captured_cnn_128 us_captured_gpt""".split():
    assert metrics["TG_" + name] > 0, name
for name in ("gbps_add", "tflops_f32_4096"):
    assert metrics["TG_rival_direct_" + name] > 0, name
assert int(sys.argv[2]) == 1 or "TG_rival_direct_tflops_bf16_4096" in metrics, "a GPU without cuBLAS"
END
