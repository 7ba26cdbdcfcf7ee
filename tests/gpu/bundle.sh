#!/bin/sh
# Puts the GPU tests and the libraries they need into a folder, for a machine with a GPU and without
# Bazel:
#
#   ./bazelw build //tests/gpu:all && tests/gpu/bundle.sh FOLDER
#
# There: FOLDER/run.sh, which fails when there is no GPU. The C library comes from that machine, so it
# must not be older than this one's.
set -eu
folder=${1:?usage: bundle.sh FOLDER}
binaries=$(dirname "$0")/../../bazel-bin/tests/gpu
mkdir -p "$folder"
for test in operations_test device_test; do
    cp -f "$binaries/$test" "$folder/"
    ldd "$binaries/$test" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' |
        grep -v -E '/(libc|libm|libdl|librt|libpthread)\.so' | xargs -I{} cp -Lf {} "$folder/"
done
cat >"$folder/run.sh" <<'RUN'
#!/bin/sh
cd "$(dirname "$0")"
export LD_LIBRARY_PATH="$PWD${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" ND_REQUIRE_GPU=1
status=0
for test in ./*_test; do
    echo "== $test"
    "$test" || status=1
done
exit $status
RUN
chmod +x "$folder/run.sh"
echo "$folder: $(du -sh "$folder" | cut -f1)"
