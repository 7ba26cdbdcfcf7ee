#!/usr/bin/env python3
"""Puts small faults into lib/core one at a time and says which the tests do not see.

    tests/mutation/mutate.py [--count 200] [--seed 1] [--only PART-OF-A-PATH] [--list]

Each fault is of a class: a comparison changed, a condition negated, a statement, lock, retain or release removed, a number or a
truth value changed, an order of memory weakened. The seed decides which of the possible faults are tried, so the same seed on the
same tree tries the same ones. A fault is killed when a test fails or does not end, or when the compiler refuses it (which does not
count). Faults that change nothing anybody could see are listed in equivalent.txt with the reason, and do not count either.

The tree is copied, never changed. Beside other work a fault costs some seconds, one that survives the sum of all tests.
"""

import argparse
import collections
import pathlib
import random
import re
import shutil
import sys
import tempfile
import time

from room import Room

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = "lib/core"

Fault = collections.namedtuple("Fault", "path line kind before after")

COMPARISONS = {" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " == ": " != ", " != ": " == ", " && ": " || ", " || ": " && "}
ORDERS = re.compile(r"\b(acquire|release|acq_rel|seq_cst)\)")
CALL = re.compile(r"^\s+[a-z_]\w*\([^{}]*\);\s*(//.*)?$")
ASSIGNMENT = re.compile(r"^\s+\*?[a-z_][\w.\->\[\]]*(->|\.)\w+ (=|\+=|-=|\|=|&=) [^{}]*;\s*(//.*)?$")
CONDITION = re.compile(r"^(\s+(?:\} else )?(?:if|while) )\((.*)\)( \{)?$")


def code_of(line):
    """The line without its comment."""
    return line.split("//")[0].rstrip()


def balanced(text):
    depth = 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            return False
    return depth == 0


def faults_of_line(path, number, line):
    """Every fault that one line can have."""
    code = code_of(line)
    if not code.startswith("    ") or '"' in code or "_Static_assert" in code or "nd__error" in code:
        return
    def fault(kind, after):
        return Fault(path, number, kind, line, after)
    for before, after in COMPARISONS.items():
        at = code.find(before)
        if at >= 0:
            yield fault("comparison", code[:at] + after + code[at + len(before):])
    match = CONDITION.match(code)
    if match and balanced(match[2]):
        yield fault("negated", f"{match[1]}(!({match[2]})){match[3] or ''}")
    if (CALL.match(line) or ASSIGNMENT.match(line)) and "return" not in code:
        indent = code[:len(code) - len(code.lstrip())]
        kind = "lock" if "lock(" in code else "retain or release" if re.search(r"retain|release", code) else "statement"
        yield fault(kind, indent + ";")
    for match in re.finditer(r"(?<![\w.])(\d+)(?![\w.])", code):
        yield fault("number", code[:match.start()] + str(int(match[1]) + 1) + code[match.end():])
    for match in re.finditer(r"\b(true|false)\b", code):
        yield fault("truth", code[:match.start()] + ("false" if match[1] == "true" else "true") + code[match.end():])
    for match in ORDERS.finditer(code):
        yield fault("order", code[:match.start()] + "relaxed)" + code[match.end():])


def all_faults(only):
    for path in sorted((ROOT / TARGET).glob("*.[ch]")):
        name = str(path.relative_to(ROOT))
        if only not in name or name.endswith(".h"):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            yield from faults_of_line(name, number, line)


def equivalents():
    """(path, line as it is, line as it would be) of the faults that change nothing, without white space around."""
    found = set()
    for line in (HERE / "equivalent.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            path, before, after, _reason = [part.strip() for part in line.split(" | ")]
            found.add((path, before, after))
    return found


def try_fault(room, fault, limits):
    """The test that sees the fault, "compiler", or None."""
    source = room.root / fault.path
    text = source.read_text()
    lines = text.splitlines()
    lines[fault.line - 1] = fault.after
    source.write_text("\n".join(lines) + "\n")
    try:
        if not room.compile(fault.path) or not room.link():
            return "compiler"
        for test in room.tests:
            if room.run(test, limits[test]) != "passed":
                return test
        return None
    finally:
        source.write_text(text)
        room.compile(fault.path)


def measure(room):
    """Seconds that each test may take: ten times what it takes without a fault. All must pass."""
    limits = {}
    for test in room.tests:
        begin = time.monotonic()
        if room.run(test, 300) != "passed":
            sys.exit(f"{test} fails without a fault")
        limits[test] = 10 + 10 * (time.monotonic() - begin)
    return limits


def report(results):
    kinds = collections.defaultdict(lambda: [0, 0])
    for fault, seen in results:
        if seen != "compiler":
            kinds[fault.kind][0] += seen is not None
            kinds[fault.kind][1] += 1
    for kind, (killed, tried) in sorted(kinds.items()):
        print(f"{kind:20} {killed:4} of {tried}")
    killed, tried = (sum(numbers) for numbers in zip(*kinds.values())) if kinds else (0, 0)
    print(f"killed {killed} of {tried}: {100 * killed / max(tried, 1):.0f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="part of the path of the files to change")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further fault after so long")
    parser.add_argument("--list", action="store_true", help="only list the faults")
    options = parser.parse_args()

    known = equivalents()
    possible = [fault for fault in all_faults(options.only) if (fault.path, fault.before.strip(), fault.after.strip()) not in known]
    chosen = random.Random(options.seed).sample(possible, min(options.count, len(possible)))
    print(f"{len(chosen)} of {len(possible)} possible faults, seed {options.seed}", flush=True)
    if options.list:
        for fault in chosen:
            print(f"{fault.path}:{fault.line}: {fault.kind}: {fault.before.strip()}  ->  {fault.after.strip()}")
        return 0

    results = []
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "tree"
        for part in ("lib", "include", "tests", "kernels"):
            shutil.copytree(ROOT / part, copy / part)
        room = Room(copy, pathlib.Path(folder) / "build")
        room.build()
        limits = measure(room)
        begin = time.monotonic()
        for fault in chosen:
            if time.monotonic() - begin > options.seconds:
                break
            seen = try_fault(room, fault, limits)
            results.append((fault, seen))
            if seen is None:
                print(f"SURVIVED {fault.path}:{fault.line}: {fault.kind}: {fault.before.strip()}  ->  {fault.after.strip()}", flush=True)
    report(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
