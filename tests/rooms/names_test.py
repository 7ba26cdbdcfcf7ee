#!/usr/bin/env python3
"""names_test.py ROOT: that a name says in which file it lives.

- What a file of lib/ shares with others is called nd__FILE_..., or nd__WORD_... where WORD begins the name of the file
  (safetensors_read.c: nd__safetensors_open); a plural file may drop its s (cells.c: nd__cell_new).
- A function of FILE.c that others use is declared in FILE.h beside it, and no header declares functions of two files.
- A unit test is tests/unit/FOLDER/FILE_test.c or begins so, for a FILE of lib/FOLDER, in the rooms of the core.
"""

import pathlib
import re
import sys

ROOMS = ("base", "object", "manager", "pressure")  # those that have unit tests of their own
# Made by macros from the table of operations: nd__rule_NAME is the gradient rule of the operation NAME, in rules_FAMILY.c.
FAMILIES = {"nd__rule_": re.compile(r"rules(_\w+)?|function")}
# Headers of several files that stand for one thing.
COLLECTING = {
    "lib/autograd/autograd.h",  # the engine, gradients, hooks
    "lib/autograd/rules.h",  # one rule for each row of the table of operations
    "lib/device/backends.h",  # one table for each kind of device
    "lib/device/cuda/cuda_device.h",  # one device in three files
    "lib/base/seam.h",  # defined above all rooms
}


def without_comments(text):
    text = re.sub(r"/\*.*?\*/", "", re.sub(r"//[^\n]*", "", text), flags=re.S)
    return re.sub(r'"(?:\\.|[^"\\\n])*"', '""', text)


def top_level(text):
    """The text outside all braces, each outermost pair of which has become {}; no preprocessor lines."""
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*\n", "\n", without_comments(text), flags=re.M)
    text = re.sub(r'extern "C(?:\+\+)?" \{', "", text)
    out, depth = [], 0
    for character in text:
        if character == "{":
            depth += 1
            if depth == 1:
                out.append("{")
        elif character == "}":
            depth -= 1
            if depth == 0:
                out.append("}")
        elif depth <= 0:
            out.append(character)
    return "".join(out)


def without_arguments(head):
    while True:
        shorter = re.sub(r"\([^()]*\)", "", head)
        if shorter == head:
            return head
        head = shorter


def functions(text):
    """(name, whether static, whether defined) of each function of the library that is declared or defined."""
    found = []
    for piece in re.findall(r"[^;{}]*(?:;|\{\})", top_level(text)):
        defined = piece.endswith("{}")
        head = without_arguments(piece.rstrip("{};")).strip()
        name = re.search(r"\b(nd__\w+)(?:\s+__attribute__|\s+ND_\w+)*\s*$", head)
        called = name and re.search(re.escape(name.group(1)) + r"\s*\(", piece)
        if not called or "=" in head or re.match(r"typedef\b|struct\b[^*]*$", head):
            continue
        found.append((name.group(1), re.search(r"\bstatic\b", head) is not None, defined))
    return found


def is_named_after(name, stem):
    words = stem.split("_")
    for length in range(len(words), 0, -1):
        start = "_".join(words[:length])
        for form in (start, start[:-1] if start.endswith("s") else start):
            if name == "nd__" + form or name.startswith(f"nd__{form}_"):
                return True
    return any(name.startswith(family) and stems.fullmatch(stem) for family, stems in FAMILIES.items())


def check(root):
    complaints = []
    public = set()
    for header in (root / "include").rglob("*.h*"):
        public |= set(re.findall(r"\bnd__\w+", header.read_text()))
    defined_in, checked = {}, 0
    sources = sorted(path for path in (root / "lib").rglob("*") if path.suffix in (".c", ".h"))
    for path in sources:
        for name, static, defined in functions(path.read_text()):
            if name in public or not defined or (path.suffix == ".c" and static):
                continue
            checked += 1
            if path.suffix == ".c":
                defined_in.setdefault(name, path)
            if not is_named_after(name, path.stem):
                complaints.append(f"{path.relative_to(root)}: {name} is not named after its file")
    for path in sources:
        if path.suffix != ".h" or str(path.relative_to(root)) in COLLECTING:
            continue
        homes = {defined_in[name].with_suffix("") for name, _, defined in functions(path.read_text())
                 if not defined and name in defined_in}
        others = sorted(str(home.relative_to(root)) for home in homes if home != path.with_suffix(""))
        if others:
            complaints.append(f"{path.relative_to(root)} declares functions of {', '.join(others)}")
    for room in ROOMS:
        files = {path.stem for path in (root / "lib" / room).iterdir() if path.suffix in (".c", ".h")}
        for path in sorted((root / "tests/unit" / room).glob("*_test.c")):
            if not any(path.stem.startswith(file) for file in files):
                complaints.append(f"{path.relative_to(root)} is not named after a file of lib/{room}")
    return complaints, checked


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    assert functions("bool nd__b_c(int (*f)(void), int a[2]);\nstatic int nd__x(void) { return nd__y(1); }\nint nd__v = 3;") == [
        ("nd__b_c", False, False),
        ("nd__x", True, True),
    ]
    assert is_named_after("nd__cell_new", "cells") and not is_named_after("nd__cell_new", "cellar")
    complaints, checked = check(root)
    print("\n".join(complaints))
    print(f"{checked} functions")
    if checked < 300:
        sys.exit("these are fewer than there were: the check sees no functions any more")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
