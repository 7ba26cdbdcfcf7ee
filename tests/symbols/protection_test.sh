#!/usr/bin/env bash
# What makes mistakes with memory harder to exploit is there, in libnd.so and in a program that is linked statically, and what
# --//bazel:hardening=on adds to that in objects that were compiled so: it is read from the files' headers, since a flag that is lost
# changes nothing else. A program and an archive built without all of it must be found out.
#
#     protection_test.sh [optimised] ARCHIVE...
set -u
root=$TEST_SRCDIR/$TEST_WORKSPACE
failures=0
optimised=
if [ "$1" = optimised ]; then
    optimised=1
    shift
fi

# lacks FILE: prints what a file lacks, a word each.
lacks() {
    local dynamic segments symbols
    dynamic=$(readelf -dW "$1") segments=$(readelf -lW "$1") symbols=$(readelf -sW "$1")
    # Loaded anywhere.
    readelf -hW "$1" | grep -q 'Type: *DYN' || echo position-independence
    # What the loader has written is read-only from then on, and it has written all of it.
    grep -q GNU_RELRO <<<"$segments" || echo relro
    grep -qE '\(FLAGS_1\).*\bNOW\b' <<<"$dynamic" || echo now
    # No code is written to for relocations; no stack and no segment is both written and executed.
    if grep -q TEXTREL <<<"$dynamic"; then echo text-relocations; fi
    grep -qE 'GNU_STACK.* RW +0x' <<<"$segments" || echo stack-not-executable
    if grep -qE 'LOAD.* RWE ' <<<"$segments"; then echo segment-written-and-executed; fi
    # Functions look at a canary before they return.
    grep -q '__stack_chk_fail' <<<"$symbols" || echo stack-protector
    # Copies into what has a known size look at it; without optimisation no compiler knows one.
    [ -z "$optimised" ] || grep -qE ' __(mem|str|realpath|longjmp|v?s?n?printf)[a-z]*_chk' <<<"$symbols" || echo checked-copies
}

# lacks_hardening ARCHIVE...: the same of archives that were compiled with all there is. The mark where an indirect jump may land is
# looked for in each object: the linker leaves it out of a program that has one object without, and Debian 12's crt1.o and crti.o are.
lacks_hardening() {
    local archive notes symbols members marked
    for archive; do
        symbols+=$(readelf -sW "$archive")$'\n'
        notes+=$(readelf -nW "$archive")$'\n'
        members=$((${members:-0} + $(ar t "$archive" | wc -l)))
    done
    marked=$(grep -c 'x86 feature: IBT, SHSTK' <<<"$notes")
    [ "$(uname -m)" != x86_64 ] || [ "$marked" -eq "$members" ] || echo "marks-for-indirect-jumps"
    # Of level 2 is a text that is written only where that is allowed: with level 1 most calls are the plain ones. Those of "%s" alone
    # become plain ones either way.
    [ "$(grep -cE 'UND __v?(snprintf|fprintf|printf)_chk$' <<<"$symbols")" -gt \
        "$(grep -cE 'UND v?(snprintf|fprintf|printf)$' <<<"$symbols")" ] || echo checked-texts
    grep -qE 'UND __(memcpy|memmove|memset|strcpy)_chk$' <<<"$symbols" || echo checked-copies
    # The strong kind is in functions that have no array and give an address away: two thirds of our files have one, and a little less
    # than half have one of the ordinary kind.
    [ "$(($(grep -c 'UND __stack_chk_fail$' <<<"$symbols") * 100))" -gt $((members * 55)) ] || echo strong-stack-protector
}

for file in libnd.so tests/symbols/program; do
    lost=$(lacks "$root/$file")
    [ -z "$lost" ] || { echo "$file lacks:" $lost; failures=$((failures + 1)); }
done

# NVIDIA's code looks at no canaries and checks no copies; how it is linked is ours.
runtime=$root/libnd_cudart.so.0
if [ -e "$runtime" ]; then
    lost=$(lacks "$runtime" | grep -vE 'stack-protector|checked-copies')
    [ -z "$lost" ] || { echo "libnd_cudart.so.0 lacks:" $lost; failures=$((failures + 1)); }
fi

bare=$TEST_TMPDIR/bare
echo 'int main(void) { return 0; }' | "${CC:-cc}" -x c -fno-stack-protector -fno-pie -no-pie -Wl,-z,norelro,-z,lazy,-z,execstack -o "$bare" - ||
    exit 1
lost=$(lacks "$bare" | tr '\n' ' ')
wanted="position-independence relro now stack-not-executable stack-protector ${optimised:+checked-copies }"
[ "$lost" = "$wanted" ] || { echo "A bare program lacks \"$lost\", not \"$wanted\""; failures=$((failures + 1)); }

lost=$(lacks_hardening "$@")
[ -z "$lost" ] || { echo "Objects of a hardened build lack:" $lost; failures=$((failures + 1)); }

# Each flag by itself, of a file that has something for each.
cat >"$bare.c" <<'END'
#include <stdio.h>
#include <string.h>
void escape(int *address);
int write_text(char *text, size_t bytes, const char *from) {
    int number = 0;
    char copy[8];
    escape(&number);
    strcpy(copy, from);
    return snprintf(text, bytes, "%d %s", number, copy);
}
END
cat >"$bare-plain.c" <<'END'
void escape(int *address);
int give_away(void) {
    int number = 0;
    escape(&number);
    return number;
}
END
# of FLAGS...: what an archive of the two files lacks.
of() {
    local file
    rm -f "$bare.a"
    for file in "$bare" "$bare-plain"; do
        "${CC:-cc}" -O2 -w -U_FORTIFY_SOURCE "$@" -c "$file.c" -o "$file.o" || exit 1
    done
    ar rc "$bare.a" "$bare.o" "$bare-plain.o"
    lacks_hardening "$bare.a" | tr '\n' ' '
}
expect() { # WHAT-IT-LACKS FLAGS...
    local lost
    lost=$(of "${@:2}")
    [ "$lost" = "$1" ] || { echo "An archive with ${*:2} lacks \"$lost\", not \"$1\""; failures=$((failures + 1)); }
}
strong=-fstack-protector-strong copies=-D_FORTIFY_SOURCE=2 marks=-fcf-protection=full
if [ "$(uname -m)" = x86_64 ]; then
    expect "" $strong $copies $marks
    expect "marks-for-indirect-jumps " $strong $copies -fcf-protection=none
    expect "checked-texts checked-copies " $strong $marks
    expect "checked-texts " $strong -D_FORTIFY_SOURCE=1 $marks
    expect "strong-stack-protector " -fno-stack-protector -fstack-protector $copies $marks
fi

# uses_mmx FILE: whether its code touches the MMX registers. They are the x87 stack: without an emms, which no compiler adds, the
# caller's next long double is NaN.
uses_mmx() {
    objdump -d --no-show-raw-insn "$1" | grep -qE '%mm[0-7]'
}
if [ "$(uname -m)" = x86_64 ] && command -v objdump >/dev/null; then
    if uses_mmx "$root/libnd.so"; then echo "libnd.so uses MMX registers"; failures=$((failures + 1)); fi
    echo 'int main(void) { __asm__("movq2dq %mm0, %xmm0"); return 0; }' | "${CC:-cc}" -x c -o "$bare" - || exit 1
    uses_mmx "$bare" || { echo "A program with an MMX instruction was not found out"; failures=$((failures + 1)); }
fi
exit "$failures"
