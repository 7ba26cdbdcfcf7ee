#!/usr/bin/env bash
# list_test.sh PAGE NAME...: the page links to each form of each example, in the order of the names, and to every other program here;
# each form of an example has fewer than 100 lines, by hand 110.
set -eu
python3 - "$(dirname "$0")" "$@" <<'END'
import pathlib, re, sys
folder, page, names = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).read_text(), sys.argv[3:]
forms = [name + end for name in names for end in (".c", "_by_hand.c", "_scopes.c", ".cc")]
there = {path.name for pattern in ("*.c", "*.cc") for path in folder.glob(pattern)}
links = re.findall(r"\]\(examples/([^)]+)\)", page)
wrong = [f"the page leads to examples/{link}, which is not there" for link in links if link not in there]
wrong += [f"the page does not lead to examples/{path}" for path in sorted(there - set(links))]
wrong += [f"examples/{path} is missing" for path in forms if path not in there]
if [link for link in links if link in forms] != forms:
    wrong.append("the page lists the examples in another order, or one twice")
for path in sorted(there.intersection(forms)):
    lines = len((folder / path).read_text().splitlines())
    if lines >= (110 if path.endswith("_by_hand.c") else 100):
        wrong.append(f"examples/{path} has {lines} lines")
print("\n".join(wrong) or f"{len(forms)} programs")
sys.exit(bool(wrong))
END
