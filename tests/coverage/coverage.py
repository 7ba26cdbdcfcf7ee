#!/usr/bin/env python3
"""Branch coverage of the core by its quick tests, held against the list of what is known not to be covered.

    tests/coverage/coverage.py             builds lib/core with gcov, runs the tests, compares with uncovered.txt
    tests/coverage/coverage.py --write     writes uncovered.txt anew; lines that were there keep their reason, new ones get the first
                                           that matches in reasons.txt

A branch is one way out of a condition, as gcov counts them. uncovered.txt holds one line of code each, with the number of its branches that
no test took and the reason. It fails when a line has more than the list says, or when the list has a line whose branches are all taken.
"""

import argparse
import collections
import os
import pathlib
import re
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "mutation"))

from room import Room  # noqa: E402

LIST = HERE / "uncovered.txt"
TARGET = "lib/core"
UNKNOWN = "not looked at yet"
RACY = "depends on how threads meet: some runs take it"


def branches(room):
    """{(path, line): [times each branch was taken]}, summed over the sources that include a header."""
    found = {}
    for file in room.coverage():
        for line in file["lines"]:
            taken = [branch["count"] for branch in line["branches"]]
            key = (file["file"], line["line_number"])
            before = found.get(key, [])
            if taken and len(before) == len(taken):
                taken = [a + b for a, b in zip(before, taken)]
            if taken and (not before or len(before) == len(taken)):
                found[key] = taken
    return found


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
    known = {}
    for line in LIST.read_text().splitlines() if LIST.exists() else []:
        if line and not line.startswith("#"):
            path, count, text, reason = line.split(" | ", 3)
            known[path, text] = (int(count), reason)
    return known


def default_reason(path, text):
    for rule in (HERE / "reasons.txt").read_text().splitlines():
        if rule and not rule.startswith("#"):
            pattern, reason = rule.rsplit(" | ", 1)
            if re.search(pattern.strip(), f"{path}: {text}"):
                return reason
    return UNKNOWN


def reason_of(path, text, known):
    reason = known.get((path, text), (0, UNKNOWN))[1]
    return default_reason(path, text) if reason == UNKNOWN else reason


def write_list(absent, known):
    """What another run took and this one did not, or the other way round, stays as racy. To begin anew, delete the list."""
    for key, (count, _reason) in known.items():
        if absent.get(key, 0) < count:
            known[key] = (count, RACY)
            absent[key] = count
    lines = ["# Branches of lib/core that its quick tests do not take: path | how many | line | reason. tests/coverage/coverage.py compares."]
    for (path, text), count in sorted(absent.items()):
        lines.append(f"{path} | {count} | {text} | {reason_of(path, text, known)}")
    LIST.write_text("\n".join(lines) + "\n")


def compare(absent, known):
    """How many lines differ from the list, which are printed."""
    wrong = 0
    for (path, text), count in sorted(absent.items()):
        listed = known.get((path, text), (0, ""))[0]
        if count > listed:
            print(f"{path}: {count} branches not taken, {listed} listed: {text}")
            wrong += 1
    for path, text in sorted(key for key in set(known) - set(absent) if known[key][1] != RACY):
        print(f"{path}: listed, and covered: {text}")
        wrong += 1
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        room = Room(ROOT, folder, TARGET, flags=("-O0", "--coverage"))
        room.build()
        for test in room.tests:
            if room.run(test, 600) != "passed":
                sys.exit(f"{test} fails")
        found = branches(room)
    total = sum(len(taken) for taken in found.values())
    taken = sum(count > 0 for line in found.values() for count in line)
    print(f"{taken} of {total} branches of {TARGET}/ taken: {100 * taken / total:.1f} %")
    absent, known = missing(found), read_list()
    if options.write:
        write_list(absent, known)
        return 0
    wrong = compare(absent, known)
    unknown = sum(reason == UNKNOWN for _count, reason in known.values())
    print(f"{len(absent)} lines with branches that no test takes, {unknown} of them {UNKNOWN}, {wrong} not as the list says")
    return wrong != 0


if __name__ == "__main__":
    os.environ.setdefault("GCOV_EXIT_AT_ERROR", "0")
    sys.exit(main())
