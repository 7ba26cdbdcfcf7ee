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

for header in "$root"/include/nd/*.h "$root"/lib/distributed/include/nd/*.h; do
    name=nd/${header##*/}
    echo "#include <$name>" >"$TEST_TMPDIR/alone.c"
    cp "$TEST_TMPDIR/alone.c" "$TEST_TMPDIR/alone.cc"
    warnings=(-Wall -Wextra -Wconversion "-I$root/include" "-I$root/lib/distributed/include" -fsyntax-only)
    for compiler in gcc clang; do
        command -v $compiler >/dev/null || continue
        check "$name, $compiler" $compiler -std=gnu17 -Wstrict-prototypes "${warnings[@]}" "$TEST_TMPDIR/alone.c"
    done
    check "$name, c++" c++ -std=c++17 "${warnings[@]}" "$TEST_TMPDIR/alone.cc"
done

# Macros that a program may have named like what the headers do not own.
for name in malloc unused cleanup visibility always_inline warn_unused_result unlikely likely; do
    echo "#define $name(...) the_program_s_own(__VA_ARGS__)"
done >"$TEST_TMPDIR/macros.c"
cat >"$TEST_TMPDIR/used.c" <<'END'
#include <nd/nd.h>
void use(nd_tensor *x);
void use(nd_tensor *x)
{
    ND_SCOPE
    {
        nd_auto_scope;
        nd_auto nd_tensor *y = nd_retain(nd_tmp(nd_ones(ND_SHAPE(2), ND_F32)));
        nd_release(nd_steal(&x));
    }
}
END
# Without arguments a macro is in the way of an attribute, too; the C++ headers may be included after <algorithm>.
sed 's/(...)//; s/(__VA_ARGS__)//' "$TEST_TMPDIR/macros.c" >"$TEST_TMPDIR/plain.c"
{
    echo '#include <algorithm>'
    cat "$TEST_TMPDIR/macros.c"
    echo '#define min(a, b) ((a) < (b) ? (a) : (b))'
    echo '#define max(a, b) ((a) > (b) ? (a) : (b))'
    echo '#define abs(a) ((a) < 0 ? -(a) : (a))'
    echo '#include <nd/nd.hpp>'
} >"$TEST_TMPDIR/macros.cc"
cat "$TEST_TMPDIR/used.c" | tee -a "$TEST_TMPDIR/macros.c" "$TEST_TMPDIR/macros.cc" >>"$TEST_TMPDIR/plain.c"
for compiler in gcc clang; do
    command -v $compiler >/dev/null || continue
    for sites in -UND_TRACK_SITES -DND_TRACK_SITES; do
        for text in macros plain; do
            check "$text, $compiler $sites" $compiler -std=gnu17 $sites -Wall -Wextra "-I$root/include" -fsyntax-only "$TEST_TMPDIR/$text.c"
        done
    done
done
for compiler in g++ clang++; do
    command -v $compiler >/dev/null || continue
    check "macros, $compiler" $compiler -std=c++17 -Wall -Wextra "-I$root/include" -fsyntax-only "$TEST_TMPDIR/macros.cc"
    $compiler -std=c++14 "-I$root/include" -fsyntax-only -x c++ <(echo '#include <nd/nd.h>') 2>&1 | grep -q 'error.*need C++17' && continue
    echo "$compiler: no clear error in C++14"
    failures=$((failures + 1))
done

# ND_TYPE_EDGES: in both languages; what is no owned handle is refused in C.
cat >"$TEST_TMPDIR/edges.c" <<'END'
#include <nd/nd.h>
typedef struct part {
    nd_tensor *weight;
    size_t count;
    nd_object **parts;
    nd_map *pair[2];
} part;
#define PART_EDGES(ONE, MANY) ONE(weight) MANY(parts, self->count) MANY(pair, 2)
ND_TYPE_EDGES(part, PART_EDGES)
void (*used[2])(void) = {(void (*)(void))part_traverse, (void (*)(void))part_clear};
END
cp "$TEST_TMPDIR/edges.c" "$TEST_TMPDIR/edges.cc"
for compiler in gcc clang; do
    command -v $compiler >/dev/null || continue
    check "ND_TYPE_EDGES, $compiler" $compiler -std=gnu17 -Wall -Wextra -Wconversion "-I$root/include" -fsyntax-only "$TEST_TMPDIR/edges.c"
    for wrong in 'const nd_tensor \*weight' 'char *weight' 'int weight'; do
        sed "s/nd_tensor \*weight/$wrong/" "$TEST_TMPDIR/edges.c" >"$TEST_TMPDIR/wrong.c"
        $compiler -std=gnu17 "-I$root/include" -fsyntax-only "$TEST_TMPDIR/wrong.c" 2>/dev/null || continue
        echo "ND_TYPE_EDGES, $compiler: $wrong is taken for an edge"
        failures=$((failures + 1))
    done
done
check "ND_TYPE_EDGES, c++" c++ -std=c++17 -Wall -Wextra -Wconversion "-I$root/include" -fsyntax-only "$TEST_TMPDIR/edges.cc"

# Numbers: whatever stands for one is taken in silence in both languages; a pointer is none.
cat >"$TEST_TMPDIR/numbers.c" <<'END'
#include <nd/nd.h>
void use(const nd_tensor *x, nd_tensor *y, const int64_t *shape, size_t size, short little, bool truth, float number);
void use(const nd_tensor *x, nd_tensor *y, const int64_t *shape, size_t size, short little, bool truth, float number)
{
    nd_release(nd_full(2, shape, ++size, ND_I64));
    nd_release(nd_full(ND_SHAPE(2, 3), nd_get_size(x, 0), ND_I64));
    nd_release(nd_scalar(nd_get_item(nd_tmp(nd_scalar(nd_get_item(x), ND_F32))), ND_F32));
    nd_release(nd_arange(0, size--, little, ND_I64));
    nd_release(nd_add_scalar(nd_tmp(nd_mul_scalar(x, little)), truth));
    nd_release(nd_clip(nd_tmp(nd_pow_scalar(x, number)), -1, 0.5));
    nd_release(nd_masked_fill(x, y, (unsigned char)3));
    if (nd_fill_(y, little++) || nd_mul_scalar_(y, 2UL) || nd_add_scaled_(y, x, -0.5L) || nd_masked_fill_(y, x, 'x'))
        nd_release(nd_scalar(INT64_MIN, ND_I64));
    if (nd_mul_scalar_out(x, little--, y) || nd_clip_out(x, -1, number, y) || nd_hardtanh_out(x, truth, 2UL, y))
        nd_release(nd_scalar(INT64_MAX, ND_I64));
}
END
cp "$TEST_TMPDIR/numbers.c" "$TEST_TMPDIR/numbers.cc"
number_warnings=(-Wall -Wextra -Wshadow -Wconversion -Wsign-conversion "-I$root/include" -fsyntax-only)
for seen in -UND_TRACK_SITES -DND_TRACK_SITES; do
    for compiler in gcc clang; do
        command -v $compiler >/dev/null || continue
        check "numbers, $compiler $seen" $compiler -std=gnu17 $seen "${number_warnings[@]}" "$TEST_TMPDIR/numbers.c"
        sed 's/(y, 2UL)/(y, y)/' "$TEST_TMPDIR/numbers.c" >"$TEST_TMPDIR/wrong.c"
        $compiler -std=gnu17 "-I$root/include" -fsyntax-only "$TEST_TMPDIR/wrong.c" 2>/dev/null || continue
        echo "numbers, $compiler: a tensor is taken for a number"
        failures=$((failures + 1))
    done
    for compiler in g++ clang++; do
        command -v $compiler >/dev/null || continue
        check "numbers, $compiler $seen" $compiler -std=c++17 $seen "${number_warnings[@]}" "$TEST_TMPDIR/numbers.cc"
    done
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
