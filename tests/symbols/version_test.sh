#!/usr/bin/env bash
# One version everywhere: the headers', the library's, its SONAME, MODULE.bazel's, and the newest of CHANGELOG.md.
set -u
root=$TEST_SRCDIR/$TEST_WORKSPACE
failures=0

# same WHAT A B: both are the same text.
same() {
    [ "$2" = "$3" ] && return
    echo "$1: '$2' and '$3'"
    failures=$((failures + 1))
}

cat >"$TEST_TMPDIR/version.c" <<'END'
#include <nd/version.h>
#include <stdio.h>

#define THIS(minor, patch) ND_VERSION_MAJOR, ND_VERSION_MINOR + minor, ND_VERSION_PATCH + patch
#define AT_LEAST(...) ND_VERSION_AT_LEAST(__VA_ARGS__)
#if !ND_VERSION_AT_LEAST(0, 0, 999) || !AT_LEAST(THIS(0, 0)) || AT_LEAST(THIS(0, 1)) || AT_LEAST(THIS(1, 0)) || \
    ND_VERSION_AT_LEAST(ND_VERSION_MAJOR + 1, 0, 0)
#error ND_VERSION_AT_LEAST
#endif

int main(void) {
    printf("%d.%d.%d %s %s %d\n", ND_VERSION_MAJOR, ND_VERSION_MINOR, ND_VERSION_PATCH, ND_VERSION_STRING, nd_version(),
           nd_version_number() == ND_VERSION_NUMBER);
    return 0;
}
END
cc -Wall -Wextra -Werror "-I$root/include" "$TEST_TMPDIR/version.c" -o "$TEST_TMPDIR/version" "$root/libnd.so" \
    "-Wl,-rpath,$root" || exit 1
read -r numbers text running same_number < <("$TEST_TMPDIR/version")
same "numbers and text" "$numbers" "$text"
same "headers and library" "$text" "$running"
same "nd_version_number()" "$same_number" 1
same "MODULE.bazel" "$(sed -nE 's/^.*version = "([^"]*)".*/\1/p' "$root/MODULE.bazel" | head -n 1)" "$text"
same "CHANGELOG.md" "$(sed -nE 's/^## ([0-9.]+).*/\1/p' "$root/CHANGELOG.md" | head -n 1)" "$text"
same "SONAME" "$(readelf -d "$root/libnd.so" | sed -nE 's/.*SONAME.*\[(.*)\]/\1/p')" "libnd.so.${text%%.*}"
[ "$failures" -eq 0 ]
