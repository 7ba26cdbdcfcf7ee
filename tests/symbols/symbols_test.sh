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
# No thread-local variable is found by a call. So all need static thread storage, of which dlopen() has some 1.5 KiB for all libraries.
dynamic=$(readelf -dW "$root/libnd.so")
calls=$(nm --dynamic "$root/libnd.so" | grep -w __tls_get_addr; readelf -rW "$root/libnd.so" | grep -E 'DTPMOD|DTPREL|TLSDESC')
[ -z "$calls" ] || fail "Thread-local variables that are found by a call:" "$calls"
grep -q STATIC_TLS <<<"$dynamic" || fail "No thread-local variables at a fixed distance." ""
bytes=$(($(readelf -lW "$root/libnd.so" | awk '$1 == "TLS" { print $6 }')))
[ "$bytes" -gt 0 ] && [ "$bytes" -le 512 ] || fail "Thread-local variables of $bytes bytes, not of at most 512." ""

# CUDA's runtime, where libnd.so has it: in a library of its own, under names that no other copy of it in the process has.
cuda=$(nm --dynamic --undefined-only "$root/libnd.so" | awk '$2 ~ /^(__)?cuda/ { print $2 }')
[ -z "$cuda" ] || fail "Asked for under CUDA's own names:" "$cuda"
nvidia=$(grep NEEDED <<<"$dynamic" | grep -E 'libcu|libnv')
[ -z "$nvidia" ] || fail "Needed of NVIDIA's libraries:" "$nvidia"
needed=no beside=no
! grep -q 'NEEDED.*\[libnd_cudart\.so\.0\]' <<<"$dynamic" || needed=yes
[ ! -e "$root/libnd_cudart.so.0" ] || beside=yes
[ "$needed" = "$beside" ] || fail "libnd_cudart.so.0 is needed: $needed, and lies beside libnd.so: $beside" ""
if [ $needed = yes ]; then
    grep -q 'RUNPATH.*\[$ORIGIN\]' <<<"$dynamic" || fail "libnd.so does not look beside itself:" "$(grep -E 'R(UN)?PATH' <<<"$dynamic")"
    shown=$(nm --dynamic --defined-only "$root/libnd_cudart.so.0" | awk '{ print $NF }')
    grep -qx __wrap_cudaMalloc <<<"$shown" || fail "libnd_cudart.so.0 does not show __wrap_cudaMalloc." ""
    foreign=$(grep -vE '^__wrap_(__)?cuda' <<<"$shown")
    [ -z "$foreign" ] || fail "Exported by libnd_cudart.so.0:" "$foreign"
    [ "$(readelf -dW "$root/libnd_cudart.so.0" | sed -nE 's/.*SONAME.*\[(.*)\]/\1/p')" = libnd_cudart.so.0 ] ||
        fail "libnd_cudart.so.0 has another name." ""
fi
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
