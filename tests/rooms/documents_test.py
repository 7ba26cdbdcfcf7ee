#!/usr/bin/env python3
"""documents_test.py ROOT: that docs/architecture.md and docs/glossary.md lead to what is there.

- Each path of lib/, kernels/ and include/ that they name exists.
- Where a row of a table says that something is in a file (`name` | `file`, or: `name` in `file`), the file has that name.
- docs/architecture.md names each function of the seam that is called, and who asks is as lib/base/seam.h says.
"""

import pathlib
import re
import sys

PAGES = ("docs/architecture.md", "docs/glossary.md")
PATH = r"(?:lib|kernels|include)/[\w./*-]*"
# Paths and names in one row: `name` | `path`, `name` in `path`, `name` of `path`.
PLACE = re.compile(rf"`([^`]+)`(?: \| | in | of )`({PATH})`")


def has(root, path, name):
    """Whether a file (or one that a pattern with * names) has a name as a whole word."""
    files = sorted(root.glob(path))
    word = re.compile(r"(?<!\w)" + re.escape(name.replace("NAME", "")) + ("" if "NAME" in name else r"(?!\w)"))
    return any(word.search(file.read_text()) for file in files if file.is_file())


def check_page(root, page):
    text = (root / page).read_text()
    complaints, checked = [], 0
    for path in sorted(set(re.findall(rf"`({PATH})`", text))):
        if not list(root.glob(path)):
            complaints.append(f"{page}: {path} is not there")
    for name, path in PLACE.findall(text):
        if name.startswith("nd__seam_") and "seam" not in path:
            continue  # the table of the seam, whose last column says who answers
        checked += 1
        if not has(root, path, name):
            complaints.append(f"{page}: {name} is not in {path}")
    return complaints, checked


def askers(root):
    """For each function of the seam the rooms that call it."""
    found = {}
    for file in sorted((root / "lib").rglob("*")):
        if file.suffix in (".c", ".h") and file.name not in ("seam.h", "seam.c"):
            for name in re.findall(r"\bnd__seam_\w+", file.read_text()):
                found.setdefault(name, set()).add(str(file.parent.relative_to(root)))
    return found


def rooms_in(text):
    return set(re.findall(r"lib/\w+", text))


def check_seam(root):
    declared, named, rooms = {}, {}, set()
    for line in (root / "lib/base/seam.h").read_text().splitlines():
        heading = re.search(r"-- asked by (.*)", line)
        rooms = rooms_in(heading.group(1)) if heading else rooms
        for name in re.findall(r"\b(nd__seam_\w+)\(", line):
            declared[name] = rooms
    for cell, rest in re.findall(r"^\|([^|]*)\|(.*nd__seam_.*)$", (root / "docs/architecture.md").read_text(), re.M):
        for name in re.findall(r"`(nd__seam_\w+)`", rest):
            named[name] = rooms_in(cell)
    complaints = []
    for name, callers in sorted(askers(root).items()):
        if not callers <= declared.get(name, set()):
            complaints.append(f"lib/base/seam.h does not say that {name} is asked by {', '.join(sorted(callers))}")
        if named.get(name) != declared.get(name):
            complaints.append(f"docs/architecture.md: {name} is not in the row of those who ask")
    complaints += [f"docs/architecture.md: {name} is no function of the seam" for name in sorted(set(named) - set(declared))]
    return complaints, len(declared)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    assert has(root, "lib/base/error.c", "nd__error") and not has(root, "lib/base/error.c", "nd__erro")
    complaints, functions = check_seam(root)
    places = 0
    for page in PAGES:
        more, checked = check_page(root, page)
        complaints, places = complaints + more, places + checked
    print("\n".join(complaints))
    print(f"{places} places, {functions} functions of the seam")
    if places < 120 or functions < 15:
        sys.exit("these are fewer than there were: the check sees nothing any more")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
