#!/usr/bin/env python3
"""pictures.py GRAPH SEAM FOLDER: draws architecture.svg and collector.svg into FOLDER.

GRAPH is what `bazelw query --output=graph` says of //:nd_distributed (docs/BUILD.bazel, `dependencies`), SEAM is lib/base/seam.h.
So the layers of architecture.svg are those of the build: a library stands one row above the highest that it depends
on. Only its column and its words are written down here. A library without them is an error, and so are words for one
that is not there.

    ./bazelw run //docs:pictures        writes both into docs/; //tests/docs:pictures_test compares
"""

import html
import pathlib
import re
import sys

INK, PALE, CORE, SEAM, CLOSED = "#1f2933", "#f4f6f8", "#e8f0fb", "#b4470c", "#fde3cf"


class Drawing:
    """Shapes and text as one SVG file."""

    def __init__(self, width, height, title):
        self.title, self.size, self.parts = title, (width, height), []

    def box(self, x, y, width, height, fill="white", stroke=INK):
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" fill="{fill}" '
                          f'stroke="{stroke}"/>')

    def text(self, x, y, words, size=12, weight="normal", anchor="middle", fill=INK):
        self.parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" '
                          f'text-anchor="{anchor}" fill="{fill}">{html.escape(words)}</text>')

    def line(self, points, color=INK, dashes="", arrow=True):
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        head = f' marker-end="url(#{"up" if color == SEAM else "head"})"' if arrow else ""
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.3"{dashed}{head}/>')

    def write(self, path):
        width, height = self.size
        marker = ('<marker id="{}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
                  'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{}"/></marker>')
        lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
                 f'height="{height:g}" font-family="Helvetica, Arial, sans-serif">',
                 f"<title>{html.escape(self.title)}</title>",
                 "<!-- Drawn by docs/pictures.py; ./bazelw run //docs:pictures draws it anew. -->",
                 "<defs>" + marker.format("head", INK) + marker.format("up", SEAM) + "</defs>",
                 f'<rect width="{width:g}" height="{height:g}" fill="white"/>', *self.parts, "</svg>", ""]
        path.write_text("\n".join(lines))


# ------------------------------------------------------------------------------------------- the layers

# Libraries that share a package but stand in different layers have a box each; else a package is one box.
APART = {"//lib/device:table": "lib/device:table", "//lib/base:pool": "lib/base:pool"}
# Files that lib/base and lib/base:pool share: no box.
LEFT_OUT = {"//lib/base:cgroup", "//lib/base:spawn"}
# Box: its column, and what it holds in a few words.
BOXES = {
    "lib/distributed": (1, "several processes; linked by //:nd_distributed"),
    "lib/nn": (1, "modules, losses, optimizers"),
    "lib/autograd": (1, "backward passes, gradient rules"),
    "lib/ops": (1, "operations: shapes, dtypes, dispatch"),
    "lib/io": (2, "files, data sets"),
    "lib/tensor": (1, "tensors, storages, views, recording"),
    "lib/device": (1, "registry: which backend serves a device"),
    "lib/device/cpu": (1, "the CPU as a device"),
    "lib/device/cuda": (3, "a GPU as a device; linked by //:nd"),
    "lib/device:table": (1, "what a backend fills in"),
    "kernels/cpu": (2, "loops for each instruction set"),
    "kernels/cuda": (3, ".cu files"),
    "lib/memory": (1, "host memory"),
    "lib/base:pool": (2, "threads that share one computation"),
    "kernels": (3, "table of operations"),
    "lib/debug": (0, "dumps, leaks, traces"),
    "lib/core": (1, "seam.c: the way up between the rooms"),
    "lib/pressure": (1, "memory runs out: stages, callbacks"),
    "lib/gc": (1, "the cycle collector"),
    "lib/manager": (1, "tree, charges, scopes, destruction"),
    "lib/object": (1, "counts, gate, weak references, blocks"),
    "lib/base": (1, "atomics, locks, threads, errors"),
    "include/nd": (1, "the public headers"),
}
# These stand as high as who uses them allows, instead of as low as what they use does.
HIGH = ("kernels/cpu", "kernels/cuda", "kernels", "lib/base:pool")
ROOMS = ("lib/core", "lib/pressure", "lib/gc", "lib/manager", "lib/object", "lib/base")
WIDTH, HEIGHT, ROW, COLUMN, LEFT, TOP = 232, 40, 62, 256, 20, 20


def box_of(label):
    return APART.get(label) or label[2:].split(":")[0]


def read_graph(text):
    """For each box the boxes it depends on."""
    uses = {}
    for line in text.splitlines():
        labels = re.findall(r'"(//[^"]*)"', line.split("[")[0])
        if LEFT_OUT.intersection(labels):
            continue
        for label in labels:
            uses.setdefault(box_of(label), set())
        if len(labels) == 2 and box_of(labels[0]) != box_of(labels[1]):
            uses[box_of(labels[0])].add(box_of(labels[1]))
    if set(uses) != set(BOXES):
        sys.exit(f"pictures: BOXES and the build differ in {', '.join(sorted(set(uses) ^ set(BOXES)))}")
    return uses


def rows_of(uses):
    rows = {}

    def low(box):
        if box not in rows:
            rows[box] = 1 + max((low(used) for used in uses[box]), default=-1)
        return rows[box]

    for box in uses:
        low(box)
    for box in HIGH:
        rows[box] = min(rows[user] for user in uses if box in uses[user]) - 1
    places = [(rows[box], BOXES[box][0]) for box in uses]
    if len(set(places)) < len(places):
        sys.exit("pictures: two boxes are in one place; give one of them another column")
    if any(rows[used] >= rows[box] for box in uses for used in uses[box]):
        sys.exit("pictures: HIGH is in the wrong order")
    return rows


def without_detours(uses):
    """Leaves out what follows: who uses something that uses it sees it, too."""
    reach = {}

    def below(box):
        if box not in reach:
            reach[box] = set().union(*({used} | below(used) for used in uses[box]), set())
        return reach[box]

    return {box: {used for used in uses[box] if not any(used in below(other) for other in uses[box])} for box in uses}


def draw_uses(drawing, place, uses):
    for box in uses:
        for used in sorted(uses[box]):
            (x, y), (to_x, to_y) = place[box], place[used]
            if used == "include/nd":
                drawing.line([(x, y + HEIGHT), (x, to_y)])
            elif abs(to_y - y) > ROW and x != to_x:
                drawing.line([(x + WIDTH / 2, y + HEIGHT / 2), (to_x, y + HEIGHT / 2), (to_x, to_y)])
            else:
                shift = (to_x > x) - (to_x < x)
                drawing.line([(x + shift * WIDTH / 4, y + HEIGHT), (to_x - shift * WIDTH / 4, to_y)])


def draw_seam(drawing, place, header):
    """Upwards, from each room that asks to lib/core."""
    headings = " ".join(re.findall(r"-- asked by (.*)", header))
    askers = sorted(set(re.findall(r"lib/\w+", headings)), key=lambda room: -place[room][1])
    x, y = place["lib/core"]
    edge, lane = x - WIDTH / 2, x - WIDTH / 2 - 34
    top = y + HEIGHT / 2
    for room in askers:
        middle = place[room][1] + HEIGHT / 2
        drawing.line([(edge, middle), (lane, middle)], SEAM, "5 4", arrow=False)
    drawing.line([(lane, place[askers[0]][1] + HEIGHT / 2), (lane, top), (edge, top)], SEAM, "5 4")
    for i, words in enumerate(("The one way up:", "functions that", "lib/base/seam.h declares", "and lib/core/seam.c defines")):
        drawing.text(lane - 10, place["lib/manager"][1] + 17 * i, words, anchor="end", fill=SEAM)


def draw_layers(graph, header):
    uses = read_graph(graph)
    rows = rows_of(uses)
    top = max(rows.values())
    place = {box: (LEFT + (BOXES[box][0] + 0.5) * COLUMN, TOP + (top - rows[box]) * ROW) for box in uses}
    width = 2 * LEFT + 4 * COLUMN
    drawing = Drawing(width, 2 * TOP + top * ROW + HEIGHT, "The libraries of ndarc and what each depends on")
    high, low = place[ROOMS[0]][1], place[ROOMS[-1]][1] + HEIGHT
    drawing.box(LEFT + COLUMN + 2, high - 10, COLUMN - 4, low - high + 20, CORE, CORE)
    draw_uses(drawing, place, without_detours(uses))
    draw_seam(drawing, place, header)
    for box in sorted(uses):
        x, y = place[box]
        wide = COLUMN * 3 - (COLUMN - WIDTH) if box == "include/nd" else WIDTH
        drawing.box(x - WIDTH / 2, y, wide, HEIGHT, PALE if box.startswith(("kernels", "include")) else "white")
        middle = x - WIDTH / 2 + wide / 2
        drawing.text(middle, y + 16, box, 13, "bold")
        drawing.text(middle, y + 32, BOXES[box][1], 11)
    notes = ("The core (blue): five rooms, and above them", "the file that leads from a room to a higher one.", "",
             "An arrow leads to what a library depends on;", "it sees what that one sees, too.",
             "Arrows that follow from others are left out.", "",
             "A file includes headers of its own library and of", "those below. Bazel compiles nothing else.")
    for i, words in enumerate(notes):
        drawing.text(LEFT + 2 * COLUMN + 12, place["lib/pressure"][1] + 18 * i, words, anchor="start")
    return drawing


# ---------------------------------------------------------------------------------------- the collector

LABELS, STEP = 176, 118  # the width of the column with the lanes' names, of one step
# Steps of a collection: what it does, and how the gate is meanwhile.
AT_ONCE = (
    (("close the gate,", "wait for writers"), "closed"),
    (("pass 1: word, then", "edges; subtract"), "closed"),
    (("pass 2:", "words again"), "closed"),
    (("mark garbage", "as dying"), "closed"),
    (("destroy what", "was parked"), "open"),
    (("clear weak refs,", "callbacks"), "open"),
    (("finalizers", "that have not run"), "open"),
    (("only if one ran:", "decide again"), "closed"),
    (("cut edges, free", "in batches"), "open"),
)
IN_STEPS = (
    (("1 hold: one", "count of each"), "slices"),
    (("read all words", ""), "open"),
    (("2 read edges", "into a snapshot"), "slices"),
    (("3 decide over", "the snapshot"), "open"),
    (("4 extend", "(phase 2)"), "slices"),
    (("5 suspect: mark,", "close and open"), "instant"),
    (("6 verify:", "words again"), "open"),
    (("7 condemn, if no", "one was upgraded"), "instant"),
    (("weak refs, final-", "izers, cut, free"), "open"),
)


def draw_gate(drawing, steps, top, bottom):
    """Bands behind the steps, where the gate is closed."""
    for i, (_, gate) in enumerate(steps):
        x = LABELS + i * STEP
        slices = {"open": (), "closed": ((0, STEP),), "instant": ((STEP / 2 - 5, 10),),
                  "slices": tuple((6 + 25 * k, 14) for k in range(4))}[gate]
        for start, width in slices:
            drawing.parts.append(f'<rect x="{x + start:g}" y="{top}" width="{width:g}" height="{bottom - top}" '
                                 f'fill="{CLOSED}"/>')


def draw_steps(drawing, steps, y):
    drawing.text(LABELS - 14, y + 25, "thread that collects", anchor="end", weight="bold")
    for i, (words, _) in enumerate(steps):
        drawing.box(LABELS + i * STEP + 3, y, STEP - 6, 40)
        for k, line in enumerate(words):
            drawing.text(LABELS + (i + 0.5) * STEP, y + (17 + 15 * k if words[1] else 25), line, 11)


def draw_lane(drawing, y, name, pieces):
    """What another thread does: pieces of (from step, to step, words, whether it waits)."""
    drawing.text(LABELS - 14, y + 4, name, anchor="end")
    for begin, end, words, waits in pieces:
        drawing.line([(LABELS + begin * STEP, y), (LABELS + end * STEP - 3, y)], SEAM if waits else INK,
                     "3 4" if waits else "")
        drawing.text(LABELS + (begin + end) / 2 * STEP, y - 6, words, 11, fill=SEAM if waits else INK)


def draw_collector():
    width = LABELS + len(AT_ONCE) * STEP + 16
    drawing = Drawing(width, 470, "The gate and the passes of a collection")
    drawing.text(16, 26, "At once", 15, "bold", "start")
    drawing.box(width - 196, 12, 20, 16, CLOSED, SEAM)
    drawing.text(width - 170, 25, "the gate is closed", anchor="start")
    draw_gate(drawing, AT_ONCE, 40, 262)
    draw_steps(drawing, AT_ONCE, 52)
    draw_lane(drawing, 128, "retain, release", ((0, 9, "never wait", False),))
    draw_lane(drawing, 163, "write of an edge", ((0, 0.4, "", False), (0.4, 4, "waits", True), (4, 7, "goes on", False),
                                                  (7, 8, "waits", True), (8, 9, "goes on", False)))
    draw_lane(drawing, 198, "upgrade of a weak ref", ((0, 0.4, "", False), (0.4, 4, "waits", True),
                                                      (4, 7, "fails for what is dying", False), (7, 8, "waits", True),
                                                      (8, 9, "", False)))
    draw_lane(drawing, 233, "last release of a tracked", ((1, 4, "parked: the object waits, the thread does not", True),
                                                           (4, 5, "destroyed", False)))
    drawing.text(LABELS - 14, 250, "object (not garbage)", anchor="end")
    drawing.text(16, 308, "In steps", 15, "bold", "start")
    draw_gate(drawing, IN_STEPS, 322, 424)
    draw_steps(drawing, IN_STEPS, 334)
    draw_lane(drawing, 410, "every other thread", ((0, 9, "edges change, objects are made and released; "
                                                    "a writer waits while a slice lasts", False),))
    drawing.text(LABELS + 5.5 * STEP, 440, "the instant T", 11, fill=SEAM)
    drawing.text(LABELS + 2.5 * STEP, 440, "slices, each within the pause budget", 11, fill=SEAM)
    return drawing


def main():
    graph, header, folder = (pathlib.Path(argument) for argument in sys.argv[1:4])
    draw_layers(graph.read_text(), header.read_text()).write(folder / "architecture.svg")
    draw_collector().write(folder / "collector.svg")


if __name__ == "__main__":
    main()
