#!/usr/bin/env bash
# abi_nccl_test.sh SOURCE: compiles SOURCE with NCCL's header, as PyPI's nvidia-nccl-cu13 and Debian's libnccl-dev have it: from the
# folder that ND_NCCL_INCLUDE names, a Python environment, what bench/peers/newest.sh has installed, or the system. Without one, or without
# a compiler, it says SKIPPED and passes. Of CUDA that header wants a few types, which are declared here.
set -u
source=$1
compiler=$(command -v "${CC:-cc}" || command -v gcc || command -v clang) || { echo "SKIPPED: no C compiler"; exit 0; }
home=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
packages=$(python3 -c 'import site; print(*site.getsitepackages(), site.getusersitepackages())' 2>/dev/null)
folder=
for each in "${ND_NCCL_INCLUDE:-}" "${VIRTUAL_ENV:-/nonexistent}"/lib/python3*/site-packages/nvidia/nccl/include \
    ${packages:+${packages// //nvidia/nccl/include }/nvidia/nccl/include} \
    "${ND_RIVALS:-${XDG_CACHE_HOME:-$home/.cache}/ndarc-rivals}"/lib/python3*/site-packages/nvidia/nccl/include \
    /usr/local/cuda/include /usr/include; do
    [ -n "$each" ] && [ -e "$each/nccl.h" ] && { folder=$each; break; }
done
[ -n "$folder" ] || { echo "SKIPPED: no nccl.h (pip install nvidia-nccl-cu13; ND_NCCL_INCLUDE names its folder)"; exit 0; }
stand_in=$(mktemp -d "${TEST_TMPDIR:-/tmp}/nccl-XXXXXX")
trap 'rm -rf "$stand_in"' EXIT
cp "$folder/nccl.h" "$stand_in"
cat > "$stand_in/cuda_runtime.h" <<'HEADER'
#define CUDART_VERSION 13000
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
HEADER
touch "$stand_in/cuda_fp16.h" "$stand_in/cuda_bf16.h"
"$compiler" -std=gnu17 -fsyntax-only -DNCCL_IS_THERE -I. -isystem "$stand_in" "$source" || exit 1
grep -E '^#define NCCL_(MAJOR|MINOR|PATCH) ' "$stand_in/nccl.h" | awk -v folder="$folder" '{v = v sep $3; sep = "."} END {print "the same as NCCL " v " in " folder}'
