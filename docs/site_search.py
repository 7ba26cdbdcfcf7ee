"""site_search.py FOLDER: adds a search through the text of a Doxygen site: text.html, which needs no server.

Doxygen's own box, which needs none either, knows names and titles; this page knows every sentence, by sections.
"""
import html
import json
import os
import re
import sys

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>ndarc: search the text</title>
<link href="doxygen.css" rel="stylesheet"/>
<style>
body { max-width: 50em; margin: 2em auto; padding: 0 1em; font-family: sans-serif; }
input { font-size: 120%; width: 100%; padding: 0.3em; box-sizing: border-box; }
li { margin: 0.8em 0; }
mark { background: #ffe9a0; }
</style>
</head>
<body>
<p><a href="index.html">ndarc</a></p>
<p><input id="words" type="search" placeholder="words that a section holds" autofocus="autofocus"/></p>
<p id="count"></p>
<ol id="found"></ol>
<script src="text.js"></script>
<script>
"use strict";
const input = document.getElementById("words");
const escaped = text => text.replace(/[&<>]/g, c => ({"&": "&amp;", "<": "&lt;", ">": "&gt;"})[c]);
function search() {
    const words = input.value.toLowerCase().split(/\\s+/).filter(word => word);
    const hits = [];
    if (words.length)
        for (const section of SECTIONS) {
            const title = section.title.toLowerCase(), text = section.text.toLowerCase();
            if (!words.every(word => title.includes(word) || text.includes(word)))
                continue;
            // A title counts most, then how often the words are there, then that they stand together.
            let score = text.includes(words.join(" ")) ? 20 : 0;
            for (const word of words)
                score += (title.includes(word) ? 50 : 0) + Math.min(text.split(word).length, 10);
            hits.push([score, section, text.indexOf(words.find(word => text.includes(word)) || "")]);
        }
    hits.sort((a, b) => b[0] - a[0]);
    document.getElementById("count").textContent = words.length ? hits.length + " sections" : "";
    document.getElementById("found").innerHTML = hits.slice(0, 40).map(([, section, at]) => {
        let shown = escaped(section.text.slice(Math.max(0, at - 80), at + 200));
        for (const word of words)
            shown = shown.replace(new RegExp(escaped(word).replace(/[.*+?^${}()|[\\]\\\\]/g, "\\\\$&"), "gi"), "<mark>$&</mark>");
        return '<li><a href="' + section.url + '">' + escaped(section.title) + "</a><br/>" + shown + "</li>";
    }).join("");
    location.replace("#" + encodeURIComponent(input.value));
}
input.addEventListener("input", search);
input.value = decodeURIComponent(location.hash.slice(1));
search();
</script>
</body>
</html>
"""


def plain(markup):
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", markup)).split())


def sections(name, text):
    """(title, address, text) of each section of a page: a heading and what follows it."""
    title = plain(re.search(r"<title>(.*?)</title>", text, re.S).group(1)).split(": ", 1)[-1]
    body = text[text.find('<div class="contents">'):].split("<!-- contents -->")[0]
    # A heading's anchor stands in it; a function's stands before it.
    marks = list(re.finditer(r'<h[1-3][^>]*>\s*<a class="anchor" id="([^"]+)"></a>(.*?)</h[1-3]>'
                             r'|<a id="([^"]+)"[^>]*></a>\s*<h2 class="memtitle">(.*?)</h2>', body, re.S))
    begin, heading, anchor = 0, "", ""
    for mark in marks + [None]:
        words = plain(body[begin:mark.start() if mark else len(body)])
        if words:
            yield (title + ": " + heading if heading else title, name + ("#" + anchor if anchor else ""), words)
        if mark:
            begin, anchor = mark.end(), mark.group(1) or mark.group(3)
            heading = plain(mark.group(2) or mark.group(4)).replace("◆", "").strip()


def main(folder):
    found = []
    for name in sorted(os.listdir(folder)):
        # Pages, headers' and structs' references; not Doxygen's lists of them, nor sources.
        if re.match(r"(index|page_.*|.*_8h(pp)?|struct.*|class.*)\.html$", name) and name not in ("classes.html",):
            text = open(os.path.join(folder, name), errors="replace").read()
            found += [{"title": t, "url": u, "text": w} for t, u, w in sections(name, text)]
    with open(os.path.join(folder, "text.js"), "w") as file:
        file.write("const SECTIONS = " + json.dumps(found, ensure_ascii=False, separators=(",", ":")) + ";\n")
    with open(os.path.join(folder, "text.html"), "w") as file:
        file.write(PAGE)


if __name__ == "__main__":
    main(sys.argv[1])
