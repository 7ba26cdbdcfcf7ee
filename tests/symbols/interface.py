#!/usr/bin/env python3
"""The binary interface of the public headers, one line for each part of it.

  interface.py stubs INCLUDE       C source in which every declared function has an empty body
  interface.py summary ABI         what abidw wrote of that, compiled: one line each for functions, fields, enumerators
  interface.py compare OLD NEW     what of OLD is not in NEW; fields at the end of a struct of size and version may be new

The stubs stand for the library: //tests/symbols:symbols_test holds that against the headers' declarations.
"""
import glob
import re
import sys
import xml.etree.ElementTree as ElementTree


def stubs(include):
    print("#include <nd/nd.h>")
    if glob.glob(include + "/nd/distributed.h"):
        print("#include <nd/distributed.h>")
    for path in sorted(glob.glob(include + "/nd/*.h")):
        text = re.sub(r"//.*", "", open(path).read())
        for declaration in re.findall(r"^ND_API ([^;{}]*?)(?: ND_OWNED)?;", text, re.M | re.S):
            # A name in brackets is no macro's.
            named = re.sub(r"\b(nd_\w+) ?\(", r"(\1)(", " ".join(declaration.split()), count=1)
            print("%s { __builtin_trap(); }" % named)


class Types:
    """The types of an abidw file, by their ids, as text."""

    def __init__(self, root):
        self.nodes = {node.get("id"): node for node in root.iter() if node.get("id") and node.tag != "subrange"}

    def name(self, number):
        node = self.nodes[number]
        tag = node.tag
        if tag in ("pointer-type-def", "reference-type-def"):
            target = self.nodes[node.get("type-id")]
            if target.tag == "function-type":
                return "%s (*)%s" % self.signature(target)
            return self.name(node.get("type-id")) + " *"
        if tag == "qualified-type-def":
            # "const" stands behind what it qualifies, so that there is one way to write a pointer.
            words = [word for word in ("const", "volatile", "restrict") if node.get(word) == "yes"]
            return " ".join([self.name(node.get("type-id"))] + words)
        if tag == "array-type-def":
            return self.name(node.get("type-id")) + "".join("[%s]" % part.get("length") for part in node.iter("subrange"))
        if tag == "function-type":
            return "%s %s" % self.signature(node)
        return node.get("name")

    def signature(self, node):
        parameters = [
            "..." if part.get("is-variadic") == "yes" else self.name(part.get("type-id")) for part in node.findall("parameter")
        ]
        return self.name(node.find("return").get("type-id")), "(%s)" % ", ".join(parameters or ["void"])


def summary(path):
    root = ElementTree.parse(path).getroot()
    types = Types(root)
    lines = set()
    for node in root.iter("function-decl"):
        lines.add("%s %s%s" % ((types.signature(node)[0], node.get("name"), types.signature(node)[1])))
    for node in root.iter("class-decl"):
        name = node.get("name")
        if node.get("is-declaration-only") == "yes" or not name.startswith("nd_"):
            continue
        lines.add("struct %s: %d bytes" % (name, int(node.get("size-in-bits")) // 8))
        for member in node.findall("data-member"):
            field = member.find("var-decl")
            lines.add("struct %s at %4d: %s %s" % (
                name, int(member.get("layout-offset-in-bits")) // 8, types.name(field.get("type-id")), field.get("name")))
    for node in root.iter("union-decl"):
        for field in node.findall("data-member/var-decl"):
            lines.add("union %s: %s %s" % (node.get("name"), types.name(field.get("type-id")), field.get("name")))
    for node in root.iter("typedef-decl"):
        target = types.nodes[node.get("type-id")]
        if node.get("name").startswith("nd_") and target.tag not in ("class-decl", "enum-decl", "union-decl"):
            lines.add("type %s: %s" % (node.get("name"), types.name(node.get("type-id"))))
    for node in root.iter("enum-decl"):
        for part in node.findall("enumerator"):
            lines.add("enumerator %s: %s" % (part.get("name"), part.get("value")))
    print("\n".join(sorted(lines)))


def compare(old_path, new_path):
    old = set(open(old_path).read().splitlines())
    new = set(open(new_path).read().splitlines())
    versioned = {
        line.split()[1] for line in new if re.match(r"struct \S+ at    4: uint32_t version$", line)
    }

    def may_change(line):
        grows = re.match(r"struct (\S+): \d+ bytes$", line)
        return bool(grows and grows.group(1) in versioned) or bool(re.match(r"enumerator ND_\w*COUNT: ", line))

    gone = sorted(line for line in old - new if not may_change(line))
    for line in gone:
        print("gone or changed: " + line)
    return 1 if gone else 0


if __name__ == "__main__":
    command = sys.argv[1]
    sys.exit({"stubs": stubs, "summary": summary, "compare": compare}[command](*sys.argv[2:]))
