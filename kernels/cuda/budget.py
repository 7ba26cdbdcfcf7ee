#!/usr/bin/env python3
"""What the compiler gives each CUDA kernel: registers, shared memory, spills, and accesses of 16 bytes.

    budget.py write FILE.budget...              the table, as budget.txt has it, to standard output
    budget.py check budget.txt FILE.budget...   fails with the difference, and for a kernel that breaks a rule

FILE.budget is made by bazel/cuda_library.bzl beside each object: the lines of ptxas, and the accesses counted in PTX.
"""
import difflib
import os
import re
import subprocess
import sys

MOST_REGISTERS = 65536  # of a multiprocessor of compute capability 8.0 to 9.0
MOST_THREADS = 2048

# Kernels that may spill or use local memory, each with the reason. All others may not.
MAY_USE_LOCAL = {
    r"<(unary|binary)_(sin|cos|tan)(_grad)?<": "angles above 2^16 or so are reduced with a table",
    r"^element Resample": "the weights of an element are an array; a thread walks over it",
}
# Kernels that move packs of 16 bytes. (What integers answer to isnan needs no reading.)
STREAMS = (r"^thread PackedElementwise<(?!predicate_is(nan|inf|finite)<i)|^row .*RowShape<[^>]*, true>|^group ReduceRows<|^thread StridedElementwise<Cast<Pack|^thread Concat<Pack"
           r"|^group ReduceColumns<FloatSource<f32>, Sum|^element Dropout<.*, true>|^group AlongLines<.*, true>|^group AcrossLines<.*, [248]>"
           r"|^(phase|warp) Attention|^pipeline ")


class Kernel:
    def __init__(self, file):
        self.file = file
        self.name = ""
        self.serialized = False  # its wgmma: each waits for the one before
        self.registers = self.shared = self.local = self.spilled = self.loads = self.stores = 0

    def line(self):
        numbers = (self.registers, self.shared, self.local, self.spilled, self.loads, self.stores)
        return "%4d %6d %5d %5d %3d %3d  %s" % (*numbers, self.name)


def read(path):
    """The kernels of one file, by their mangled names."""
    kernels, now, others = {}, None, re.compile(r"Function properties for (\S+)")
    file = os.path.basename(path).removesuffix(".budget")
    described, serialized = "", []
    for line in open(path):
        entry = re.search(r"Compiling entry function '(\S+)' for 'sm_(\w+)'", line)
        if entry:
            now = kernels.setdefault(entry[1], Kernel(file)) if entry[2] in ("90", "90a") else None
            described = entry[1]
        elif others.search(line):
            described = others.search(line)[1]
        elif "wgmma.mma_async instructions are serialized" in line:
            serialized.append(line)
        elif line.startswith("wide:"):
            _, name, what, count = line.split()
            if name in kernels:
                setattr(kernels[name], what, int(count))
        elif now is not None:
            stack = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)
            if stack:
                # Functions that a kernel calls count as the kernel's own.
                now.local = max(now.local, int(stack[1]))
                now.spilled = max(now.spilled, int(stack[2]) + int(stack[3]))
            used = re.search(r"Used (\d+) registers", line)
            if used and described in kernels:
                now.registers = int(used[1])
                shared = re.search(r"(\d+) bytes smem", line)
                now.shared = int(shared[1]) if shared else 0
    for name, kernel in kernels.items():
        kernel.serialized = any("'%s'" % name in line for line in serialized)
    return kernels


SHORTER = [
    (r"nd_cuda::", ""), (r"\(anonymous namespace\)::", ""), (r"unsigned char", "u8"), (r"signed char", "i8"),
    (r"unsigned short", "u16"), (r"unsigned int", "u32"), (r"unsigned long", "u64"), (r"\bshort\b", "i16"),
    (r"\bint\b", "i32"), (r"\blong\b", "i64"), (r"\bfloat\b", "f32"), (r"\bdouble\b", "f64"),
    (r", None", ""), (r"\((?:nd_dtype|int|bool|i32)\)", ""), (r" >", ">"),
]


def short(name):
    """The body of a kernel and who runs it: "thread PackedElementwise<unary_exp<f32>, f32, f32>"."""
    of = re.match(r"(?:void )?(?:nd_cuda::)?(\w+?)(?:_kernel)?<(.*)", name)
    if not of:
        return name.split("(")[0]
    depth, end = 1, 0
    for end, letter in enumerate(of[2]):
        depth += (letter == "<") - (letter == ">")
        if depth == 0:
            break
    text = of[1] + " " + of[2][:end].strip()
    for pattern, shorter in SHORTER:
        text = re.sub(pattern, shorter, text)
    return text


def read_all(paths):
    kernels = []
    for path in paths:
        of_file = read(path)
        names = subprocess.run(["c++filt"], input="\n".join(of_file), capture_output=True, text=True, check=True)
        for kernel, name in zip(of_file.values(), names.stdout.splitlines()):
            kernel.name = short(name)
            kernels.append(kernel)
    return sorted(kernels, key=lambda kernel: (kernel.file, kernel.name))


HEAD = """What nvcc {version} gives each CUDA kernel for sm_90 (sm_90a where a file is compiled for that), made by `./bazelw run //kernels/cuda:budget`; a test holds it.

regs    registers of a thread
shared  bytes of shared memory of a block, without what its launch adds (a pipeline's ring)
local   bytes of local memory of a thread (a stack frame), those of functions that it calls too
spill   bytes of registers that are stored and loaded again
ld, st  instructions that load (or copy to shared memory) or store 16 bytes of global memory, in PTX
"""


def table(kernels, version):
    lines = HEAD.format(version=version).splitlines()
    lines += ["", "file                 kernels  regs shared local spill"]
    for file in sorted({kernel.file for kernel in kernels}):
        of = [kernel for kernel in kernels if kernel.file == file]
        most = [max(getattr(kernel, what) for kernel in of) for what in ("registers", "shared", "local", "spilled")]
        lines.append("%-20s %7d  %4d %6d %5d %5d" % (file, len(of), *most))
    for file in sorted({kernel.file for kernel in kernels}):
        lines += ["", file, "regs shared local spill  ld  st"]
        lines += [kernel.line() for kernel in kernels if kernel.file == file]
    return lines


def broken_rules(kernels):
    for kernel in kernels:
        allowed = any(re.search(pattern, kernel.name) for pattern in MAY_USE_LOCAL)
        if (kernel.local or kernel.spilled) and not allowed:
            yield "%s: %s has %d bytes of local memory and spills %d" % (
                kernel.file, kernel.name, kernel.local, kernel.spilled)
        if kernel.serialized:
            yield "%s: the wgmma of %s are serialized" % (kernel.file, kernel.name)
        if re.search(STREAMS, kernel.name) and not kernel.loads and not kernel.stores:
            yield "%s: %s moves no 16 bytes at once" % (kernel.file, kernel.name)


def version_of():
    nvcc = os.environ.get("NVCC", "/usr/local/cuda/bin/nvcc")
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"release (\d+\.\d+)", said)[1]


def main():
    command, paths = sys.argv[1], [path for path in sys.argv[2:] if path.endswith(".budget")]
    if not paths:
        print("SKIPPED: nvcc compiles nothing here")
        return 0
    kernels, version = read_all(paths), version_of()
    lines = table(kernels, version)
    if command == "write":
        print("\n".join(lines))
        return 0
    broken = list(broken_rules(kernels))
    print("\n".join(broken))
    kept = open(sys.argv[2]).read().splitlines()
    if not kept:
        print("the table is empty")
        return 1
    if kept[0].split()[2] != version:
        print("SKIPPED: the table is of nvcc %s, this is %s" % (kept[0].split()[2], version))
        return 0
    changes = list(difflib.unified_diff(kept, lines, "budget.txt", "now", lineterm="", n=0))
    print("\n".join(changes))
    return 1 if broken or changes else 0


if __name__ == "__main__":
    sys.exit(main())
