#!/usr/bin/env bash
# docs/operations.md and the C++ forms are what docs/operations.py makes of the headers and the table of operations.
set -u
root=$TEST_SRCDIR/$TEST_WORKSPACE
cd "$root" || exit 1
failures=0
made=$TEST_TMPDIR/made
python3 docs/operations.py "$root" "$made" || exit 1
for file in docs/operations.md include/nd/detail/functions.hpp; do
    if ! cmp "$file" "$made/$file"; then
        diff "$file" "$made/$file" | head -20
        echo "$file is not what the headers and kernels/ops.inc say: tests/symbols/interface.sh --write writes it anew"
        failures=$((failures + 1))
    fi
done

# Each function in calls.h that makes a tensor is one of C++ too.
for function in $(sed -n 's/^#define nd_\([a-z0-9_]*\)(\.\.\.) ND__NEW_TENSOR(.*/\1/p' include/nd/detail/calls.h); do
    if ! grep -Eq "^inline tensor \(?$function\)?\(" include/nd/detail/functions.hpp; then
        echo "nd::$function is missing"
        failures=$((failures + 1))
    fi
done

# What the page would say wrongly is noticed.
# refuses FILE EXPRESSION: after sed EXPRESSION on a file of a copy, the script fails or writes another page.
cp -rL "$root" "$TEST_TMPDIR/copy"
chmod -R u+w "$TEST_TMPDIR/copy"
refuses() {
    sed -E "$2" "$root/$1" >"$TEST_TMPDIR/copy/$1"
    cmp -s "$root/$1" "$TEST_TMPDIR/copy/$1" && { echo "sed '$2' finds nothing in $1"; failures=$((failures + 1)); }
    if python3 docs/operations.py "$TEST_TMPDIR/copy" "$made" 2>/dev/null && cmp -s docs/operations.md "$made/docs/operations.md"; then
        echo "sed '$2' on $1 was not noticed"
        failures=$((failures + 1))
    fi
    cp -L "$root/$1" "$TEST_TMPDIR/copy/$1"
}
refuses kernels/ops.inc '/^ND_FUNCTION\(matmul,/d'
refuses kernels/ops.inc '/^ND_UNARY\(exp,/d'
refuses include/nd/ops.h '/^ND_API nd_tensor \*nd_exp\(/d'
refuses include/nd/ops.h 's/^(ND_API nd_tensor \*nd_exp)\(/ND_API nd_tensor *nd_untested(const nd_tensor *x) ND_OWNED;\n\1(/'
[ "$failures" -eq 0 ]
