#!/usr/bin/env bash
# page_test.sh PAGE CODE: each C block of a page is found in CODE, to the letter.
set -eu
python3 - "$1" "$2" <<'END'
import re, sys
page, code = (open(path).read() for path in sys.argv[1:])
blocks = re.findall(r"^```c\n(.*?)^```$", page, re.M | re.S)
missing = [block for block in blocks if block not in code]
for block in missing:
    print("not in %s:\n%s" % (sys.argv[2], block))
sys.exit(not blocks or bool(missing))
END
