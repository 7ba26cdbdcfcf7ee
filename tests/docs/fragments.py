#!/usr/bin/env python3
"""fragments.py ROOT LIBRARY FOLDER: the fragments of C and C++ in the pages compile as they are written, and do what they say.

Each fragment (a block of ```c or ```cpp) has a row below: what it takes for granted, declared before it, and what is asked of it
behind. It is pasted between the two unchanged, built against LIBRARY with warnings as errors, and run in FOLDER: it must end well,
with no error set and nothing left. A fragment without a row is a failure, and so is a row without its fragment.
"""

import os
import pathlib
import re
import subprocess
import sys

HEAD = "#include <nd/nd.h>\n#include <stdio.h>\n#include <string.h>\n"
SCOPED = "#include <nd/scoped.h>\n#include <stdio.h>\n"
CPP = "#include <nd/nd.hpp>\n#include <cstdio>\n"
SIX = "nd_auto nd_tensor *six = nd_arange(0, 6, 1, ND_F32);\n"
TWO_BY_THREE = SIX + "nd_auto nd_tensor *x = nd_reshape(six, ND_SHAPE(2, 3));\n"
AB = "nd_auto nd_tensor *a = nd_ones(ND_SHAPE(3), ND_F32);\nnd_auto nd_tensor *b = nd_zeros(ND_SHAPE(3), ND_F32);\n"
CENTRED = "nd_auto nd_tensor *y = centre(x);\nif (!y || nd_get_flat(y, 0) != -1 || nd_get_flat(y, 5) != 1)\nreturn 1;\n"
TRUE_AT = "static double nd_get_flat(const nd_tensor *x, int64_t i) { return ((const float *)nd_get_data(x))[i]; }\n"
ROWS = "nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2, 3), ND_F32);\nnd_auto nd_tensor *w = nd_ones(ND_SHAPE(3, 2), ND_F32);\n"
IMAGE = """nd_auto nd_tensor *drawn = nd_ones(ND_SHAPE(5, 7, 3), ND_U8);
nd_auto nd_tensor *png = nd_encode_png(drawn, NULL);
if (!png)
    return nd_error_get_status() == ND_ERROR_UNSUPPORTED ? 77 : 1;
const void *body = nd_get_data(png);
size_t bytes = (size_t)nd_get_numel(png);
"""
REFUSED = "if (nd_error_get_status() != %s)\nreturn 1;\nnd_error_clear();\n"


def inside(before="", after="", top="", head=HEAD):
    """Statements of a function."""
    return lambda text: f"{head}{top}\nint main(void) {{\n{before}\n{text}\n{after}\nreturn nd_error_get_status() != ND_OK;\n}}\n"


def outside(main, top="", head=HEAD):
    """Declarations, that `main` uses."""
    return lambda text: f"{head}{top}\n{text}\nint main(void) {{\n{main}\nreturn nd_error_get_status() != ND_OK;\n}}\n"


def program(text):
    return text


# A page and the first line of a fragment that is not blank; twice the same line: in their order.
FRAGMENTS = {
    ("README.md", "#include <nd/nd.h>"): [program],
    ("docs/distributed.md", "#include <nd/distributed.h>"): [None],  # docs/distributed.md's own tests have MPI
    ("docs/distributed.md", "nd_auto nd_data_parallel *parallel = nd_data_parallel_new(model, world, NULL); // everybody has rank 0's parameters"): [None],
    ("docs/distributed.md", "nd_auto nd_communicator *between = nd_communicator_from_nccl(world, device, NULL); // each rank brings a device of its own"): [None],
    ("docs/distributed.md", "bool resumed;"): [None],
    ("docs/embeddings.md", "nd_auto nd_object *model = minilm_open(NULL);"): [None],  # the model is 90 MB; docs/examples tests it
    ("docs/errors.md", "nd_auto nd_tensor *product = nd_matmul(x, w);"): [inside(ROWS, "if (!y || nd_get_flat(y, 0) != 0.5)\nreturn 1;", TRUE_AT)],
    ("docs/examples.md", "static nd_tensor *centre(const nd_tensor *x) {"): [
        outside(TWO_BY_THREE + CENTRED, TRUE_AT),
        outside(TWO_BY_THREE + CENTRED, TRUE_AT),
        outside(
            "nd_auto nd_tensor *x = NULL;\nND_SCOPE {\nx = nd_retain(nd_reshape(nd_arange(0, 6, 1, ND_F32), ND_SHAPE(2, 3)));\n}\n" + CENTRED,
            TRUE_AT,
            SCOPED,
        ),
    ],
    ("docs/examples.md", "static nd::tensor centre(const nd::tensor &x) {"): [
        outside("nd::tensor x{nd_ones(ND_SHAPE(2, 3), ND_F32)}, y = centre(x);\nif (!y || nd_get_item(nd::sum(y, 0, nullptr, false)) != 0)\nreturn 1;\n", "", CPP)
    ],
    ("docs/files.md", 'nd_auto nd_gguf *file = nd_gguf_open("model.gguf");'): [inside("", REFUSED % "ND_ERROR_IO" + "(void)w;\n")],
    ("docs/files.md", "nd_image_options options = ND_IMAGE_OPTIONS_INIT;"): [
        inside(IMAGE, "if (!x || nd_get_numel(x) != 105 || nd_get_flat(x, 0) < 1.0 / 256)\nreturn 1;", TRUE_AT)
    ],
    ("docs/memory.md", "nd_memory_set_limit((nd_device){ND_CUDA, 0}, (uint64_t)8 << 30);"): [inside("", "nd_error_clear();")],
    ("docs/memory.md", "static bool drop_cache(const nd_memory_pressure *pressure, void *data) {"): [None],  # a function, and statements
    ("docs/memory.md", "nd_status decode_step(const decoder *d, const nd_tensor *token, nd_tensor *cache, int64_t position) {"): [
        outside("(void)decode_step;", "typedef struct decoder {\nnd_tensor *table, *x, *weight, *bias;\n} decoder;\n")
    ],
    ("docs/ownership.md", "nd_tensor *distance(const nd_tensor *a, const nd_tensor *b) {"): [
        outside(AB + "nd_auto nd_tensor *d = distance(a, b);\nif (!d || nd_get_item(d) != 3)\nreturn 1;\n")
    ],
    ("docs/ownership.md", "ND_SCOPE {"): [
        inside(AB + "nd_auto nd_tensor *result = NULL;\n", "if (!result || nd_get_item(result) != 3)\nreturn 1;\n")
    ],
    ("docs/ownership.md", "nd_queue_callback(device, sent, &count, staging); /* borrowed; kept until `sent` has returned */"): [
        inside(
            "const nd_device device = {ND_CPU, 0};\nstatic int count;\n"
            'nd_list *staging = nd_list_new();\n',
            "if (count != 1)\nreturn 1;\n",
            "static void sent(void *data) { ++*(int *)data; }\n",
        )
    ],
    ("docs/ownership.md", "typedef struct station {"): [outside("(void)station_traverse;\n(void)station_clear;\n")],
    ("docs/ownership.md", "#include <nd/nd.hpp>"): [
        outside(
            "nd::tensor a{nd_ones(ND_SHAPE(3), ND_F32)}, b{nd_zeros(ND_SHAPE(3), ND_F32)};\n"
            "if (nd_get_item(distance(a, b)) != 3)\nreturn 1;\n",
            "",
            "",
        )
    ],
    ("docs/pooling.md", "nd_memory_set_cache_limit(ND_CPU, (uint64_t)64 << 20);  /* 48 MiB of data, 16 of dead objects */"): [
        inside("", "nd_error_clear(); // no device of CUDA\n")
    ],
    ("docs/python.md", "struct DLManagedTensorVersioned *lent = nd_to_dlpack(x); // whoever gets it calls lent->deleter(lent) once"): [
        inside(
            "nd_auto nd_tensor *x = nd_ones(ND_SHAPE(3), ND_F32);\nstruct DLManagedTensorVersioned *theirs = nd_to_dlpack(x);\n",
            "if (!y || !lent)\nreturn 1;\nnd_release(y);\nnd_auto nd_tensor *z = nd_from_dlpack(lent);\n",
        )
    ],
    # docs/examples/training.c is made of them, which a test runs.
    ("docs/training.md", "nd_dataset_options options = ND_DATASET_OPTIONS_INIT;"): [None],
    ("docs/training.md", "/// Two layers. Owned; the key decides with which parameters it begins."): [None],
    ("docs/training.md", "/// One step of the optimizer for one batch."): [None],
    ("docs/training.md", "/// Once over the data."): [None],
    ("docs/training.md", "nd_adam_options adamw = ND_ADAMW_OPTIONS_INIT;"): [None],
}


def fragments(root):
    """(page, number of its line, language, text) of each."""
    for page in ["README.md"] + sorted(str(path.relative_to(root)) for path in (root / "docs").glob("*.md")):
        text = (root / page).read_text()
        for found in re.finditer(r"^```(c|cpp)\n(.*?)^```$", text, re.M | re.S):
            yield page, text.count("\n", 0, found.start()) + 1, found.group(1), found.group(2)


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    return done.returncode, done.stdout + done.stderr


def check(name, language, source, root, library, folder):
    """What is wrong with a program; None: nothing."""
    path, built = folder / f"{name}.{'cc' if language == 'cpp' else 'c'}", folder / name
    path.write_text(source)
    compiler = ["c++", "-std=c++17"] if language == "cpp" else ["cc", "-std=gnu17"]
    status, said = run(compiler + ["-Wall", "-Wextra", "-Werror", str(path), "-o", str(built), f"-I{root}/include", str(library), "-lm"])
    if status:
        return said
    environment = dict(os.environ, ND_LEAK_CHECK="1", LD_LIBRARY_PATH=str(library.parent))
    status, said = run([str(built)], cwd=folder, env=environment)
    if status == 77:
        print(f"SKIPPED: {name}: the machine lacks a library")
        return None
    return None if status == 0 and "ndarc: no leaks" in said else f"ended with {status} and said:\n{said}"


def main():
    root, library, folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    left = {key: list(rows) for key, rows in FRAGMENTS.items()}
    complaints, built = [], 0
    for page, line, language, text in fragments(root):
        rows = left.get((page, text.strip().split("\n")[0].strip()), [])
        if not rows:
            complaints.append(f"{page}:{line}: no row of tests/docs/fragments.py runs this fragment")
            continue
        row = rows.pop(0)
        if row is None:
            continue
        built += 1
        wrong = check(f"{pathlib.Path(page).stem}_{line}", language, row(text), root, library, folder)
        if wrong:
            complaints.append(f"{page}:{line}: {wrong}")
    complaints += [f"{page}: has no fragment any more that begins with {first!r}" for (page, first), rows in left.items() if rows]
    print("\n".join(complaints))
    print(f"{built} fragments were built and run")
    if built < 15:
        sys.exit("these are fewer than there were: the check sees nothing any more")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
