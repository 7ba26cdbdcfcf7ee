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

cd "$here/workspace"
for program in descend descend_shared; do
    ND_NO_INSTALL=1 ../../../bazelw --batch --output_user_root="$output/root" --output_base="$output/base" \
        run ${ND_DISK_CACHE:+"--disk_cache=$ND_DISK_CACHE"} --symlink_prefix=/ --noshow_progress --nosandbox_debug \
        --ui_event_filters=-info "//:$program" | tee "$TEST_TMPDIR/said"
    printf 'w = 3.000, no error\nleft: 0 objects\n' | diff - "$TEST_TMPDIR/said"
done
