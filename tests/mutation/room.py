"""Builds the core and its quick tests with plain gcc, for the tools that build them again and again.

The core and lib/debug become one shared library, and every test a program that loads it: so a change to one source costs one
compilation and one link, whatever number of tests there is. Nothing of Bazel is touched; everything lies in a folder of its own.
"""

import os
import pathlib
import subprocess

LIBRARY_FOLDERS = ("lib/core", "lib/debug")

# Tests that link the core alone, quickest first. Each ends by asserting that nothing is left.
TESTS = (
    "tests/unit/core/object.c",
    "tests/unit/core/error.c",
    "tests/unit/core/gate.c",
    "tests/unit/core/containers.c",
    "tests/unit/core/closing.c",
    "tests/unit/core/shards.c",
    "tests/unit/core/block.c",
    "tests/unit/core/types.c",
    "tests/behaviour/maps.c",
    "tests/behaviour/steps.c",
    "tests/behaviour/placement.c",
    "tests/behaviour/managers.c",
    "tests/behaviour/scopes.c",
    "tests/behaviour/quotas.c",
    "tests/behaviour/policies.c",
    "tests/behaviour/weak_and_finalizers.c",
    "tests/behaviour/paths.c",
    "tests/behaviour/parts.c",
    "tests/behaviour/hostile.c",
    "tests/behaviour/interleavings.c",
    "tests/faults/core.c",
    "tests/unit/debug/lifetimes_test.c",
    "tests/unit/debug/holders_test.c",
    "tests/unit/debug/graph_test.c",
    "tests/unit/debug/snapshot_test.c",
    "tests/behaviour/threads.c",
    "tests/behaviour/random_graph.c",
    "tests/behaviour/graph_shapes.c",
)
SHARED_TEST_SOURCE = "tests/behaviour/cell.c"

# LeakSanitizer costs nothing while a test runs, and sees memory that nobody gave back.
FLAGS = ["-std=gnu17", "-w", "-g1", "-fsanitize=leak", "-fPIC", "-D_GNU_SOURCE", "-DND_HAVE_JEMALLOC=0", "-DND_HAVE_ONEDNN=0", 
         "-DND_HAVE_CUDA=0", "-DND_HAVE_ZLIB=0", "-Iinclude", "-I."]


class Room:
    """The core as built in `folder` from the tree `root`."""

    def __init__(self, root, folder, flags=("-O1",), jobs=2):
        self.root = pathlib.Path(root)
        self.folder = pathlib.Path(folder)
        self.flags = FLAGS + list(flags)
        self.jobs = jobs
        self.sources = sorted(
            str(path.relative_to(self.root)) for place in LIBRARY_FOLDERS for path in (self.root / place).glob("*.c"))
        self.library = self.folder / "libroom.so"
        self.tests = [test for test in TESTS if (self.root / test).exists()]

    def object_of(self, source):
        return self.folder / (source.replace("/", "_")[:-2] + ".o")

    def program_of(self, test):
        return self.folder / test.replace("/", "_")[:-2]

    def compile(self, source, original=None):
        """Compiles a source to its object; False when the compiler refuses."""
        command = ["gcc", *self.flags, "-c", source, "-o", str(self.object_of(original or source))]
        return subprocess.run(command, cwd=self.root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0

    def link(self):
        """Makes the shared library of all objects; False when the linker refuses."""
        objects = [str(self.object_of(source)) for source in self.sources]
        command = ["gcc", *self.flags, "-shared", "-o", str(self.library), *objects, "-lpthread", "-lm"]
        return subprocess.run(command, cwd=self.root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0

    def build(self):
        """Builds everything; raises when something does not build."""
        self.folder.mkdir(parents=True, exist_ok=True)
        waiting = list(self.sources)
        running = []
        while waiting or running:
            while waiting and len(running) < self.jobs:
                source = waiting.pop()
                command = ["gcc", *self.flags, "-c", source, "-o", str(self.object_of(source))]
                running.append((source, subprocess.Popen(command, cwd=self.root)))
            source, process = running.pop(0)
            if process.wait() != 0:
                raise RuntimeError(f"{source} does not compile")
        if not self.link():
            raise RuntimeError("the library does not link")
        for test in self.tests:
            # The test's own code is not what is looked at, and need not be slow.
            plain = [flag for flag in self.flags if flag != "--coverage"]
            subprocess.run(["gcc", *plain, test, SHARED_TEST_SOURCE, "-o", str(self.program_of(test)), "-L", str(self.folder),
                            "-lroom", f"-Wl,-rpath,{self.folder}", "-lcmocka", "-lpthread", "-lm"], cwd=self.root, check=True)

    def run(self, test, seconds):
        """Runs a test: "passed", "failed", or "timeout"."""
        environment = dict(os.environ, TEST_TMPDIR=str(self.folder))
        try:
            done = subprocess.run([str(self.program_of(test))], cwd=self.root, env=environment, timeout=seconds,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        except subprocess.TimeoutExpired:
            return "timeout"
        return "passed" if done.returncode == 0 else "failed"
