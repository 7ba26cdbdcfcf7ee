#!/usr/bin/env python3
"""What stands in the machine code of the CUDA kernels: what the portable form promises of 16-byte accesses, and of no local memory, held
against what the assembler made of it.

    machine_code.py budget.txt OBJECT.o...     for sm_90 (sm_90a); fails for a kernel that breaks a rule of budget.py

`./bazelw run //kernels/cuda:machine_code` hands the objects over.

By cuobjdump and nvdisasm, which are looked for in CUDA_TOOLS, on the PATH and beside nvcc; PyPI has them (nvidia-cuda-cuobjdump and
nvidia-cuda-nvdisasm). Without them it says so, and fails.
"""
import os
import re
import shutil
import subprocess
import sys

import budget

# Accesses of 16 bytes: of global memory, or from there to shared memory. sm_90 has copies in bulk as well.
WIDE = re.compile(r"\b(LDG|STG|LDGSTS)(\.[A-Z0-9]+)*\.128\b|\bUBLKCP\b|\bUTMA")
LOCAL = re.compile(r"\b(LDL|STL)\b")


def find_tools():
    """Folders that have the tools, in front of the PATH."""
    folders = [os.environ.get("CUDA_TOOLS", ""), *os.environ["PATH"].split(":"), os.path.dirname(os.environ.get("NVCC", "")), "/usr/local/cuda/bin"]
    os.environ["PATH"] = ":".join(folder for folder in folders if folder)
    return all(shutil.which(tool) for tool in ("cuobjdump", "nvdisasm"))


def read(path):
    """Instructions of each kernel of an object, by its mangled name: how many there are, wide accesses and local ones."""
    kernels, now = {}, None
    dump = subprocess.Popen(["cuobjdump", "-sass", path], stdout=subprocess.PIPE, text=True)
    for line in dump.stdout:
        architecture = re.match(r"arch = sm_(\w+)", line.strip())
        function = re.search(r"Function : (\S+)", line)
        if architecture:
            counted = architecture[1] in ("90", "90a")
        elif function:
            now = kernels.setdefault(function[1], [0, 0, 0]) if counted else None
        elif now is not None and re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+\S", line):
            now[0] += 1
            now[1] += bool(WIDE.search(line))
            now[2] += bool(LOCAL.search(line))
    if dump.wait() != 0:
        sys.exit("cuobjdump could not read %s" % path)
    return kernels


def main():
    if not find_tools():
        sys.exit("machine_code: no cuobjdump and nvdisasm: pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm, and CUDA_TOOLS=.../nvidia/cu13/bin")
    known = {line[33:] for line in open(sys.argv[1]).read().splitlines()}
    wrong, count, wide_kernels, instructions = [], 0, 0, 0
    for path in sys.argv[2:]:
        kernels = read(path)
        names = subprocess.run(["c++filt"], input="\n".join(kernels), capture_output=True, text=True, check=True).stdout.splitlines()
        for (length, wide, local), mangled in zip(kernels.values(), names):
            name, file = budget.short(mangled), os.path.basename(path)
            if name not in known:
                continue  # a function that is no kernel
            count, instructions, wide_kernels = count + 1, instructions + length, wide_kernels + (wide > 0)
            if re.search(budget.STREAMS, name) and not wide:
                wrong.append("%s: %s moves no 16 bytes at once in its machine code" % (file, name))
            if local and not any(re.search(pattern, name) for pattern in budget.MAY_USE_LOCAL):
                wrong.append("%s: %s has %d accesses of local memory in its machine code" % (file, name, local))
    print("\n".join(wrong))
    print("%d kernels of %d instructions; %d move 16 bytes at once; %d break a rule" % (count, instructions, wide_kernels, len(wrong)))
    return count == 0 or bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
