#!/usr/bin/env bash
# The harness in small: a few steps of every workload, off, on and by every strategy. Checks the shape of the JSON file, that
# nothing is left, that what leaks grows and what is collected does not, and that wrong options are told apart from failed
# claims. In PyTorch's place stands a program that answers with our values, or with others.
set -u
workloads=$(realpath "$1")
gc_on_off=$(realpath "$2")
folder=${TEST_TMPDIR:-$(mktemp -d)}
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# A second could be over before four rounds are done; the time is no part of this test.
run() {
    "$workloads" --no-peer --threads 1 --seconds 100000 "$@"
}

run --steps 6 --output "$folder/made" --json "$folder/result.json" >"$folder/table.txt" 2>"$folder/errors.txt" ||
    fail "the harness ended with an error: $(cat "$folder/table.txt" "$folder/errors.txt")"
cat "$folder/table.txt"
[ -s "$folder/errors.txt" ] && fail "something on standard error without a terminal: $(cat "$folder/errors.txt")"
python3 - "$folder/result.json" "$folder/made" <<'END' || fail "the figures do not show what they should"
import json, os, sys

report = json.load(open(sys.argv[1]))
assert report["bench"] == "workloads" and report["threads"] == 1
assert report["machine"]["cores"] >= 1 and report["machine"]["cpu"]
metrics = report["metrics"]
assert all(type(value) in (int, float) for value in metrics.values()), metrics
for key in ("cnn_on_steps_per_second", "wgan_gp_on_over_off", "serve_on_p50_us", "serve_off_p99_us", "serve_on_p999_us", "serve_on_score"):
    assert metrics[key] > 0, key
assert metrics["serve_on_p50_us"] <= metrics["serve_on_p99_us"] <= metrics["serve_on_p999_us"], metrics
workloads = {workload["workload"]: workload for workload in report["workloads"]}
for name in ("cnn", "wgan_gp", "rnn_lstm", "rnn_gru", "rnn_attached", "transformer", "minilm"):
    assert name in workloads, (name, sorted(workloads))
for name, workload in workloads.items():
    assert workload["planned_steps"] == 6 and not workload["out_of_time"], name
    assert workload["on_over_off"] > 0, name
    assert [side["side"] for side in workload["sides"]] == ["off", "on"], name
    for side in workload["sides"]:
        assert side["steps"] == 6 and len(side["turns"]) == 6, (name, side["side"])
        assert side["remaining_objects"] == 0 and side["remaining_bytes"] == 0, (name, side["side"])
        assert side["steps_per_second"] > 0 and side["peak_bytes"] > 0 and side["peak_resident_bytes"] > 0, name
        for key in ("collected_objects", "collected_bytes", "cycles", "gate_closed_us_max", "longest_step_ms"):
            assert side[key] >= 0, (name, key)
        for turn in side["turns"]:
            assert turn["seconds"] > 0 and turn["live_bytes"] > 0 and turn["resident_bytes"] > 0, (name, turn)


def live(name, gc):
    (side,) = [side for side in workloads[name]["sides"] if side["side"] == gc]
    return [turn["live_bytes"] for turn in side["turns"]], side


growing, off = live("wgan_gp", "off")
assert all(after > before for before, after in zip(growing, growing[1:])), growing
assert off["grows_bytes_per_step"] > 1e6 and off["collected_objects"] == 0
assert off["left_bytes"] > 0 and off["left_bytes"] == off["freed_by_collection_bytes"]
flat, on = live("wgan_gp", "on")
assert len(set(flat[1:])) == 1 and on["collected_objects"] > 0 and on["left_objects"] == 0, flat
for gc in ("off", "on"):
    kept, side = live("rnn_attached", gc)
    assert all(after > before for before, after in zip(kept, kept[1:])), kept
    assert "workloads/rnn.c:" in side["escaped_sites"][0], side["escaped_sites"]
model = live("minilm", "on")[1]["made"]
assert model.startswith("96 sentences, on the CPU, by the model in /") or "a small random one" in model, model
assert not [claim for claim in report["claims"] if claim["verdict"] == "FAILS"], report["claims"]
assert [claim for claim in report["claims"] if claim["verdict"] == "HOLDS"]
with open(os.path.join(sys.argv[2], "wgan_gp.png"), "rb") as sheet:
    assert sheet.read(8) == b"\x89PNG\r\n\x1a\n"
END

# A Python that does no work: it answers with the first values of the run above, the second of them times $STAND_IN.
mkdir -p "$folder/rivals/bin" "$folder/handed"
cat >"$folder/rivals/bin/python" <<'END'
#!/usr/bin/env python3
import json, os, sys

name, folder, factor = sys.argv[2], sys.argv[7], float(os.environ["STAND_IN"])
assert sys.argv[8:] == ["cpu"], sys.argv
(workload,) = [x for x in json.load(open(os.environ["STAND_IN_FIGURES"]))["workloads"] if x["workload"] == name]
side, done = workload["sides"][-1], 0
values = [value * factor if i == 1 else value for i, value in enumerate(side["first_values"])]
print(json.dumps({"library": " ".join(sorted(os.listdir(folder)))}), flush=True)
for line in sys.stdin:
    count = int(line)
    if count == 0:
        print(json.dumps({"score": side["score"], "resident": 1}), flush=True)
        break
    first = {"value_%d" % i: values[i] for i in range(done, done + count)}
    print(json.dumps({"seconds": 0.1, "value": values[done], "resident": 1, **first}), flush=True)
    done += count
END
chmod +x "$folder/rivals/bin/python"
beside() { # FACTOR NAMES...
    ND_RIVALS=$folder/rivals TMPDIR=$folder/handed STAND_IN=$1 STAND_IN_FIGURES=$folder/result.json \
        "$workloads" --threads 1 --seconds 100000 --steps 6 --gc on --json "$folder/beside.json" --only "${@:2}" >"$folder/table.txt" 2>&1
}
beside 1 cnn wgan_gp rnn_lstm rnn_gru transformer large_images minilm || fail "beside the same values: $(cat "$folder/table.txt")"
python3 - "$folder/beside.json" <<'END' || fail "what is handed over is not what it should be"
import json, sys

report = json.load(open(sys.argv[1]))
files = {x["workload"]: x["sides"][-1]["library"].replace(".safetensors", "").split() for x in report["workloads"]}
assert files.pop("wgan_gp") == ["critic", "drawn", "generator"], files
assert files.pop("minilm") == ["model", "tokens"], files
for name in ("rnn_lstm", "rnn_gru"):
    assert files.pop(name) == ["model"], files
assert len(files) == 3 and all(x == ["drawn", "model"] for x in files.values()), files
assert report["metrics"]["cnn_rival_pytorch_steps_per_second"] > 0 and report["metrics"]["cnn_on_over_pytorch"] > 0, report["metrics"]
claims = [x for x in report["claims"] if "the same parameters and data" in x["claim"]]
assert len(claims) == 7 and all(x["verdict"] == "HOLDS" for x in claims), claims
END
[ -z "$(ls -A "$folder/handed")" ] || fail "what was handed over is not removed: $(ls "$folder/handed")"
beside 1.05 cnn wgan_gp rnn_lstm rnn_gru transformer large_images minilm
[ $? -eq 1 ] || fail "other values do not fail: $(cat "$folder/table.txt")"
[ "$(grep -c 'FAILS.*the same parameters and data' "$folder/table.txt")" -eq 7 ] || fail "not all fail: $(cat "$folder/table.txt")"
# What PyTorch does not do has that said.
beside 1 rnn_attached objects long || fail "without a PyTorch side: $(cat "$folder/table.txt")"
[ "$(grep -cx '  SKIPPED: no PyTorch side' "$folder/table.txt")" -eq 3 ] || fail "no PyTorch side, and nothing says so: $(cat "$folder/table.txt")"
[ "$(grep -c '"peer_skipped": "no PyTorch side"' "$folder/beside.json")" -eq 3 ] || fail "likewise in JSON: $(cat "$folder/beside.json")"
beside none rnn_gru
[ $? -eq 1 ] && grep -q "FAILS .*PyTorch's side begins" "$folder/table.txt" || fail "a script that fails does not: $(cat "$folder/table.txt")"
ND_RIVALS=$folder/rivals TMPDIR=$folder/nowhere "$workloads" --only rnn_gru --steps 1 >/dev/null 2>"$folder/errors.txt"
[ $? -eq 2 ] && grep -q "no folder .*nowhere" "$folder/errors.txt" || fail "no folder to hand over in: $(cat "$folder/errors.txt")"

run --steps 4 --only wgan_gp --strategy all --json "$folder/strategies.json" >"$folder/table.txt" 2>&1 ||
    fail "the strategies: $(cat "$folder/table.txt")"
python3 - "$folder/strategies.json" <<'END' || fail "the strategies' figures do not show what they should"
import json, sys

(workload,) = json.load(open(sys.argv[1]))["workloads"]
names = [side["strategy"] for side in workload["sides"]]
assert names == ["let_be", "periodic", "scope", "dispose", "bytes", "boundary", "adaptive", "pressure"], names
assert all(side["remaining_objects"] == 0 for side in workload["sides"])
END

# Where there is no time, it measures less and says so.
"$workloads" --no-peer --threads 1 --seconds 1 --steps 100000 --only rnn_gru >"$folder/short.txt" ||
    fail "without time it fails: $(cat "$folder/short.txt")"
grep -q 'stopped before all steps' "$folder/short.txt" || fail "nothing says that there was no time: $(cat "$folder/short.txt")"

"$gc_on_off" --scenario wgan_gp --epochs 1 --seconds 1 --json "$folder/scenario.json" >"$folder/table.txt" 2>&1 ||
    fail "a workload as a scenario: $(cat "$folder/table.txt")"
grep -q '"workload": "wgan_gp"' "$folder/scenario.json" || fail "a scenario's figures are not those of the workload"
"$gc_on_off" --scenario wgan_gp --batch 3 >/dev/null 2>&1
[ $? -eq 2 ] || fail "a batch size is not refused"

"$workloads" --only nothing >/dev/null 2>&1
[ $? -eq 2 ] || fail "an unknown workload is not refused"
"$workloads" --strategy nothing >/dev/null 2>&1
[ $? -eq 2 ] || fail "an unknown strategy is not refused"
"$workloads" --strategy all --gc off --only long --steps 1 >/dev/null 2>&1
[ $? -eq 2 ] || fail "all strategies, but off, are not refused"
"$workloads" --no-peer --only long --steps 1 >/dev/full 2>"$folder/errors.txt"
[ $? -eq 2 ] && grep -q 'could not be written' "$folder/errors.txt" || fail "a table that was not written is good"
"$workloads" --steps 0 >/dev/null 2>&1
[ $? -eq 2 ] || fail "no steps are not refused"
"$workloads" --no-peer --steps 1 --only cnn --data "$folder/nowhere" >/dev/null 2>"$folder/errors.txt"
[ $? -eq 2 ] && grep -q nowhere "$folder/errors.txt" || fail "a missing folder is not named: $(cat "$folder/errors.txt")"
# What a run that was not done says of a file: nothing. What was there stays, and what was not there is not made.
echo before >"$folder/kept.json"
for file in kept none; do
    "$workloads" --no-peer --steps 1 --only cnn --data "$folder/nowhere" --json "$folder/$file.json" >/dev/null 2>&1
done
[ "$(cat "$folder/kept.json")" = before ] || fail "a run that was not done has emptied the file of the one before"
[ ! -e "$folder/none.json" ] || fail "a run that was not done has left an empty file"
for file in "$folder/nowhere/x.json" "$folder" /dev/full; do
    "$workloads" --no-peer --steps 1 --only long --json "$file" >/dev/null 2>"$folder/errors.txt"
    [ $? -eq 2 ] && grep -qF "$file" "$folder/errors.txt" || fail "a file that cannot be written: $file: $(cat "$folder/errors.txt")"
done
# All 70,000 digits are in two pairs of files; here both are the repository's.
mkdir "$folder/digits"
for kind in images-idx3 labels-idx1; do
    for part in train t10k; do
        cp "data/mnist/t10k-$kind-ubyte.gz" "$folder/digits/$part-$kind-ubyte.gz"
    done
done
run --steps 2 --only cnn --data "$folder/digits" >"$folder/table.txt" 2>&1 || fail "--data: $(cat "$folder/table.txt")"
grep -q 'of 10000 digits it has not seen' "$folder/table.txt" || fail "--data is not looked at: $(cat "$folder/table.txt")"
(PATH= "$workloads" --plot "$folder/charts") >/dev/null 2>"$folder/errors.txt"
[ $? -eq 2 ] && grep -q 'needs gnuplot' "$folder/errors.txt" || fail "a missing gnuplot is not named"
"$workloads" --only cnn long --plot "$folder/both.png" >/dev/null 2>"$folder/errors.txt"
[ $? -eq 2 ] && grep -q 'chart of one workload' "$folder/errors.txt" || fail "two workloads in one chart"
"$workloads" --help | grep -q -- --strategy || fail "--help does not help"
"$workloads" --no-peer --device cuda --only cnn --steps 4 --threads 1 >"$folder/cuda.txt" 2>&1 ||
    fail "--device cuda: $(cat "$folder/cuda.txt")"

if command -v gnuplot >/dev/null; then
    run --steps 8 --only rnn_gru --plot "$folder/charts" >/dev/null || fail "no charts"
    [ "$(wc -c <"$folder/charts/rnn_gru.svg")" -gt 5000 ] || fail "the chart is empty"
    run --steps 8 --only rnn_gru --plot "$folder/rnn.png" >/dev/null || fail "no chart in a file"
    [ "$(head -c 4 "$folder/rnn.png" | tail -c 3)" = PNG ] || fail "the chart is no PNG"
else
    echo "SKIPPED: gnuplot is not installed, no chart drawn"
fi

[ "$failures" -eq 0 ] && echo "passed"
exit "$failures"
