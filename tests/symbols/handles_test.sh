#!/usr/bin/env bash
# Every type of object that <nd/base.h> names is a handle to nd_retain, nd_release and nd_auto in C, owned and borrowed, to nd_retain in C++, and has an
# owner in nd.hpp of its own name. A scope is the one type that is not counted.
set -u
root=$TEST_SRCDIR/$TEST_WORKSPACE
types=$(sed -n 's/^typedef struct \(nd_[a-z_]*\) \1;.*/\1/p' "$root/include/nd/base.h" | grep -vx nd_scope)
[ "$(wc -w <<<"$types")" -ge 20 ] || { echo "found $types"; exit 1; }
{
    echo '#include <nd/nd.h>'
    for type in $types; do
        cat <<END
void use_$type($type *owned, const $type *borrowed);
void use_$type($type *owned, const $type *borrowed) {
    nd_auto $type *same = nd_retain(owned);
    $type *kept = nd_retain(borrowed);
    nd_release(kept);
    nd_release(owned);
    (void)same;
}
END
    done
} >"$TEST_TMPDIR/handles.c"
compile() {
    cc -std=gnu17 -Wall -Wextra -Werror -fsyntax-only "-I$root/include" "$@"
}
compile "$TEST_TMPDIR/handles.c" || exit 1
# What is none is refused, so that a type which is not listed would be, too.
sed 's/nd_tensor/nd_scope/g' "$TEST_TMPDIR/handles.c" >"$TEST_TMPDIR/none.c"
! compile "$TEST_TMPDIR/none.c" 2>/dev/null || { echo "nd_scope is taken for a handle"; exit 1; }

command -v c++ >/dev/null || { echo "SKIPPED: no C++ compiler"; exit 0; }
{
    echo '#include <nd/nd.hpp>'
    for type in $types; do
        cat <<END
$type *keep(const $type *borrowed) { return nd_retain(borrowed); }
nd::${type#nd_} own($type *owned) { return nd::${type#nd_}(owned); }
static_assert(std::is_same<nd::${type#nd_}, nd::owned<$type>>::value, "");
END
    done
} >"$TEST_TMPDIR/handles.cc"
compile_cpp() {
    c++ -std=c++17 -Wall -Wextra -Werror -fsyntax-only "-I$root/include" "$@"
}
compile_cpp "$TEST_TMPDIR/handles.cc" || exit 1
for lost in 'ND__RETAIN_HANDLE(nd_gguf)' 'using gguf = '; do # so would a type without the one or the other be
    mkdir -p "$TEST_TMPDIR/without" && rm -rf "$TEST_TMPDIR/without/nd" && cp -rL "$root/include/nd" "$TEST_TMPDIR/without/nd"
    chmod -R u+w "$TEST_TMPDIR/without/nd"
    sed -i "/^$lost/d" "$TEST_TMPDIR/without/nd/object.h" "$TEST_TMPDIR/without/nd/nd.hpp"
    ! c++ -std=c++17 -fsyntax-only "-I$TEST_TMPDIR/without" "$TEST_TMPDIR/handles.cc" 2>/dev/null || { echo "not missed: $lost"; exit 1; }
done
