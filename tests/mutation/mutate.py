#!/usr/bin/env python3
"""Puts small faults into the library one at a time and says which the tests do not see.

    tests/mutation/mutate.py [--target core] [--count 200] [--seed 1] [--only PART-OF-PATH:LINE ...] [--list]
                             [--keep FOLDER [--seconds N]]
    tests/mutation/mutate.py --named [--keep FOLDER] [--only PART-OF-PATH]

Each fault is of a class: a comparison changed, a condition negated, a statement, lock, retain or release removed, a number or a
truth value changed, an order of memory weakened. The seed decides which of the possible faults are tried, so the same seed on the
same tree tries the same ones. A fault is killed when a test fails or does not end, or when the compiler refuses it (which does not
count). Faults that change nothing anybody could see are listed in equivalent.txt with the reason, and do not count either.

gcov says first which tests reach which line, and only those are run, first those that have killed faults of the same file; so a line that
no test reaches is a survivor at once. (Tests whose processes end by a fault that is meant to be seen do not tell what they reach: they are
always run.) The tree is never changed: a fault is compiled from a copy of its file. With --keep a folder holds what
was built and found, so that the next call goes on from there; what has survived is tried again when tests have changed.

With --named it tries the faults of named.txt instead, each against the one test that is said there to see it, and fails when that does
not, or when the line is not there any more.
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import queue
import random
import re
import sys
import tempfile
import threading
import time

from room import CORE, Room, needs_objects, folders_of

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

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


def all_faults(target, only):
    for path in sorted(path for folder in folders_of(target) for path in (ROOT / folder).glob("*.c")):
        name = str(path.relative_to(ROOT))
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if not only or any(f"{name}:{number}".endswith(part) if ":" in part else part in name for part in only):
                yield from faults_of_line(name, number, line)


def rows_of(name):
    """The rows of a file beside this one, each the parts of a line."""
    for line in (HERE / name).read_text().splitlines():
        if line and not line.startswith("#"):
            yield [part.strip() for part in line.split(" | ")]


def equivalents():
    """(path, line as it is, line as it would be) of the faults that change nothing, without white space around."""
    return {(path, before, after) for path, before, after, _reason in rows_of("equivalent.txt")}


def compile_and_link(room, fault, place):
    """{source: its object with the fault}, with the libraries in the folder `place`; None when the compiler or the linker refuses."""
    place.mkdir(parents=True, exist_ok=True)
    text, changed = place / pathlib.Path(fault.path).name, place / "changed.o"
    lines = (ROOT / fault.path).read_text().splitlines()
    lines[fault.line - 1] = fault.after
    text.write_text("\n".join(lines) + "\n")
    other = {fault.path: changed}
    return other if room.compile(fault.path, text, changed) and room.link(other, place) else None


def run_with(room, test, seconds, other, place):
    """As Room.run, with what compile_and_link has made."""
    program = None
    if needs_objects(test):
        program = place / "program"
        room.link_test(test, other, program)
    return room.run(test, seconds, place, program)


class Trial:
    """Tries faults in a room: knows which tests reach a line, how long they may take, and which have killed what before."""

    def __init__(self, folder, target, jobs):
        self.folder = pathlib.Path(folder)
        self.room = Room(ROOT, self.folder / "built", target, jobs=jobs)
        self.room.build()
        self.memory = self.folder / "memory.json"
        memory = json.loads(self.memory.read_text()) if self.memory.exists() else {}
        self.reached = memory.get("reached", {})  # {test: {"stamp": …, "lines": {path: [line, …]}}}
        self.seconds = memory.get("seconds", {})  # {test: without a fault}
        self.kills = memory.get("kills", {})      # {path: {test: how many}}
        self.found = memory.get("found", {})      # {fault: [test that saw it or None, the stamp of all]}
        self.lock = threading.Lock()
        sources = [ROOT / source for source in self.room.sources]
        self.stamp_of_library = max(path.stat().st_mtime for path in sources)
        self.stamp = max([self.stamp_of_library] + [(ROOT / test).stat().st_mtime for test in self.room.tests])
        self.silent = {test for test in self.room.tests if re.search(r"\bfork\(\)", (ROOT / test).read_text())}
        self.known_lines = {}
        self.look(jobs)

    def save(self):
        with self.lock:
            self.memory.write_text(json.dumps(
                {"reached": self.reached, "seconds": self.seconds, "kills": self.kills, "found": self.found}))

    def look(self, jobs):
        """Which lines each test reaches, by gcov, and how long it takes as it will be built."""
        def stamp(test):
            return max(self.stamp_of_library, (ROOT / test).stat().st_mtime)
        old = [test for test in self.room.tests if self.reached.get(test, {}).get("stamp") != stamp(test)]
        if old:
            counted = Room(ROOT, self.folder / "counted", self.room.target, flags=("-O0", "--coverage"), jobs=jobs)
            counted.build()
            counted.coverage()
        for test in old:
            begin = time.monotonic()
            if self.room.run(test, 120) != "passed":
                if test not in self.room.own:
                    sys.exit(f"{test} fails without a fault")
                print(f"left out: {test}, which does not run here")
                self.room.tests.remove(test)
                continue
            self.seconds[test] = time.monotonic() - begin
            if counted.run(test, 120) != "passed":
                sys.exit(f"{test} fails without a fault, counted by gcov")
            lines, known = collections.defaultdict(set), collections.defaultdict(set)
            for file in counted.coverage():
                for line in file["lines"]:
                    known[file["file"]].add(line["line_number"])
                    if line["count"]:
                        lines[file["file"]].add(line["line_number"])
            self.reached[test] = {"stamp": stamp(test), "lines": {path: sorted(numbers) for path, numbers in lines.items()},
                                  "known": {path: sorted(numbers) for path, numbers in known.items()}}
        self.save()
        for test in self.room.tests:
            for path, numbers in self.reached[test]["known"].items():
                self.known_lines.setdefault(path, set()).update(numbers)

    def tests_for(self, fault):
        """Those that reach the line, or the one that the statement began in, in the order in which to run them."""
        number = fault.line
        before = [line for line in self.known_lines.get(fault.path, ()) if line <= number]
        tests = self.room.tests
        if before and fault.line - max(before) < 4:
            tests = [test for test in tests
                     if test in self.silent or max(before) in self.reached[test]["lines"].get(fault.path, ())]
        kills = self.kills.get(fault.path, {})
        return sorted(tests, key=lambda test: -(1 + kills.get(test, 0)) / (0.1 + self.seconds[test]))

    def attempt(self, fault, place):
        """The test that sees the fault, "compiler", or None; `place` is this thread's folder."""
        other = compile_and_link(self.room, fault, place)
        if not other:
            return "compiler"
        for test in self.tests_for(fault):
            verdict = run_with(self.room, test, 5 + 8 * self.seconds[test], other, place)
            if verdict != "passed":
                with self.lock:
                    kills = self.kills.setdefault(fault.path, {})
                    kills[test] = kills.get(test, 0) + 1
                return test if verdict == "failed" else f"{test}, by its time"
        return None

    def seen(self, fault):
        """(whether it was tried before, what saw it)."""
        verdict, stamp, before = self.found.get(name_of(fault), (None, 0, ""))
        tried = before == fault.before and (verdict is not None or stamp == self.stamp)
        return tried, verdict

    def note(self, fault, verdict):
        with self.lock:
            self.found[name_of(fault)] = (verdict, self.stamp, fault.before)


def name_of(fault):
    return f"{fault.path}:{fault.line}: {fault.kind}: {fault.before.strip()}  ->  {fault.after.strip()}"


def try_all(trial, chosen, jobs, seconds):
    """[(fault, what saw it)] of those tried within the time."""
    results, waiting = [], queue.SimpleQueue()
    end = time.monotonic() + seconds
    for fault in chosen:
        tried, verdict = trial.seen(fault)
        if tried:
            results.append((fault, verdict))
        else:
            waiting.put(fault)

    def work(number):
        while time.monotonic() < end:
            try:
                fault = waiting.get_nowait()
            except queue.Empty:
                return
            verdict = trial.attempt(fault, trial.folder / f"worker{number}")
            trial.note(fault, verdict)
            trial.save()
            results.append((fault, verdict))
            if verdict is None:
                print(f"SURVIVED {name_of(fault)}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(work, range(jobs)))
    return results


def report(trial, results, chosen, show):
    kinds = collections.defaultdict(lambda: [0, 0])
    by_time = 0
    for fault, verdict in results:
        if show or verdict is None:
            reached = "" if set(trial.tests_for(fault)) - trial.silent else " (no test reaches the line)"
            print(f"{verdict or 'NOBODY'}{reached}: {name_of(fault)}")
        if verdict != "compiler":
            kinds[fault.kind][0] += verdict is not None
            kinds[fault.kind][1] += 1
            by_time += bool(verdict) and verdict.endswith("by its time")
    for kind, (killed, tried) in sorted(kinds.items()):
        print(f"{kind:20} {killed:4} of {tried}")
    killed, tried = (sum(numbers) for numbers in zip(*kinds.values())) if kinds else (0, 0)
    print(f"killed {killed} of {tried}: {100 * killed / max(tried, 1):.0f} %; {by_time} of them by a test that did not end; "
          f"{len(chosen) - len(results)} not tried yet")
    return len(results) == len(chosen)


def try_named(folder, only, jobs):
    """Tries the faults of named.txt; 0 when the test of each sees it."""
    rows = [row for row in rows_of("named.txt") if not only or any(part in row[0] for part in only)]
    room = Room(ROOT, folder / "built", jobs=jobs)
    unknown = {test for *_, test in rows} - set(room.tests)
    if unknown:
        sys.exit(f"no tests of room.py: {', '.join(sorted(unknown))}")
    room.tests = [test for test in room.tests if any(test == row[-1] for row in rows)]
    room.build()
    seconds = {}
    for test in room.tests:
        begin = time.monotonic()
        if room.run(test, 120) != "passed":
            sys.exit(f"{test} fails without a fault")
        seconds[test] = time.monotonic() - begin
    bad = 0
    for path, before, after, test in rows:
        numbers = [number for number, line in enumerate((ROOT / path).read_text().splitlines(), 1) if line.strip() == before]
        verdict = "not one line of its file, and not seen"
        if len(numbers) == 1:
            other = compile_and_link(room, Fault(path, numbers[0], "named", before, after), folder / "named")
            verdict = run_with(room, test, 5 + 8 * seconds[test], other, folder / "named") if other else "does not compile, and not seen"
            verdict = {"failed": "seen", "timeout": "seen by its time", "passed": "not seen"}.get(verdict, verdict)
        seen = verdict in ("seen", "seen by its time")
        bad += not seen
        print(f"{verdict if seen else verdict.upper()} by {test}: {path}: {before}  ->  {after}", flush=True)
    print(f"{len(rows) - bad} of {len(rows)} named faults are seen")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default=CORE, help="what to change: core, which is all its rooms, or a folder: lib/gc, lib/tensor, lib/ops, lib/autograd, lib/io, …")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", default=[], help="part of a path, or the end of path:line; may be repeated")
    parser.add_argument("--keep", help="folder in which builds and results stay")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further fault after so long; 3 is returned")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="only list the faults")
    parser.add_argument("--named", action="store_true", help="try the faults of named.txt")
    parser.add_argument("--show", action="store_true", help="also say which test killed what")
    options = parser.parse_args()
    if options.named:
        with tempfile.TemporaryDirectory() as folder:
            return try_named(pathlib.Path(options.keep or folder), options.only, options.jobs)

    known = equivalents()
    possible = list(all_faults(options.target, options.only))
    chosen = random.Random(options.seed).sample(possible, min(options.count, len(possible)))
    sample = len(chosen)
    chosen = [fault for fault in chosen if (fault.path, fault.before.strip(), fault.after.strip()) not in known]
    print(f"{sample} of {len(possible)} possible faults of {options.target}, seed {options.seed}; "
          f"{sample - len(chosen)} of them change nothing", flush=True)
    if options.list:
        for fault in chosen:
            print(name_of(fault))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(options.keep or folder, options.target, options.jobs)
        results = try_all(trial, chosen, options.jobs, options.seconds)
        return 0 if report(trial, results, chosen, options.show) else 3


if __name__ == "__main__":
    sys.exit(main())
