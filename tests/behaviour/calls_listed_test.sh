#!/usr/bin/env bash
# Every function of the public headers that returns an owned handle is named in <nd/detail/calls.h>, or, of <nd/distributed.h>, in the list beside that
# header, and all but the few that
# return what was there before go through one of its macros. The compiler, not a pattern, says which functions are ND_OWNED.
set -u
root=$TEST_SRCDIR/$TEST_WORKSPACE
# A macro that clang-format has broken into lines is one line here.
calls=$TEST_TMPDIR/calls.h
sed -e :next -e '/\\$/N; s/ *\\\n */ /; tnext' "$root/include/nd/detail/calls.h" \
    "$root/lib/distributed/include/nd/detail/calls_distributed.h" >"$calls"
failures=0

# After preprocessing, with ND_OWNED spelled as a mark that survives, one declaration stands between two semicolons.
{
    echo '#include <nd/base.h>'
    echo '#undef ND_OWNED'
    echo '#define ND_OWNED nd_owned_mark'
    echo '#include <nd/nd.h>'
} >"$TEST_TMPDIR/all.c"
{
    cat "$TEST_TMPDIR/all.c"
    echo '#include <nd/distributed.h>'
} >"$TEST_TMPDIR/both.c"
functions=$(cc -std=gnu17 -E -P "-I$root/include" "-I$root/lib/distributed/include" "$TEST_TMPDIR/both.c" | tr '\n' ' ' | tr ';{}' '\n\n\n' |
    sed -n 's/^.*[ *]\(nd_[a-z0-9_]*\) *(.*nd_owned_mark *$/\1/p')

count=0
for function in $functions; do
    count=$((count + 1))
    case $function in
    nd_object_retain | nd_edge_take | nd_weak_get | nd_weak_get_tensor | nd_list_remove | nd_list_pop | nd_map_remove | nd_get_manager_retained)
        wrapped=0
        ;;
    *)
        wrapped=1
        ;;
    esac
    found=$(grep -c "^#define $function(\.\.\.) ND__NEW_[A-Z]*(.*$function, \(ND__NUMBERS\\?_[A-Z_]*(__VA_ARGS__)\|__VA_ARGS__\))\$" "$calls")
    if [ "$found" -ne "$wrapped" ]; then
        echo "$function: $found lines in calls.h, must be $wrapped"
        failures=$((failures + 1))
    fi
done

# What takes a tensor and gives one is tried on random views, with all that writes into one. The elementwise operations, which
# the test takes from their table, need no line. Not where elements stay as they
# are made (empty_like), where the view itself is what is tried, and where no tensor's elements are looked at.
views=$root/tests/behaviour/strided_views.c
elementwise=$(tr '\n' ' ' <"$root/kernels/ops.inc" | sed -E 's/ND_(UNARY|PREDICATE|BINARY|COMPARE|LOGICAL)\(/\n&/g' |
    sed -n 's/^ND_[A-Z]*(\([a-z0-9_]*\), .* \(X\|XP\|XPQ\|AB\), (.*/nd_\1/p')
operations=$(cc -std=gnu17 -E -P "-I$root/include" "$TEST_TMPDIR/all.c" | tr '\n' ' ' | tr ';{}' '\n\n\n' |
    sed -n 's/^.*nd_tensor \*\(nd_[a-z0-9_]*\) *(.*const nd_tensor \*.*nd_owned_mark *$/\1/p'
    sed -n 's/^#define \(nd_[a-z_]*_\)(\.\.\.) ND__CALL(.*/\1/p' "$root/include/nd/detail/calls.h")
tried=0
for operation in $operations; do
    case $operation in
    nd_empty_like | nd_as_strided | nd_module_forward | nd_checkpoint | nd_checkpoint_module | nd_loss_scaler_scale) continue ;;
    esac
    tried=$((tried + 1))
    grep -qx "$operation" <<<"$elementwise" && continue
    if ! grep -q "[ (]$operation(" "$views"; then
        echo "$operation: no case in strided_views.c"
        failures=$((failures + 1))
    fi
done
if [ "$tried" -lt 80 ]; then
    echo "found $tried operations"
    failures=$((failures + 1))
fi

# Of either order of the headers comes the same: a borrowed tensor in a scope, and a site.
for order in "nd/scoped.h nd/distributed.h" "nd/distributed.h nd/scoped.h"; do
    {
        echo '#define ND_TRACK_SITES'
        printf '#include <%s>\n' $order
        echo 'const nd_tensor *sum(const nd_communicator *c, const nd_tensor *x);'
        echo 'const nd_tensor *sum(const nd_communicator *c, const nd_tensor *x) { return nd_all_reduce(x, c, ND_COLLECTIVE_SUM); }'
    } >"$TEST_TMPDIR/order.c"
    cc -std=gnu17 -E -P "-I$root/include" "-I$root/lib/distributed/include" "$TEST_TMPDIR/order.c" | grep -q "nd_object_tmp.*nd__site_enter.*(nd_all_reduce)" &&
        cc -std=gnu17 -Wall -Werror -fsyntax-only "-I$root/include" "-I$root/lib/distributed/include" "$TEST_TMPDIR/order.c" || {
        echo "$order: nd_all_reduce is a plain call"
        failures=$((failures + 1))
    }
done

# A tensor goes to the scope, anything else stays owned.
grep '^#define nd_.*ND__NEW_OBJECT(nd_tensor ' "$calls" && failures=$((failures + 1))

# Were the headers written in a form that the search above does not see, it would find next to nothing.
marks=$(grep -hv '^#' "$root"/include/nd/*.h "$root/lib/distributed/include/nd/distributed.h" | grep -c 'ND_OWNED;')
if [ "$count" -ne "$marks" ] || [ "$count" -lt 100 ]; then
    echo "found $count owned functions, the headers have $marks"
    failures=$((failures + 1))
fi
[ "$failures" -eq 0 ]
