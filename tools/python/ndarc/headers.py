"""What the public headers declare: functions, structs, enumerations, and the values that structs begin as.

The headers keep a form that a few expressions read (CONTRIBUTING.md, "The interface"): every exported function begins with
ND_API, a struct or an enumeration is a typedef of its own name, and NAME_INIT is a braced list. Nothing here asks the library.
"""

import pathlib
import re

_LIMITS = {"INT64_MAX": 2**63 - 1, "INT64_MIN": -(2**63), "UINT64_MAX": 2**64 - 1}


class Parameter:
    """One parameter of a function, or one field of a struct: its base type, stars, name and, of a field, array lengths."""

    def __init__(self, text):
        text = " ".join(text.split()).replace(" [", "[")
        self.is_callback = "(*" in text
        if self.is_callback:
            self.base, self.stars, self.name, self.lengths = "void", 1, re.search(r"\(\*(\w+)\)", text)[1], []
            return
        match = re.fullmatch(r"(.*?)(\w+)((?:\[\w+\])*)", text)
        head, self.name = match[1], match[2]
        self.lengths = re.findall(r"\[(\w+)\]", match[3])
        words = re.sub(r"\b(const|struct)\b|\*", " ", head).split()
        self.base = words[0] if words else self.name
        self.stars = head.count("*")
        self.is_const = bool(re.match(r"const\b", head))


class Function:
    def __init__(self, name, result, parameters):
        self.name, self.parameters = name, parameters
        self.result = Parameter(result + " result")


def _split(text):
    """At the commas that stand in no brackets."""
    parts, depth, part = [], 0, ""
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += character
    return [piece.strip() for piece in parts + [part] if piece.strip()]


class Headers:
    """functions, structs, enums and initials by name; constants: enumerators and numbers that are #defined."""

    def __init__(self, folder):
        self.functions, self.structs, self.enums, self.initials, self.constants = {}, {}, {}, {}, dict(_LIMITS)
        files = sorted(pathlib.Path(folder, "nd").glob("*.h"))
        if not files:
            raise ImportError(f"ndarc: no headers in {folder}/nd")
        for file in files:
            self._read(file.read_text())

    def _read(self, text):
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        text = re.sub(r"//[^\n]*", "", text).replace("\\\n", " ")
        text = re.sub(r"^#ifdef __cplusplus\b.*?^#(else|endif)", "", text, flags=re.M | re.S)
        for name, value in re.findall(r"^#define (ND_\w+) (\d+|U?INT64_\w+)\s*$", text, flags=re.M):
            self.constants[name] = self.number(value)
        for name, value in re.findall(r"^#define (ND_\w+_INIT)\s+(.*?)\s*$", text, flags=re.M):
            self.initials[name] = value
        text = re.sub(r"^#.*$", "", text, flags=re.M)
        for body, name in re.findall(r"typedef enum \w+ \{(.*?)\} (\w+);", text, flags=re.S):
            self._read_enum(name, body)
        for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", text, flags=re.S):
            self.structs[name] = [field for line in body.split(";") if line.strip() for field in self._fields(line)]
        pattern = r"\bND_API\s+([\w\s*]*?[\s*])(nd_\w+)\s*\(([^;{]*?)\)\s*(?:ND_\w+\s*(?:\([^;]*?\))?\s*)*;"
        for result, name, parameters in re.findall(pattern, text, flags=re.S):
            listed = [] if parameters.strip() == "void" else [Parameter(part) for part in _split(parameters)]
            self.functions[name] = Function(name, result.strip(), listed)

    @staticmethod
    def _fields(line):
        """`double low, high` is two."""
        first, *others = _split(line)
        field = Parameter(first)
        kind = first[: first.rindex(field.name)] if not field.is_callback else ""
        return [field] + [Parameter(kind.rstrip("* ") + " " + other) for other in others]

    def _read_enum(self, name, body):
        self.enums[name] = values = {}
        following = 0
        for part in _split(body):
            constant, _, value = (piece.strip() for piece in part.partition("="))
            following = self.number(value) if value else following
            values[constant] = self.constants[constant] = following
            following += 1

    def number(self, text):
        """The value of a number as the headers write them, or of a constant."""
        text = text.strip()
        if text in self.constants:
            return self.constants[text]
        if text in ("true", "false", "NULL"):
            return {"true": True, "false": False, "NULL": None}[text]
        if match := re.fullmatch(r"(\w+) << (\w+)", text):
            return int(match[1].rstrip("u"), 0) << int(match[2].rstrip("u"), 0)
        return float(text) if re.search(r"[.eE]", text) and not text.startswith("0x") else int(text.rstrip("uUlL"), 0)

    def initial(self, struct, function=""):
        """The values that a struct begins as, in the order of its fields; those that are missing are 0. Where functions share options, by the
        function that is given them."""
        own = self.initials.get(f"ND_{function[3:].upper()}_OPTIONS_INIT", "")
        text = own if f"sizeof({struct})" in own else self.initials.get(f"ND_{struct[3:].upper()}_INIT", "")
        if not text.startswith("{"):
            return []
        return self._braced(text)[2:]  # behind size and version

    def _braced(self, text):
        if not text.startswith("{"):
            return None if text.startswith("sizeof") else self.number(text)
        return [self._braced(part) for part in _split(text[text.index("{") + 1 : text.rindex("}")])]
