#!/usr/bin/env bash
# Files of every dtype, read by the package that defines the format and written by it; skipped where no Python has it.
program=$1
. "$TEST_SRCDIR/$TEST_WORKSPACE/tests/reference/python.sh"
python=$(python_with safetensors) || {
    echo "SKIPPED: no Python with safetensors"
    exit 0
}
"$program" write "$TEST_TMPDIR/ours.safetensors" || exit 1
"$python" - "$TEST_TMPDIR/ours.safetensors" "$TEST_TMPDIR/theirs.safetensors" <<'END' || exit 1
import ctypes
import struct
import sys

import safetensors

SIGNED = {"int8": "b", "int16": "h", "int32": "i", "int64": "q"}
UNSIGNED = {"uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q"}
FLOATS = {"float16": "e", "float32": "f", "float64": "d"}
CODES = {
    "bool": "BOOL", "uint8": "U8", "int32": "I32", "int64": "I64", "float32": "F32", "float64": "F64", "int8": "I8",
    "int16": "I16", "uint16": "U16", "uint32": "U32", "uint64": "U64", "float16": "F16", "bfloat16": "BF16",
}


def data(name):
    if name == "bool":
        return bytes(i % 2 for i in range(12))
    if name == "bfloat16":  # the upper halves of floats that have no more digits
        return b"".join(struct.pack("<f", (i - 3) / 2)[2:] for i in range(12))
    if name in SIGNED:
        return struct.pack("<12" + SIGNED[name], *(i - 3 for i in range(12)))
    if name in UNSIGNED:
        return struct.pack("<12" + UNSIGNED[name], *range(12))
    return struct.pack("<12" + FLOATS[name], *((i - 3) / 2 for i in range(12)))


with open(sys.argv[1], "rb") as file:
    ours = dict(safetensors.deserialize(file.read()))
assert set(ours) == set(CODES), sorted(ours)
for name, tensor in ours.items():
    assert tensor["dtype"] == CODES[name], (name, tensor["dtype"])
    assert tensor["shape"] == [3, 4], (name, tensor["shape"])
    assert bytes(tensor["data"]) == data(name), (name, bytes(tensor["data"]))
spec = getattr(safetensors, "TensorSpec", None)
theirs, kept = {}, []
for name in CODES:
    if spec:  # from 0.8 on it is handed addresses
        kept.append(ctypes.create_string_buffer(data(name), len(data(name))))
        theirs[name] = spec(
            dtype=name, shape=[3, 4], data_ptr=ctypes.addressof(kept[-1]), data_len=len(data(name))
        )
    else:
        theirs[name] = {"dtype": name, "shape": [3, 4], "data": data(name)}
with open(sys.argv[2], "wb") as file:
    file.write(safetensors.serialize(theirs))
END
"$program" check "$TEST_TMPDIR/theirs.safetensors"
