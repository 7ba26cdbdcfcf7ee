#!/usr/bin/env python3
"""operations.py ROOT FOLDER: writes docs/operations.md and include/nd/detail/functions.hpp into a folder.

Both are made from the public headers and kernels/ops.inc of the repository at ROOT: the page lists every function that makes a
tensor or writes one in place, with what the table says of it, and those with a form nd_NAME_out; the C++ header has nd::NAME for
every nd_NAME that returns a tensor.
A row without a function is an error, and an operation that no test calls.
"""

import pathlib
import re
import sys
import textwrap

FIRST = ("ops", "neural", "tensor")  # of the page; the other headers follow
NO_OPERATIONS = ("autograd", "dlpack", "gguf", "image", "io", "nn", "object")
ELEMENTWISE = ("UNARY", "PREDICATE", "BINARY", "COMPARE", "LOGICAL")
DTYPES = {
    "ANY": "any",
    "NUMBER": "numbers",
    "FLOAT": "floats; integers become f32",
    "INTEGER": "integers",
    "BITS": "integers, bool",
    "BOOL": "bool",
}
GRADIENTS = {"YES": "any order", "ANY": "any order", "ZERO": "constant", "NO": "refused", "": "–"}


def arguments(text):
    """The arguments of a macro, split at its own commas, without quotes."""
    parts, depth, quoted, part = [], 0, False, ""
    for character in text:
        if character == '"':
            quoted = not quoted
        if not quoted and character in "([{":
            depth += 1
        if not quoted and character in ")]}":
            depth -= 1
            if depth < 0:
                break
        if character == "," and depth == 0 and not quoted:
            parts.append(part.strip())
            part = ""
        else:
            part += character
    return [piece.strip('"') for piece in parts + [part.strip()]]


def read_table(root):
    """The rows: {macro: {name: the other arguments}}."""
    text = re.sub(r"^(//|#).*(\\\n.*)*\n", "", (root / "kernels/ops.inc").read_text(), flags=re.M)
    rows = {}
    for match in re.finditer(r"^ND_([A-Z]+)\(", text, flags=re.M):
        row = arguments(text[match.end():])
        rows.setdefault(match[1], {})[row[0]] = row[1:]
    return rows


def read_functions(root, headers, several):
    """(name, parameters, header, whether it returns one) of every function that makes a tensor or writes one in place, and of those
    of the names in `several` that make more than one."""
    found = []
    for header in headers:
        text = (root / f"include/nd/{header}.h").read_text()
        text = re.sub(r"//[^\n]*", "", text)
        pattern = r"^ND_API (nd_tensor \*|nd_status )nd_(\w+)\(([^;{]*?)\)\s*(ND_OWNED)?\s*;"
        for match in re.finditer(pattern, text, flags=re.M):
            makes = match[4] is not None
            writes = match[2].endswith("_") or (match[2] in several and "nd_tensor **ret_" in match[3])
            if makes or (match[1].startswith("nd_status") and writes):
                found.append((match[2], " ".join(match[3].split()), header, makes))
    return found


def read_forms(root):
    """The names of the functions that have a form nd_NAME_out()."""
    return re.findall(r"^ND_API nd_status nd_(\w+)_out\(", (root / "include/nd/out.h").read_text(), flags=re.M)


def line_of(name, rows, tests):
    """What the table says of a function, as the cells of its line; a dash where it says nothing."""
    for family in ELEMENTWISE:
        if name in rows[family]:
            types, _, _, gradient, _, _, _, standard, peer = rows[family][name]
            dtypes, tested = DTYPES[types], "long doubles"
            break
    else:
        if name in rows["FUNCTION"]:
            dtypes, gradient, standard, peer = rows["FUNCTION"][name]
        else:
            dtypes, standard, peer = "see its header", "", ""
            gradient = rows["OP"][name][2] if name in rows["OP"] else ""
        tested = ", ".join(tests.get(name, []))
    quoted = [f"`{cell}`" if cell else "–" for cell in (standard, peer)]
    return [f"`nd_{name}`", quoted[0], dtypes, GRADIENTS[gradient], quoted[1], tested]


def read_tests(root):
    """{function: the tests that call it}, of the operations that are no elementwise ones."""
    tests = {}
    paths = [path for room in ("ops", "tensor", "autograd") for path in sorted((root / "tests/unit" / room).glob("*.[ch]"))]
    paths = [path for path in paths if path.name != "error_names_test.c"]  # which looks at no result
    for path in paths + [root / "tests/behaviour/strided_views.c"]:
        for name in set(re.findall(r"\bnd_(\w+)\b", path.read_text())):
            tests.setdefault(name, []).append(f"`{path.parent.name}/{path.name}`")
    return {name: paths[:2] for name, paths in tests.items()}


def write_page(root, functions, rows, path):
    tests = read_tests(root)
    errors, lines = [], []
    for name, _, header, _ in functions:
        if header in NO_OPERATIONS:
            continue
        line = line_of(name, rows, tests)
        if not line[5]:
            errors.append(f"nd_{name}: no test calls it")
        else:
            lines.append((header, "| " + " | ".join(line) + " |"))
    names = {name for name, *_ in functions}
    forms = read_forms(root)
    errors += [f"nd_{name}_out: there is no nd_{name}" for name in forms if name not in names]
    public = [name for family in ELEMENTWISE for name, row in rows[family].items() if row[5] != "NONE"]
    for name in public + list(rows["FUNCTION"]):
        if name not in names:
            errors.append(f"kernels/ops.inc: no header declares nd_{name}")
    if errors:
        sys.exit("\n".join(errors))
    page = """# Operations

Every public function that makes a tensor or writes one, in the order of the headers. Written by `docs/operations.py` from the headers
and from [the table of operations](../kernels/ops.inc); `//tests/docs:operations_test` fails when this page is not what they say, and
`tests/symbols/interface.sh --write` writes it anew.

- *Standard*: its name in the [Python Array API standard](https://data-apis.org/array-api/2024.12/), 2024.12.
- *Dtypes* it takes, on the CPU and on CUDA; numbers are all but bool, integers have signs or not, floats are f16, bf16, f32 and f64.
- *Gradient*: of any order; constant, which means that no result requires one; or refused.
- *Elsewhere*: the function of NumPy or PyTorch with the same meaning.
- *Tested against*: long doubles stands for `tests/unit/ops/references.h`: every dtype, operands that lie in every way, special values;
  else tests that call it. Gradients, of first and second order, are held against differences, operations on
  random views against the same on copies, and CUDA's kernels against the CPU's in every dtype.
"""
    for header in dict(lines):
        page += f"\n## `<nd/{header}.h>`\n\n| function | standard | dtypes | gradient | elsewhere | tested against |\n"
        page += "|---|---|---|---|---|---|\n"
        page += "".join(line + "\n" for where, line in lines if where == header)
    page += "\n## `<nd/out.h>`\n\n"
    page += "What these return can be written to a tensor that the caller owns, by `nd_NAME_out`:\n\n"
    page += textwrap.fill(", ".join(f"`{name}`" for name in forms) + ".", 130) + "\n"
    path.write_text(page)


def names_of(parameters):
    """The names of parameters, as a call passes them on."""
    if parameters == "void":
        return []
    names = []
    for parameter in arguments(parameters):
        pointer = re.search(r"\(\*(\w+)\)", parameter)
        names.append(pointer[1] if pointer else re.search(r"(\w+)(\[\w*\])?$", parameter)[1])
    return names


def write_functions(functions, owners, path):
    text = """/// @file
/// The functions that make a tensor, for C++: nd::add(a, b) is nd_add(a, b), owned. Part of <nd/nd.hpp>.
///
/// docs/operations.py writes this file from the headers; it is not edited by hand. A call is no macro here: objects made by it
/// have no creation site, and no scope takes them.
#ifndef ND_DETAIL_FUNCTIONS_HPP
#define ND_DETAIL_FUNCTIONS_HPP
#ifndef ND_ND_HPP
#error "include <nd/nd.hpp>"
#endif

namespace nd {

/// @cond
// clang-format off
"""
    for name, parameters, _, makes in functions:
        if makes:
            parameters = re.sub(r"\(\*(\w+)\)", r"(*\1_function)", parameters)  # not the name of a C function,
            for owner in owners:  # nor of a type in nd.hpp
                parameters = re.sub(rf"\b{owner}(?=$|,)", f"the_{owner}", parameters)
            call = ", ".join(names_of(parameters))
            declared = f"({name})" if name in ("abs", "max", "min") else name  # macros of many programs
            text += f"inline tensor {declared}({parameters}) noexcept {{\n    return tensor((nd_{name})({call}));\n}}\n"
    text += """// clang-format on
/// @endcond

} // namespace nd

#endif
"""
    path.write_text(text)


def main():
    root, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    rows = read_table(root)
    headers = sorted(path.stem for path in (root / "include/nd").glob("*.h"))
    functions = read_functions(root, list(FIRST) + [header for header in headers if header not in FIRST], rows["FUNCTION"])
    if len(functions) < 150 or len(rows["UNARY"]) < 40:
        sys.exit(f"found {len(functions)} functions and {len(rows['UNARY'])} rows of UNARY")
    (folder / "docs").mkdir(parents=True, exist_ok=True)
    (folder / "include/nd/detail").mkdir(parents=True, exist_ok=True)
    write_page(root, functions, rows, folder / "docs/operations.md")
    owners = re.findall(r"^using (\w+) = owned<", (root / "include/nd/nd.hpp").read_text(), flags=re.M)
    write_functions(functions, owners, folder / "include/nd/detail/functions.hpp")


main()
