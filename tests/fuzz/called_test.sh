#!/usr/bin/env bash
# Every public function is called by a program or by another harness, or stands in uncalled.txt below a reason.
#   called_test.sh INTERFACE UNCALLED OBJECT...
set -u
interface=$1
uncalled=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
    [ -n "$2" ] || return
    echo "$1"
    sed 's/^/    /' <<<"$2"
    failures=$((failures + 1))
}

# Those with a body in a header are called where that is; the recorded interface has exported ones alone.
grep -oE '\bnd_[a-z0-9_]+\(' "$interface" | tr -d '(' | sort -u >"$work/public"
for object in "$@"; do
    nm --undefined-only "$object"
done | awk '$1 == "U" && $2 ~ /^nd_/ { print $2 }' | sort -u >"$work/asked"
comm -12 "$work/public" "$work/asked" >"$work/called"
# A line without an indent is a reason, and the names below it are indented.
sed -nE 's/^ +([a-z0-9_]+)$/\1/p' "$uncalled" | sort >"$work/named"
sort -u "$work/named" >"$work/listed"

[ -s "$work/public" ] || fail "No functions are read from" "$interface"
[ "$(wc -l <"$work/called")" -gt 300 ] || fail "Few functions are called:" "$(cat "$work/called")"
fail "No harness calls these; call them in tests/fuzz/calls_*.c, or put them into uncalled.txt below the reason:" \
    "$(comm -23 "$work/public" "$work/called" | comm -23 - "$work/listed")"
fail "In uncalled.txt, and called:" "$(comm -12 "$work/called" "$work/listed")"
fail "In uncalled.txt, and no public function:" "$(comm -13 "$work/public" "$work/listed")"
fail "Twice in uncalled.txt:" "$(uniq -d "$work/named")"
fail "In uncalled.txt, and neither a reason nor a name:" "$(grep -vE '^[A-Z].*[.:]$|^  +[a-z0-9_]+$|^#|^$' "$uncalled")"
fail "Names without a reason:" "$(awk '/^[A-Z]/ { reason = 1 } /^$/ { reason = 0 } /^  / && !reason' "$uncalled")"
echo "$(wc -l <"$work/public") public functions, $(wc -l <"$work/called") called, $failures failures"
[ "$failures" -eq 0 ]
