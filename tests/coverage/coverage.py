#!/usr/bin/env python3
"""Branch coverage of the core by its quick tests, held against the list of what is known not to be covered.

    tests/coverage/coverage.py             builds the core's rooms with gcov, runs the tests, compares with uncovered.txt
    tests/coverage/coverage.py --write     writes uncovered.txt anew: lines that were there keep their reason, new ones have none yet

A branch is one way out of a condition, as gcov counts them. uncovered.txt holds one line of code each, with the number of its branches that
no test took, below the reason. It fails when a line has more than the list says or no reason, or when the list has a line whose branches
are all taken; but what depends on chance may be taken in one run and not in the next.
"""

import argparse
import collections
import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "mutation"))

from room import CORE, Room  # noqa: E402

LIST = HERE / "uncovered.txt"
TARGET = CORE
UNKNOWN = "not looked at yet"
CHANCE = "chance: "  # how a reason begins that some runs refute

# Beside the quick tests: the core's own that take longer, and for the branches that only threads take which meet often.
MORE_TESTS = (
    *(f"tests/unit/base/{name}_test.c" for name in ("affinity", "cpus", "optional", "pool", "pool_first")),
    "tests/unit/manager/destroy_test.c",
    *(f"tests/unit/debug/{name}_test.c" for name in ("check", "exit")),
    *(f"tests/behaviour/{name}.c" for name in ("bits", "nests")),
    "tests/faults/pooled_threads.c",
    *(f"tests/stress/{name}.c" for name in ("aliases", "boundaries", "callbacks", "collections", "gate", "hostile", "nests",
                                            "process", "reports", "tensors", "tree", "views")),
)
# Once more with what a process is told before it begins.
SETTINGS = (
    ("tests/behaviour/managers.c", {"ND_CHECK": "1"}),
    ("tests/behaviour/tensors.c", {"ND_CHECK": "1"}),
    ("tests/behaviour/tensor_accounts.c", {"ND_CHECK": "1"}),
    ("tests/behaviour/finalizers.c", {"ND_CHECK": "1"}),
    ("tests/behaviour/weak_references.c", {"ND_CHECK": "1"}),
    ("tests/unit/object/object_test.c", {"ND_CHECK": "1000000"}),
    ("tests/unit/object/object_test.c", {"ND_CHECK": "2"}),
    ("tests/unit/object/object_test.c", {"ND_CHECK": "-1"}),
    ("tests/unit/object/object_test.c", {"ND_CHECK": "1 MiB"}),
    ("tests/unit/object/object_test.c", {"ND_GC": "on"}),
    ("tests/unit/object/object_test.c", {"ND_GC": "warn"}),
    ("tests/unit/object/object_test.c", {"ND_GC": "no such mode"}),
)


def add_branches(found, room):
    """Adds to {(path, line): [times each branch was taken]}, summed over the sources that include a header."""
    for file in room.coverage():
        for line in file["lines"]:
            # gcov makes some counts out of others, and threads that count at once lose some: then one may be below zero.
            taken = [max(branch["count"], 0) for branch in line["branches"]]
            key = (file["file"], line["line_number"])
            before = found.get(key, [])
            if taken and len(before) == len(taken):
                taken = [a + b for a, b in zip(before, taken)]
            if taken and (not before or len(before) == len(taken)):
                found[key] = taken


def missing(found):
    """{(path, text of the line): branches not taken}; equal lines of a file are one entry."""
    result = collections.Counter()
    for (path, number), taken in found.items():
        absent = sum(count == 0 for count in taken)
        if absent:
            text = (ROOT / path).read_text().splitlines()[number - 1].strip()
            result[path, text.replace(" | ", " |")] += absent
    return result


def read_list():
    """{(path, text of the line): (branches, reason)}"""
    known, reason = {}, UNKNOWN
    for line in LIST.read_text().splitlines() if LIST.exists() else []:
        if line.startswith("## "):
            reason = line[3:]
        elif line and not line.startswith("#"):
            path, count, text = line.split(" | ", 2)
            known[path, text] = (int(count), reason)
    return known


def is_there(path, text):
    """Whether the file still has the line."""
    file = ROOT / path
    return file.exists() and text in {line.strip().replace(" | ", " |") for line in file.read_text().splitlines()}


def write_list(absent, known):
    """What depends on chance stays, with the most branches that a run did not take, as long as its line is there."""
    for key, (count, reason) in known.items():
        if reason.startswith(CHANCE) and is_there(*key):
            absent[key] = max(absent.get(key, 0), count)
    groups = collections.defaultdict(list)
    for (path, text), count in sorted(absent.items()):
        groups[known.get((path, text), (0, UNKNOWN))[1]].append(f"{path} | {count} | {text}")
    lines = ["# Branches of the core's rooms that tests/coverage/coverage.py sees no test take: path | how many | line, below the reason."]
    for reason in sorted(groups):
        lines += ["", f"## {reason}", *groups[reason]]
    LIST.write_text("\n".join(lines) + "\n")


def compare(absent, known):
    """How many lines differ from the list, which are printed."""
    wrong = 0
    for (path, text), count in sorted(absent.items()):
        listed = known.get((path, text), (0, ""))[0]
        if count > listed:
            print(f"{path}: {count} branches not taken, {listed} listed: {text}")
            wrong += 1
    for path, text in sorted(set(known) - set(absent)):
        if not is_there(path, text):
            print(f"{path}: listed, and no line of it: {text}")
            wrong += 1
        elif not known[path, text][1].startswith(CHANCE):
            print(f"{path}: listed, and covered: {text}")
            wrong += 1
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        room = Room(ROOT, folder, TARGET, flags=("-O0", "--coverage"), more=MORE_TESTS)
        room.build()
        found = {}
        for test, settings in [*((test, {}) for test in room.tests), *SETTINGS]:
            verdict = room.run(test, 600, settings=settings)
            if verdict != "passed":
                sys.exit(f"{test} {verdict} {settings or ''}")
            # After each: a child that is ended while it writes its counts spoils those of one test, not of all before.
            add_branches(found, room)
    total = sum(len(taken) for taken in found.values())
    taken = sum(count > 0 for line in found.values() for count in line)
    print(f"{taken} of {total} branches of the {TARGET} taken: {100 * taken / total:.1f} %")
    absent, known = missing(found), read_list()
    if options.write:
        write_list(absent, known)
        return 0
    wrong = compare(absent, known)
    unknown = sum(reason == UNKNOWN for _count, reason in known.values())
    print(f"{len(absent)} lines with branches that no test takes, {unknown} of them {UNKNOWN}, {wrong} not as the list says")
    return wrong + unknown != 0


if __name__ == "__main__":
    os.environ.setdefault("GCOV_EXIT_AT_ERROR", "0")
    sys.exit(main())
