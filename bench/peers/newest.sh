#!/usr/bin/env bash
# Installs the newest rivals: PyTorch, NumPy, Pillow and ONNX Runtime from PyPI, and libtorch_basics built against that PyTorch.
#
#     bench/peers/newest.sh [FOLDER]      default: ~/.cache/ndarc-rivals (some gigabytes)
#
# The benchmarks take their rivals from there when it exists (ND_RIVALS names another folder), else what the system has.
# Nothing of it is needed to build or to test.
set -eu
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:-${ND_RIVALS:-${XDG_CACHE_HOME:-$HOME/.cache}/ndarc-rivals}}

[ -x "$folder/bin/python" ] || python3 -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --upgrade torch numpy onnx onnxruntime pillow
torch=$("$folder/bin/python" -c 'import os, torch; print(os.path.dirname(torch.__file__))')
"${CXX:-g++}" -std=c++20 -O2 -isystem "$torch/include" -isystem "$torch/include/torch/csrc/api/include" \
    "$here/libtorch_basics.cpp" -o "$folder/bin/libtorch_basics" \
    -L"$torch/lib" -ltorch -ltorch_cpu -lc10 -Wl,-rpath,"$torch/lib"
"$folder/bin/python" -c 'import numpy, onnxruntime, torch; print("PyTorch", torch.__version__, "NumPy", numpy.__version__, "ONNX Runtime", onnxruntime.__version__)'
