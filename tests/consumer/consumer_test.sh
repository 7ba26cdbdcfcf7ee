#!/usr/bin/env bash
# Builds and runs the workspace beside this file, which depends on @ndarc as a user's would, with a Bazel of its own.
# The sources are those of the real tree, reached through the link in the runfiles, because Bazel hands no test a whole
# workspace. The nested Bazel keeps its output below that of the outer one, so that a second run is quick.
set -eu
here=$(dirname "$(readlink -f "$TEST_SRCDIR/$TEST_WORKSPACE/tests/consumer/consumer_test.sh")")
output=${TEST_TMPDIR%%/execroot/*}/consumer
[ "$output" != "$TEST_TMPDIR/consumer" ] || output=$TEST_TMPDIR/output
mkdir -p "$output"
export HOME=$output USER=${USER:-consumer}
unset RUNFILES_DIR RUNFILES_MANIFEST_FILE RUNFILES_MANIFEST_ONLY

# nested_bazel COMMAND ARGS...: in the workspace that is the current folder.
nested_bazel() {
    ND_NO_INSTALL=1 "$here/../../bazelw" --batch --output_user_root="$output/root" --output_base="$output/base" "$@"
}

# consumer_bazel COMMAND ARGS...: the same for commands that build.
consumer_bazel() {
    local command=$1
    shift
    nested_bazel "$command" ${ND_DISK_CACHE:+"--disk_cache=$ND_DISK_CACHE"} --symlink_prefix=/ --noshow_progress "$@"
}

cd "$here/workspace"
# nvcc takes minutes, and nothing here depends on what it makes; that the default is understood is asked below.
for program in descend descend_shared; do
    consumer_bazel run --@ndarc//bazel:cuda=off --ui_event_filters=-info "//:$program" | tee "$TEST_TMPDIR/said"
    printf 'w = 3.000, no error\nleft: 0 objects\n' | diff - "$TEST_TMPDIR/said"
done

# Named itself, the shared library is built and not only found.
consumer_bazel build --@ndarc//bazel:cuda=off --show_result=9 @ndarc//:nd_shared 2>&1 | tee "$TEST_TMPDIR/said"
grep -q 'external/ndarc/libnd\.so\.0' "$TEST_TMPDIR/said"

# The defaults, and what the documents say of flags and sanitizers, are understood. None of these compiles anything.
grep -vE '^ *(#|$)' .bazelrc | while read -r line; do
    grep -qF -- "$line" "$here/../../docs/bazel.md" || { echo "docs/bazel.md does not show: $line"; exit 1; }
done
consumer_bazel build --nobuild //...
consumer_bazel build --nobuild --config=asan //...
consumer_bazel build --nobuild --@ndarc//bazel:track_sites=on --@ndarc//bazel:threads=off //...

# Another name for the repository, and a WORKSPACE that brings its own rules.
mkdir -p "$output/renamed"
cd "$output/renamed"
for file in BUILD.bazel WORKSPACE descend.c; do
    sed "s|@ndarc|@tensors|; s|name = \"ndarc\"|name = \"tensors\"|; s|\"../../..\"|\"$here/../..\"|" \
        "$here/workspace/$file" >"$file"
done
mkdir -p own && touch own/WORKSPACE own/BUILD.bazel
cp -r "$here/../../bazel/stubs/rules_cc/cc" own/
echo 'OWN = "own"' >own/cc/own.bzl
touch own/cc/BUILD.bazel
sed -i "s|^load(\"@tensors|local_repository(name = \"rules_cc\", path = \"own\")\n&|" WORKSPACE
sed -i '1i load("@rules_cc//cc:own.bzl", "OWN")' BUILD.bazel
consumer_bazel build --nobuild --@tensors//bazel:blas=portable //...

# What only ndarc's own tests need is no dependency of a consumer's.
nested_bazel query --noshow_progress 'deps(//...)' >"$TEST_TMPDIR/dependencies"
grep -q '^@tensors//lib/core:core$' "$TEST_TMPDIR/dependencies"
if grep -E '@local_(cmocka|libtorch|nim|openmp)' "$TEST_TMPDIR/dependencies"; then
    exit 1
fi
