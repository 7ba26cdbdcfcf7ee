#!/usr/bin/env bash
# A training's state is read by Python's safetensors package, value for value.
set -eu
. "$TEST_SRCDIR/$TEST_WORKSPACE/tests/reference/python.sh"
python=$(python_with safetensors.numpy) || { echo "SKIPPED: no Python with safetensors and numpy"; exit 0; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
TEST_TMPDIR=$folder "$TEST_SRCDIR/$TEST_WORKSPACE/tests/unit/nn/state_test" >/dev/null 2>&1
"$python" - "$folder" <<'END'
import math, sys
from safetensors.numpy import load_file
state = load_file(sys.argv[1] + "/whole.safetensors")
assert len(state) == 35, sorted(state)
assert state["model.0.weight"].shape == (8, 3) and state["model.0.weight"].dtype == "float32"
assert state["step"].tolist() == [7] and state["data.position"].tolist()[:4] == [1, 1, 1, 6]
assert state["optimizer.steps"].tolist() == [7] * 4 and state["model.1.calls"].tolist() == [7]
assert len(set(state["optimizer.slots"].tolist())) == 1 and state["optimizer.slots"][0] > 0
assert abs(state["average"][0]) > 0 and (state["optimizer.second_moment.3.bias"] >= 0).all()
many = load_file(sys.argv[1] + "/many.safetensors")
assert [many[f"n{i}"][0] for i in range(100)] == [math.inf if i == 50 else i / 3 for i in range(100)]
END
