#!/usr/bin/env bash
# The documentation's site: every page is there, no link leads nowhere, and the search through the text finds what readers look for.
set -u
cd "$TEST_SRCDIR/$TEST_WORKSPACE" || exit 1
site=$TEST_TMPDIR/site
unset BUILD_WORKING_DIRECTORY BUILD_WORKSPACE_DIRECTORY
if ! command -v doxygen >/dev/null; then
    echo "SKIPPED: no doxygen"
    exit 0
fi
docs/site.sh "--output=$site" || exit 1
# A second time replaces the first; what is no site is left alone.
docs/site.sh "--output=$site" >/dev/null || exit 1
mkdir -p "$TEST_TMPDIR/other" && touch "$TEST_TMPDIR/other/precious"
if docs/site.sh "--output=$TEST_TMPDIR/other" 2>/dev/null || [ ! -e "$TEST_TMPDIR/other/precious" ]; then
    echo "a folder that is no site was written over"
    exit 1
fi

python3 - "$site" docs/*.md <<'END'
import html, json, os, re, sys
site, pages = sys.argv[1], sys.argv[2:]
names = [name for name in os.listdir(site) if name.endswith(".html") and name != "text.html"]
texts = {name: open(os.path.join(site, name), errors="replace").read() for name in names}
anchors = {name: set(re.findall(r'(?:id|name)="([^"]+)"', text)) for name, text in texts.items()}
wrong = []
for name, text in texts.items():
    for link in re.findall(r'(?:href|src)="([^"]+)"', text):
        link = html.unescape(link)
        if re.match(r"(https?:|javascript:|mailto:|data:)", link):
            continue
        path, _, anchor = link.partition("#")
        path = path or name
        if not os.path.exists(os.path.join(site, path)) or (anchor and path in anchors and anchor not in anchors[path]):
            wrong.append("%s: %s leads nowhere" % (name, link))
for page in pages:
    if "page_docs_%s.html" % os.path.basename(page)[:-3] not in texts:
        wrong.append(page + " is not in the site")
for header in ("object_8h.html", "ops_8h.html", "nd_8hpp.html", "version_8h.html"):
    if header not in texts:
        wrong.append(header + " is missing")
script = open(os.path.join(site, "text.js")).read()
sections = json.loads(script[len("const SECTIONS = "):].rstrip().rstrip(";"))
for words, expected in (("weak reference", "object_8h"), ("quota", "page_docs_"), ("find_package", "index.html"),
                        ("who holds", "page_docs_debugging"), ("softmax", "page_docs_cuda"), ("resume", "page_docs_training")):
    if not any(words in (part["title"] + part["text"]).lower() and expected in part["url"] for part in sections):
        wrong.append("the search does not find '%s' in %s" % (words, expected))
for part in sections:
    path, _, anchor = part["url"].partition("#")
    if path not in texts or (anchor and anchor not in anchors[path]):
        wrong.append("the search leads to %s, which is nowhere" % part["url"])
print("\n".join(wrong[:40]) or "%d pages, %d sections" % (len(texts), len(sections)))
sys.exit(bool(wrong))
END
