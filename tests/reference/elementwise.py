"""elementwise.py COUNT SEED [NAME...]: random calls of the elementwise rows of kernels/ops.inc in all dtypes that a row takes.

The answer is NumPy's, where the table names a function of NumPy, else PyTorch's: for integers in their own dtype, for floats in
f64. f32 and f64 may differ from it by some units of the last place; f16 and bf16, which are computed in f32, by one rounding.
"""

import sys
import numpy as np
import torch
import operands
from operands import CODES, Number, call
from operations import broadcast, one
from table import ROWS

SIGNED = "int8 int16 int32 int64".split()
UNSIGNED = "uint8 uint16 uint32 uint64".split()
FLOATS = "float16 bfloat16 float32 float64".split()
TYPES = {
    "ANY": FLOATS + SIGNED + UNSIGNED + ["bool"],
    "NUMBER": FLOATS + SIGNED + UNSIGNED,
    "FLOAT": FLOATS + SIGNED + UNSIGNED,
    "INTEGER": SIGNED + UNSIGNED,
    "BITS": SIGNED + UNSIGNED + ["bool"],
    "BOOL": ["bool"],
}
# Relative to the value; and of a result near 0 of operands that are not, or of the smallest halves.
RELATIVE = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 3e-6, "float64": 1e-13}
ABSOLUTE = {"float16": 2.0**-23, "bfloat16": 2e-6, "float32": 2e-6, "float64": 1e-13}
CORNERS = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, 2.5, 3.0, -3.0, 6.0, 30.0, -30.0, np.nan, np.inf, -np.inf]


def values(row, random, shape, dtype, operand):
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if dtype in UNSIGNED or dtype in SIGNED:
        low = 0 if dtype in UNSIGNED else -6
        if operand == 1 and row.name in ("pow", "bitwise_left_shift", "bitwise_right_shift"):
            low = 0
        return random.integers(low, 7, shape).astype(dtype)
    low, high = row.domains[operand] if row.domains else (-3.0, 3.0)
    array = random.uniform(low, high, shape)
    array = np.where(random.integers(0, 4, shape) == 0, random.choice(CORNERS, shape), array)
    return np.asarray(array, np.float64 if dtype == "float64" else np.float32)


def result_dtype(row, dtype):
    if row.macro in ("PREDICATE", "COMPARE", "LOGICAL"):
        return "bool"
    return "float32" if row.types == "FLOAT" and dtype not in FLOATS else dtype


# Ours is the limit where an operand is infinite, PyTorch's the NaN of 0 times infinity (docs/testing.md).
LIMITS = ("gelu", "gelu_tanh", "hardswish", "mish", "silu", "softsign")


def meant(row, arrays, ours):
    """The elements that differ from the reference on purpose."""
    if row.name not in LIMITS:
        return np.zeros(ours.shape, bool)
    return np.isinf(arrays[0]) & np.isin(ours, [-1.0, 0.0, 1.0])


def answer(row, arrays, numbers, dtype):
    wide = [a.astype(np.float64) for a in arrays] if dtype in FLOATS or row.types == "FLOAT" else arrays
    with np.errstate(all="ignore"):
        if row.name == "nextafter":  # of the dtype's own numbers
            if dtype == "float16" or dtype == "float64":
                return np.nextafter(*arrays)
            if dtype == "bfloat16":
                return torch.nextafter(*(torch.tensor(a, dtype=torch.bfloat16) for a in arrays)).float().numpy()
            return np.nextafter(*(a.astype(np.float32) for a in arrays))
        if row.module == "numpy":
            numbers = [np.asarray(n, wide[0].dtype) for n in numbers]
            return row.numpy(wide, numbers)
        return np.asarray(row.torch([torch.tensor(a) for a in wide], numbers))


def check(row, random, dtype):
    shapes = broadcast(random) if row.inputs == 2 else one(random)
    numbers = row.numbers(random, dtype not in FLOATS and row.types != "FLOAT")
    layouts = [str(random.choice(operands.LAYOUTS)) for _ in shapes]
    given = [
        operands.operand(values(row, random, shape, dtype, i), layout, random, dtype=dtype)[0]
        for i, (shape, layout) in enumerate(zip(shapes, layouts))
    ]
    what = f"nd_{row.name} of {dtype} {shapes} {layouts} {numbers}"
    try:
        found = call(f"nd_{row.name}", *given, *(Number(n) for n in numbers))
    except operands.Error as error:
        raise AssertionError(f"{what}: {error}")
    wanted = result_dtype(row, dtype)
    assert found.dtype == wanted, f"{what}: {found.dtype}, not {wanted}"
    arrays = [operands.array_of(x) for x in given]
    expected = answer(row, arrays, numbers, dtype)
    ours = operands.array_of(found)
    assert ours.shape == expected.shape, f"{what}: shape {ours.shape}, not {expected.shape}"
    with np.errstate(all="ignore"):
        if wanted == "float32" or wanted == "float16":
            expected = expected.astype(wanted)
        elif wanted == "bfloat16":
            expected = torch.tensor(expected).to(torch.bfloat16).double().numpy()
    if wanted in FLOATS:
        ours, expected = ours.astype(np.float64), expected.astype(np.float64)
        agree = np.isclose(ours, expected, RELATIVE[wanted], ABSOLUTE[wanted], equal_nan=True)
    else:
        agree = ours == expected
    agree = agree | meant(row, arrays, ours)
    if not np.all(agree):
        at = tuple(int(i) for i in np.argwhere(~agree)[0])
        whole = np.broadcast_arrays(*arrays)
        raise AssertionError(f"{what}, of {[a[at] for a in whole]} at {at}: {ours[at]!r}, not {expected[at]!r}")


def main():
    count, seed, names = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    torch.set_num_threads(1)
    pairs = [(row, dtype) for row in ROWS if not names or row.name in names for dtype in TYPES[row.types]]
    differences, failed = 0, {}
    for number in range(max(count, len(pairs))):
        row, dtype = pairs[number % len(pairs)]
        try:
            check(row, np.random.default_rng([seed, number]), dtype)
        except AssertionError as error:
            differences += 1
            failed[row.name] = failed.get(row.name, 0) + 1
            if failed[row.name] == 1:
                print(f"call {number} of seed {seed}: {str(error).strip()}")
    alive = operands.objects_alive()
    print(f"{max(count, len(pairs))} calls of {len(pairs)} pairs of row and dtype, {differences} differ {failed or ''}, {alive} objects are left")
    return 1 if differences or alive else 0


if __name__ == "__main__":
    sys.exit(main())
