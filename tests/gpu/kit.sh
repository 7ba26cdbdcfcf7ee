#!/usr/bin/env bash
# Packs all that runs on a machine with a GPU, nvcc and gcc, and neither Bazel nor a network:
#
#     tests/gpu/kit.sh FOLDER                 sources, a Makefile, run.sh; in FOLDER.tar.gz too
#     tests/gpu/kit.sh --prebuilt FOLDER      and the programs as they are built here, tried before the sources
#     tests/gpu/kit.sh --fake FOLDER          on the runtime without a GPU (tests/cudart), to try the kit itself
#
# There: FOLDER/run.sh (docs/cuda.md). Which sources and which flags is asked of Bazel, so this file names programs alone.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

setting=on prebuilt=
while [ $# -gt 1 ]; do
    case $1 in
    --fake) setting=fake ;;
    --prebuilt) prebuilt=1 ;;
    *) break ;;
    esac
    shift
done
[ $# -eq 1 ] || { echo "usage: $0 [--fake] [--prebuilt] FOLDER" >&2; exit 2; }
folder=$1
kit=tests/gpu/kit
# What needs no library that a bare machine lacks.
portable=(--//bazel:cuda=$setting --//bazel:blas=portable --//bazel:host_allocator=system)

# Of the behaviours all but what asks for libnd.so, and what is left to a person.
targets='(tests(//tests/gpu:operations_test + //tests/gpu:gradients_test + //tests/gpu:rows_test + //tests/gpu:joins_test + //tests/gpu:matmul_test + //tests/gpu:device_test + //tests/gpu:views_test + //tests/gpu:out_test + //tests/gpu:streams_test + //tests/gpu:training_graph_test)
    + (kind(cc_test, //tests/behaviour/...) except attr(tags, manual, //tests/behaviour/...) except //tests/behaviour:dead_shared)
    + //bench:gpu + //bench:gc_on_off + //bench:workloads)'
[ $setting = on ] || targets="($targets + //tests/cudart:libcublas.so)"

if [ $setting = on ] && [ ! -x "${CUDA_PATH:-/usr/local/cuda}/bin/nvcc" ]; then
    echo "$0: no nvcc in ${CUDA_PATH:-/usr/local/cuda}, so Bazel does not know how it is called (--fake needs none)" >&2
    exit 1
fi
rm -rf "$folder" && mkdir -p "$folder/kit"
./bazelw aquery "${portable[@]}" --output=jsonproto --include_artifacts "deps($targets)" >"$folder/actions" 2>"$folder/errors" ||
    { cat "$folder/errors" >&2; exit 1; }
python3 $kit/plan.py "$folder" $setting <"$folder/actions"
rm "$folder/actions" "$folder/errors"

# What the programs read.
./bazelw query "kind('source file', deps(labels(data, $targets), 2)) intersect //...:*" 2>/dev/null | sed 's,^//,,; s,^:,,; s,:,/,' |
    while read -r file; do
        [ -f "$file" ] || continue
        mkdir -p "$folder/$(dirname "$file")"
        cp "$file" "$folder/$file"
    done
mkdir -p "$folder/bench/peers"
cp bench/peers/*.py "$folder/bench/peers/"
cp $kit/cmocka.h "$folder/kit/"
cp $kit/run.sh "$folder/"
echo $setting >"$folder/setting"

if [ -n "$prebuilt" ]; then
    mapfile -t built < <(./bazelw query "$targets" 2>/dev/null)
    ./bazelw build "${portable[@]}" "${built[@]}"
    while read -r program; do
        mkdir -p "$folder/prebuilt/$(dirname "$program")"
        strip -o "$folder/prebuilt/$program" "bazel-bin/$program"
        ldd "bazel-bin/$program" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' |
            grep -v -E '/(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+)\.so' | xargs -I{} cp -Lf {} "$folder/prebuilt/" 
    done <"$folder/programs"
fi
tar -czf "$folder.tar.gz" -C "$(dirname "$folder")" "$(basename "$folder")"
echo "$folder.tar.gz: $(du -h "$folder.tar.gz" | cut -f1), unpacked $(du -sh "$folder" | cut -f1)"
