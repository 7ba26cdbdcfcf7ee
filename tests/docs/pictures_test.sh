#!/usr/bin/env bash
# The committed pictures are those that docs/pictures.py draws of the build as it is, and each stands in its page.
set -u
cd "$TEST_SRCDIR/$TEST_WORKSPACE" || exit 1
mkdir -p "$TEST_TMPDIR/drawn"
python3 docs/pictures.py docs/dependencies lib/base/seam.h "$TEST_TMPDIR/drawn" || exit 1
failures=0
for name in architecture collector; do
    if ! cmp "docs/$name.svg" "$TEST_TMPDIR/drawn/$name.svg"; then
        echo "docs/$name.svg is not what docs/pictures.py draws; ./bazelw run //docs:pictures draws it anew"
        failures=$((failures + 1))
    fi
    if ! grep -q "($name.svg)" "docs/$name.md"; then
        echo "docs/$name.md does not show $name.svg"
        failures=$((failures + 1))
    fi
    python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "docs/$name.svg" || failures=$((failures + 1))
done

# A dependency that comes or goes changes the picture, and a library that nobody placed is an error.
changed=$TEST_TMPDIR/changed
grep -v '"//lib/nn:nn" -> "//lib/io:io"' docs/dependencies >"$changed"
python3 docs/pictures.py "$changed" lib/base/seam.h "$TEST_TMPDIR/drawn" || failures=$((failures + 1))
if cmp -s docs/architecture.svg "$TEST_TMPDIR/drawn/architecture.svg"; then
    echo "a dependency that is gone was not noticed"
    failures=$((failures + 1))
fi
sed 's,//lib/nn:nn,//lib/unknown:unknown,' docs/dependencies >"$changed"
if python3 docs/pictures.py "$changed" lib/base/seam.h "$TEST_TMPDIR/drawn" 2>/dev/null; then
    echo "a library without a place was drawn"
    failures=$((failures + 1))
fi
[ "$failures" -eq 0 ]
