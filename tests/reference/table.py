"""The elementwise rows of kernels/ops.inc, and what PyTorch and NumPy compute for each.

A row is a Row; ROWS has all that have a public function. Nothing is listed twice: a new row of the table is compared as soon as
its last column names a function of NumPy or PyTorch, and a row that names none is an error.
"""

import os
import re
import numpy as np
import torch

MACROS = ("UNARY", "PREDICATE", "BINARY", "COMPARE", "LOGICAL")
TABLE = os.environ.get("ND_TABLE") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../kernels/ops.inc")
# NumPy's names that PyTorch has not.
IN_TORCH = {"power": "pow", "invert": "bitwise_not", "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift", "equal": "eq", "not_equal": "ne"}


def arguments(text):
    """The arguments of a macro, up to the parenthesis that closes it."""
    parts, depth, quoted, part = [], 0, False, ""
    for character in text:
        if character == '"':
            quoted = not quoted
        elif not quoted and character == "(":
            depth += 1
        elif not quoted and character == ")":
            depth -= 1
            if depth < 0:
                break
        if character == "," and depth == 0 and not quoted:
            parts.append(part.strip())
            part = ""
        else:
            part += character
    return [piece.strip('"') for piece in parts + [part.strip()]]


class Row:
    def __init__(self, macro, columns):
        self.macro = macro
        self.name, self.types, _, _, self.differentiable, _, self.form, domain, _, self.peer = columns
        numbers = [float(n) for n in domain.strip("()").split(",")] if domain != "()" else []
        self.domains = [tuple(numbers[i : i + 2]) for i in range(0, len(numbers), 2)]

    @property
    def inputs(self):
        return 2 if self.form == "AB" else 1

    @property
    def module(self):
        return self.peer.split(".")[0]

    def numbers(self, random, integers):
        """The call's numbers: none, one, or two in order."""
        count = {"XP": 1, "XPQ": 2}.get(self.form, 0)
        if integers:
            low = 0 if self.name == "pow_scalar" else 1
            return tuple(sorted(int(n) for n in random.integers(low, 5, count)))
        return tuple(sorted(float(n) for n in np.round(random.uniform(0.5, 2, count), 2)))

    def torch(self, tensors, numbers):
        name = self.peer.rsplit(".", 1)[1]
        home = torch.nn.functional if self.peer.startswith("torch.nn.functional.") else torch
        if self.name == "gelu_tanh":
            return home.gelu(tensors[0], approximate="tanh")
        return getattr(home, IN_TORCH.get(name, name))(*tensors, *numbers)

    def numpy(self, arrays, numbers):
        assert self.module == "numpy", self.peer
        return getattr(np, self.peer.split(".")[1])(*arrays, *numbers)


def read_rows():
    with open(TABLE) as file:
        text = re.sub(r"^(//|#).*(\\\n.*)*\n", "", file.read(), flags=re.M)
    rows = []
    for match in re.finditer(r"^ND_(%s)\(" % "|".join(MACROS), text, flags=re.M):
        columns = arguments(text[match.end() :])
        if columns[6] != "NONE":
            rows.append(Row(match[1], columns))
    assert len(rows) > 60 and all(row.peer for row in rows), "the table was not read"
    return rows


ROWS = read_rows()
