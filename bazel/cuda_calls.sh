#!/usr/bin/env bash
# cuda_calls.sh ARCHIVE SOURCE OPTIONS: what leads libnd.so's calls of CUDA's runtime into libnd_cudart.so (cuda_runtime.bzl).
#
# The archive hides its names, so that what is linked with it cannot show them. SOURCE becomes a jump to each function, under the
# name __wrap_FUNCTION; OPTIONS tell a linker to take that name wherever FUNCTION is called. So both are NVIDIA's file as it is,
# and no other copy of the runtime in the process can take the place of this one, nor the other way round.
set -eu
archive=$1
source=$2
options=$3

functions=$(nm --extern-only --defined-only "$archive" | awk '$2 == "T" && $3 ~ /^(__)?cuda/ { print $3 }' | sort -u)
grep -qx cudaMalloc <<<"$functions" || { echo "$archive defines no cudaMalloc" >&2; exit 1; }

cat >"$source" <<'END_OF_SOURCE'
#if defined(__x86_64__)
#define JUMP jmp
#elif defined(__aarch64__)
#define JUMP b
#else
#error How does this processor jump?
#endif
#define FUNCTION(name)          \
    .globl __wrap_##name;       \
    .type __wrap_##name, %function; \
    __wrap_##name : JUMP name;  \
    .size __wrap_##name, . - __wrap_##name

    .section .note.GNU-stack, "", %progbits
    .text
END_OF_SOURCE
sed 's/.*/    FUNCTION(&)/' <<<"$functions" >>"$source"
sed 's/.*/-Wl,--wrap=&/' <<<"$functions" >"$options"
