#!/usr/bin/env bash
# The public headers are documented without a warning. Those of the core say all of it: every parameter and result, and under
# "Errors" and "Threads" how a call can fail and who else may be at work meanwhile.
set -u
root=$TEST_SRCDIR/$TEST_WORKSPACE
strict=(base version error object map manager scope gc debug)
failures=0

if ! command -v doxygen >/dev/null; then
    echo "SKIPPED: no doxygen"
    exit 0
fi
cd "$root" || exit 1

# document SETTING...: Doxygen with the repository's settings and these; fails, and says why, when anything is missing.
document() {
    {
        cat docs/Doxyfile
        printf '%s\n' "OUTPUT_DIRECTORY = $TEST_TMPDIR" "$@"
    } | doxygen - 2>&1
}

# refuses NAME SETTING...: the same must fail.
refuses() {
    local name=$1
    shift
    document "$@" >/dev/null || return
    echo "$name was not noticed"
    failures=$((failures + 1))
}

document || failures=$((failures + 1))
document "INPUT = $(printf 'include/nd/%s.h ' "${strict[@]}")" "WARN_NO_PARAMDOC = YES" || failures=$((failures + 1))

# What C cannot say: a function without one of the two paragraphs.
lacking() {
    python3 - "$@" <<'END'
import re, sys
for path in sys.argv[1:]:
    text = open(path).read()
    for comment, name in re.findall(r"((?:^///.*\n)*)^(?:ND_API|static inline) [^;{]*?\b(nd_[a-z0-9]\w*)\(", text, re.M):
        for paragraph in ("@errors ", "@threads "):
            if paragraph not in comment:
                print("%s: %s has no %s" % (path, name, paragraph))
END
}
missing=$(lacking $(printf 'include/nd/%s.h ' "${strict[@]}"))
if [ -n "$missing" ]; then
    echo "$missing"
    failures=$((failures + 1))
fi

# The checks notice what they are there for.
bad=$TEST_TMPDIR/bad.h
mkdir -p "$TEST_TMPDIR"
cat >"$bad" <<'END'
/// @file
/// A header.
int nd_undocumented(int x);
END
refuses "an undocumented function" "INPUT = $bad"
cat >"$bad" <<'END'
/// @file
/// A header.

/// Does something.
///
/// @return a number
ND_API int nd_half(int x);
END
refuses "an undocumented parameter" "INPUT = $bad" "WARN_NO_PARAMDOC = YES"
if [ "$(lacking "$bad" | wc -l)" -ne 2 ]; then
    echo "missing paragraphs were not noticed"
    failures=$((failures + 1))
fi
[ "$failures" -eq 0 ]
