#!/usr/bin/env bash
# libnd.so shows what the public headers declare: every symbol starts with nd_, none with nd__ unless a public header
# names it (macros call those), and each declared function is there. Of the device of the tests neither says a word.
set -u
root=$TEST_SRCDIR/$TEST_WORKSPACE
exported=$(nm --dynamic --defined-only --extern-only "$root/libnd.so" | awk '{ print $NF }' | sed 's/@.*//' | sort -u)
functions=$(grep -RhoE '^ND_API [^;{]*\(' "$root/include/nd" | grep -oE 'nd_[a-z0-9_]+ *\(' | tr -d ' (')
variables=$(grep -RhE '^extern ND_API [^(]*;' "$root/include/nd" | grep -oE 'nd_[a-z0-9_]+ *;' | tr -d ' ;')
declared=$(sort -u <<<"$functions"$'\n'"$variables")
[ -n "$functions" ] || { echo "No declarations found."; exit 1; }

failures=0
fail() {
    echo "$1"
    sed 's/^/    /' <<<"$2"
    failures=$((failures + 1))
}

[ -n "$exported" ] || fail "libnd.so exports nothing." ""
foreign=$(grep -v '^nd_' <<<"$exported")
[ -z "$foreign" ] || fail "Exported, and not called nd_...:" "$foreign"
internal=$(comm -23 <(grep '^nd__' <<<"$exported") <(echo "$declared"))
[ -z "$internal" ] || fail "Exported, but internal:" "$internal"
missing=$(comm -13 <(echo "$exported") <(echo "$declared"))
[ -z "$missing" ] || fail "Declared in a public header, and not in libnd.so:" "$missing"
# Where one of its thread-local variables needs static thread storage all do, of which dlopen() has some 1.5 KiB for all libraries.
bytes=$(($(readelf -lW "$root/libnd.so" | awk '$1 == "TLS" { print $6 }')))
[ "$bytes" -gt 0 ] || fail "No thread-local variables." ""
[ "$bytes" -le 512 ] || ! readelf -dW "$root/libnd.so" | grep -q STATIC_TLS ||
    fail "Static thread-local variables of $bytes bytes, not of at most 512." ""
# said WORD: where the library and the public headers have that word, in names or text.
said() {
    { nm --dynamic "$root/libnd.so"; nm --debug-syms "$root/libnd.so" 2>/dev/null; strings "$root/libnd.so"; } |
        grep -E "(^|[^a-z])$1([^a-z]|\$)"
    grep -Ri "$1" "$root/include/nd"
}
[ -n "$(said cuda)" ] || fail "The search for words finds none." ""
tests_device=$(said fake)
[ -z "$tests_device" ] || fail "Of the tests' device:" "$(head -n 20 <<<"$tests_device")"
echo "$(grep -c . <<<"$exported") symbols exported, $(grep -c . <<<"$declared") declared, $failures failures"
[ "$failures" -eq 0 ]
