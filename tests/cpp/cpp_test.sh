#!/usr/bin/env bash
# The public headers in C++: the programs beside this file compile in silence with g++ and clang++, in C++17 and C++20, with
# each way to see the headers; they run, and leave nothing behind. What mishandles ownership is refused. gcc's analyzer, which
# knows no destructors and finds dangers in std::vector, blames none of them for a leak or a release.
set -u
root=$TEST_SRCDIR/$TEST_WORKSPACE
here=$root/tests/cpp
warnings=(-Wall -Wextra -Wshadow -Wconversion -Wold-style-cast -Werror "-I$root/include")
failures=0

fail() {
    printf '%s\n' "$@"
    failures=$((failures + 1))
}

compilers=()
for compiler in g++ clang++; do
    if command -v $compiler >/dev/null; then
        compilers+=($compiler)
    else
        echo "SKIPPED: no $compiler"
    fi
done

# run COMPILER FILE FLAGS...: it compiles in silence, runs, and leaves nothing.
run() {
    local said compiler=$1 file=$2
    shift 2
    said=$($compiler "${warnings[@]}" "$@" "$here/$file" -o "$TEST_TMPDIR/program" "$root/libnd.so" \
        "-Wl,-rpath,$root" 2>&1) || { fail "$compiler $* $file does not compile:" "$said"; return; }
    [ -z "$said" ] || fail "$compiler $* $file:" "$said"
    said=$(ND_LEAK_CHECK=1 "$TEST_TMPDIR/program" 2>&1) || fail "$compiler $* $file ends with $?:" "$said"
    [ "$said" = "ndarc: no leaks" ] || fail "$compiler $* $file says:" "$said"
}

# refuses COMPILER BODY: a function with this body, which would break ownership, does not compile; without it one does.
refuses() {
    local compiler=$1 body=$2
    printf '#include <nd/nd.hpp>\nvoid f(const nd_tensor *borrowed, nd_tensor *owned, int *number);\n%s %s\n' \
        'void f(const nd_tensor *borrowed, nd_tensor *owned, int *number) { (void)borrowed, (void)owned, (void)number;' \
        "$body }" >"$TEST_TMPDIR/refused.cc"
    $compiler -std=c++17 "-I$root/include" -fsyntax-only "$TEST_TMPDIR/refused.cc" 2>/dev/null
}

for compiler in "${compilers[@]}"; do
    for standard in c++17 c++20; do
        run $compiler language.cc -std=$standard
        run $compiler owner.cc -std=$standard
    done
    for seen in -DND_TRACK_SITES -DND_INLINE_COUNTS "-DND_TRACK_SITES -O2"; do
        for file in language.cc owner.cc scoped.cc; do
            # shellcheck disable=SC2086
            run $compiler $file -std=c++17 $seen
        done
    done
    run $compiler language.cc -std=c++20 -Wpedantic
    run $compiler owner.cc -std=c++17 -Wpedantic
    run $compiler scoped.cc -std=c++17

    refuses $compiler '' || fail "$compiler refuses what is right"
    for wrong in 'nd_release(borrowed);' 'nd_tmp(borrowed);' 'nd_tensor *t = nd_tmp(owned);' '(void)nd_retain(number);' \
        'nd_steal(owned);' 'nd::tensor t(borrowed);' 'nd::tensor t = owned;' 'nd::module m(owned);' \
        'nd::tensor t(owned); nd_release(t);' 'nd::tensor t(owned); nd_tmp(t);' 'nd_empty(ND_SHAPE(1.5), ND_F32);' \
        'nd_fill_(owned, owned);' 'nd_fill_(owned, nullptr);' 'nd_scalar("1", ND_F32);'; do
        refuses $compiler "$wrong" && fail "$compiler accepts $wrong"
    done
done

if command -v g++ >/dev/null; then
    for level in -O0 -O1 -O2; do
        for file in language.cc owner.cc scoped.cc; do
            for seen in -UND_TRACK_SITES -DND_TRACK_SITES; do
                said=$(g++ -std=c++17 "-I$root/include" -fanalyzer $level $seen -c "$here/$file" \
                    -o "$TEST_TMPDIR/object.o" 2>&1) || fail "g++ -fanalyzer $level $seen $file:" "$said"
                said=$(grep -E 'Wanalyzer-(malloc-leak|double-free|use-after-free|mismatching|free)' <<<"$said") &&
                    fail "g++ -fanalyzer $level $seen $file:" "$said"
            done
        done
    done
fi
[ "$failures" -eq 0 ]
