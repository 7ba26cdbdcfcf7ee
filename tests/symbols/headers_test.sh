#!/usr/bin/env bash
# Every public header compiles alone and without a warning, as C17 and as C++17, and the shared library can be opened by a
# program that was not linked with it.
set -u
root=$TEST_SRCDIR/$TEST_WORKSPACE
failures=0

# check NAME COMMAND...: the command succeeds and says nothing.
check() {
    local said
    said=$("${@:2}" 2>&1) && [ -z "$said" ] && return
    printf '%s\n%s\n' "$1" "$said"
    failures=$((failures + 1))
}

for header in "$root"/include/nd/*.h; do
    name=nd/${header##*/}
    echo "#include <$name>" >"$TEST_TMPDIR/alone.c"
    cp "$TEST_TMPDIR/alone.c" "$TEST_TMPDIR/alone.cc"
    warnings=(-Wall -Wextra -Wconversion "-I$root/include" -fsyntax-only)
    for compiler in gcc clang; do
        command -v $compiler >/dev/null || continue
        check "$name, $compiler" $compiler -std=gnu17 -Wstrict-prototypes "${warnings[@]}" "$TEST_TMPDIR/alone.c"
    done
    check "$name, c++" c++ -std=c++17 "${warnings[@]}" "$TEST_TMPDIR/alone.cc"
done

cat >"$TEST_TMPDIR/open.c" <<'END'
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    if (argc > 1 && dlopen(argv[1], RTLD_NOW | RTLD_LOCAL))
        return 0;
    puts(dlerror());
    return 1;
}
END
check "compiling a program that calls dlopen" cc "$TEST_TMPDIR/open.c" -o "$TEST_TMPDIR/open" -ldl
check "opening libnd.so" "$TEST_TMPDIR/open" "$root/libnd.so"
[ "$failures" -eq 0 ]
