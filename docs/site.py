"""site.py PAGES...: makes the links of Markdown pages ones that Doxygen can follow, in place.

A link to another page stays, by that page's name. One to a file of the repository that is no page (an example, a folder) becomes the file's name in
code letters. Titles get a label of their own, because two pages may have sections of one name.
"""
import os
import re
import sys

PAGES = {os.path.normpath(path) for path in sys.argv[1:]}


def label(path):
    return "page_" + re.sub(r"\W", "_", os.path.splitext(path)[0]).lower()


def link(match, folder):
    text, target = match.group(1), match.group(2)
    if re.match(r"https?:|#", target):
        return match.group(0)
    path = os.path.normpath(os.path.join(folder, target.split("#")[0]))
    if path == "README.md":
        return '<a href="index.html">%s</a>' % text
    if path in PAGES:
        return "[%s](@ref %s)" % (text, label(path))
    if target.endswith(".svg"):
        return "[%s](%s)" % (text, os.path.basename(target))
    return "%s (`%s`)" % (text.strip("`"), path)


for page in PAGES:
    folder = os.path.dirname(page)
    # Blocks of code stay as they are.
    parts = re.split(r"(^```.*?^```$)", open(page).read(), flags=re.M | re.S)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)", lambda match: link(match, folder), parts[i])
        parts[i] = re.sub(r"!\[([^\]]*)\]\(([^)\s]*/)?([^)\s/]+\.svg)\)", r'<img src="\3" alt="\1" style="max-width: 100%"/>', parts[i])
        # @ begins a command of Doxygen's.
        parts[i] = re.sub(r"@(?=ndarc|local_|rules_|tensors)", r"\\@", parts[i])
    text = "".join(parts)
    if page != "README.md":
        text = re.sub(r"\A# (.*)$", r"# \1 {#%s}" % label(page), text, count=1, flags=re.M)
    open(page, "w").write(text)
