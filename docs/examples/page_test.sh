#!/usr/bin/env bash
# page_test.sh PAGE CODE...: each C or C++ block of a page is found in one of the files, to the letter.
set -eu
python3 - "$@" <<'END'
import re, sys
page, *codes = (open(path).read() for path in sys.argv[1:])
blocks = re.findall(r"^```c(?:pp)?\n(.*?)^```$", page, re.M | re.S)
missing = [block for block in blocks if not any(block in code for code in codes)]
for block in missing:
    print("not in %s:\n%s" % (" ".join(sys.argv[2:]), block))
sys.exit(not blocks or bool(missing))
END
