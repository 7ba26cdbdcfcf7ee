#!/usr/bin/env bash
# What makes mistakes with memory harder to exploit is there, in libnd.so and in a program that is linked statically: it is read
# from the files' headers, since a flag that is lost changes nothing else. A program built without all of it must be found out.
set -u
root=$TEST_SRCDIR/$TEST_WORKSPACE
failures=0

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
}

for file in libnd.so tests/symbols/program; do
    lost=$(lacks "$root/$file")
    [ -z "$lost" ] || { echo "$file lacks:" $lost; failures=$((failures + 1)); }
done

# NVIDIA's code looks at no canaries; how it is linked is ours.
runtime=$root/libnd_cudart.so.0
if [ -e "$runtime" ]; then
    lost=$(lacks "$runtime" | grep -v stack-protector)
    [ -z "$lost" ] || { echo "libnd_cudart.so.0 lacks:" $lost; failures=$((failures + 1)); }
fi

bare=$TEST_TMPDIR/bare
echo 'int main(void) { return 0; }' | "${CC:-cc}" -x c -fno-stack-protector -fno-pie -no-pie -Wl,-z,norelro,-z,lazy,-z,execstack -o "$bare" - ||
    exit 1
lost=$(lacks "$bare" | tr '\n' ' ')
wanted="position-independence relro now stack-not-executable stack-protector "
[ "$lost" = "$wanted" ] || { echo "A bare program lacks \"$lost\", not \"$wanted\""; failures=$((failures + 1)); }

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
