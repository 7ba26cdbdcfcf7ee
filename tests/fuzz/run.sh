#!/usr/bin/env bash
# Looks for hours: one harness for libFuzzer on one core, beside whatever else the machine does.
#
#   tests/fuzz/run.sh HARNESS [SECONDS [FOLDER]]
#
# HARNESS: program, threads, csv, dlpack, gguf, gzip, idx, jpeg, json, npy, npz, png, safetensors, safetensors_index, state. SECONDS: 3600. FOLDER (fuzz-HARNESS) keeps what was found, so that the next run
# goes on from there: inputs/ that reached something new, crashes/ with each input that stopped the harness and the same as text
# beside it. The text belongs into corpus/ with the fix. Wants clang 14 and libclang-rt-14-dev.
set -eu
harness=${1:?which harness? program, threads, csv, dlpack, gguf, gzip, idx, jpeg, json, npy, npz, png, safetensors, safetensors_index or state}
seconds=${2:-3600}
folder=$(realpath -m "${3:-fuzz-$harness}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
config=fuzz
corpus=$harness
if [ "$harness" = threads ]; then
    config=fuzz_threads
    corpus=program
fi

# A race stops the harness, so that libFuzzer keeps the input.
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1}
mkdir -p "$folder/inputs" "$folder/crashes" "$folder/seeds"
./bazelw build --config="$config" "//tests/fuzz:${harness}_fuzzer" "//tests/fuzz:${harness}_corpus"
# Copied, because the next build takes them away.
cp -f "bazel-bin/tests/fuzz/${harness}_fuzzer" "bazel-bin/tests/fuzz/${harness}_corpus" "$folder/"
"$folder/${harness}_corpus" --pack "$folder/seeds" tests/fuzz/corpus/"$corpus"/*.txt

nice -n 19 "$folder/${harness}_fuzzer" -fork=1 -ignore_crashes=1 -ignore_ooms=1 -ignore_timeouts=1 \
    -max_total_time="$seconds" -max_len=2000 -timeout=120 -rss_limit_mb=4096 -artifact_prefix="$folder/crashes/" \
    "$folder/inputs" "$folder/seeds" 2>"$folder/log" || true
tail -n 3 "$folder/log"

found=0
for input in "$folder"/crashes/*; do
    [ -e "$input" ] && [ "${input%.txt}" = "$input" ] || continue
    "$folder/${harness}_corpus" --show "$input" >"$input.txt"
    found=$((found + 1))
done
echo "$found inputs stop $harness; they are in $folder/crashes"
[ "$found" -eq 0 ]
