#!/usr/bin/env bash
# Makes the virtual environment that tests/reference compares with: the newest NumPy, PyTorch, safetensors,
# gguf, Pillow and tokenizers from PyPI.
#
#     tests/reference/environment.sh [FOLDER]      default: $ND_REFERENCE, else ~/.cache/ndarc-rivals (that of bench/peers)
#
# Then: ./bazelw test --test_env=ND_REFERENCE=FOLDER //tests/reference:all, with ND_REFERENCE_CALLS and ND_REFERENCE_SEED as asked.
set -eu
folder=${1:-${ND_REFERENCE:-${XDG_CACHE_HOME:-$HOME/.cache}/ndarc-rivals}}
[ -x "$folder/bin/python" ] || python3 -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --upgrade torch numpy safetensors gguf pillow tokenizers
"$folder/bin/python" -c 'import numpy, torch; print("PyTorch", torch.__version__, "NumPy", numpy.__version__)'
