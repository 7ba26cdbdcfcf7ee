#!/usr/bin/env bash
# interface.sh [--write]: holds the binary interface of include/nd against tests/symbols/interface.txt, or writes that file,
# interface_distributed.txt beside it, which has what <nd/distributed.h> adds, and with them docs/operations.md and include/nd/detail/functions.hpp, which are made of the headers (docs/operations.py).
# docs/stability.md says what may change. Needs gcc, python3 and abidw (Debian's abigail-tools).
set -eu
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
here=$root/tests/symbols
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

for program in gcc python3 abidw; do
    command -v $program >/dev/null || { echo "SKIPPED: no $program"; exit 0; }
done

# read_interface INCLUDE FILE: writes what the headers of a folder declare to a file.
read_interface() {
    python3 "$here/interface.py" stubs "$1" >"$scratch/stubs.c"
    gcc -std=gnu17 -w -g -fno-eliminate-unused-debug-types -fPIC -shared "-I$1" "$scratch/stubs.c" -o "$scratch/stubs.so"
    abidw "$scratch/stubs.so" >"$scratch/stubs.abi"
    python3 "$here/interface.py" summary "$scratch/stubs.abi" >"$2"
    [ "$(wc -l <"$2")" -gt 300 ] || { echo "The headers were not read."; return 1; }
}

read_interface "$root/include" "$scratch/now"
# The same with <nd/distributed.h>, whose functions are in a library of their own.
mkdir "$scratch/all"
cp -rL "$root"/include/nd "$root"/lib/distributed/include/nd "$scratch/all"
read_interface "$scratch/all" "$scratch/all.txt"
LC_ALL=C comm -13 <(LC_ALL=C sort "$scratch/now") <(LC_ALL=C sort "$scratch/all.txt") >"$scratch/distributed"
[ "$(grep -c '(' "$scratch/distributed")" -gt 20 ] || { echo "<nd/distributed.h> was not read."; exit 1; }
if [ "${1:-}" = --write ]; then
    cp "$scratch/now" "$here/interface.txt"
    cp "$scratch/distributed" "$here/interface_distributed.txt"
    python3 "$root/docs/operations.py" "$root" "$root"
    exit 0
fi
{ python3 "$here/interface.py" compare "$here/interface.txt" "$scratch/now" &&
    python3 "$here/interface.py" compare "$here/interface_distributed.txt" "$scratch/distributed"; } || {
    echo "If this is meant: tests/symbols/interface.sh --write, and a line in CHANGELOG.md."
    exit 1
}

# The check notices what it is there for, and lets pass what may change.
cp -rL "$root/include" "$scratch/include"
# try VERDICT FILE EXPRESSION: after sed EXPRESSION on a header, the comparison succeeds (0) or fails (1).
try() {
    cp -L "$root/include/nd/$2" "$scratch/before"
    sed -E "$3" "$scratch/before" >"$scratch/include/nd/$2"
    ! cmp -s "$scratch/before" "$scratch/include/nd/$2" || { echo "sed '$3' finds nothing in $2"; exit 1; }
    read_interface "$scratch/include" "$scratch/then"
    verdict=0
    python3 "$here/interface.py" compare "$scratch/now" "$scratch/then" >"$scratch/said" || verdict=1
    [ "$verdict" -eq "$1" ] || { echo "sed '$3' on $2: $verdict, not $1"; cat "$scratch/said"; exit 1; }
    cp -L "$scratch/before" "$scratch/include/nd/$2"
}
try 1 ops.h '/^ND_API nd_tensor \*nd_neg\(/d'
try 1 error.h 's/^(ND_API nd_status nd_error_get_status)\(void\)/\1(int which)/'
try 1 manager.h 's/^(typedef struct nd_close_report \{)/\1 uint64_t first;/'
try 1 base.h 's/ND_OK = 0,/ND_OK = 0, ND_NEW,/'
try 1 tensor.h 's/nd_get_ndim\(const nd_tensor/nd_get_ndim(nd_tensor/'
try 0 error.h 's/^(ND_API nd_status nd_error_get_status)/ND_API int nd_new(void);\n\1/'
try 0 manager.h 's/^\} nd_close_report;/uint64_t last; } nd_close_report;/'
