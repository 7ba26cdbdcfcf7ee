#!/usr/bin/env bash
# Makes a virtual environment that tests compare with, of PyPI's newest: NumPy, safetensors, ml_dtypes, gguf, Pillow and tokenizers, and, unless
# it is asked for files alone, PyTorch, which is some gigabytes.
#
#     tests/reference/environment.sh [--files] [FOLDER]      default: $ND_REFERENCE, else ~/.cache/ndarc-reference
#
# Tests find it there (python.sh); another folder is told to them: ./bazelw test --test_env=ND_REFERENCE=FOLDER //tests/reference:all
set -eu
packages=(numpy safetensors ml_dtypes gguf pillow tokenizers)
if [ "${1:-}" = --files ]; then
    shift
else
    packages+=(torch)
fi
folder=${1:-${ND_REFERENCE:-${XDG_CACHE_HOME:-$HOME/.cache}/ndarc-reference}}
[ -x "$folder/bin/python" ] || python3 -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --upgrade "${packages[@]}"
"$folder/bin/python" -m pip freeze
