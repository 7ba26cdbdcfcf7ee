"""Builds the library and its quick tests with plain gcc, for the tools that build them again and again.

The library becomes two shared objects, the core alone and the whole, and every test a program that loads one: so a change to one source
costs one compilation and two links, whatever number of tests there is. Nothing of Bazel is touched; everything lies in a folder of its own.
What is older than its source is built again, so a folder can be kept.
"""

import concurrent.futures
import gzip
import json
import os
import pathlib
import re
import subprocess
import tempfile

# No oneDNN, no jemalloc, no CUDA and one instruction set: quick to build, and the same everywhere.
# The rooms of the core, which a target calls by one name.
CORE = "core"
CORE_ROOMS = ("lib/base", "lib/object", "lib/manager", "lib/gc", "lib/pressure", "lib/core")
CORE_FOLDERS = (*CORE_ROOMS, "lib/debug")
WHOLE_FOLDERS = (*CORE_FOLDERS, "lib/memory", "lib/device", "lib/device/cpu", "lib/device/fake", "lib/tensor",
                   "lib/ops", "lib/autograd", "lib/io", "lib/nn", "kernels/cpu")

# Each ends by asserting that nothing is left. These load the core alone; the quickest first.
CORE_TESTS = (
    "tests/unit/object/object_test.c",
    "tests/unit/base/error_test.c",
    "tests/unit/object/gate_test.c",
    "tests/unit/object/list_test.c",
    "tests/unit/object/edge_test.c",
    "tests/unit/manager/shard_test.c",
    "tests/unit/object/user_test.c",
    "tests/unit/base/error_in_callbacks_test.c",
    "tests/unit/object/block_test.c",
    "tests/unit/manager/origin_test.c",
    "tests/unit/gc/walk_test.c",
    "tests/unit/gc/forecast_test.c",
    "tests/unit/base/versioned_test.c",
    "tests/unit/base/utf8_test.c",
    "tests/behaviour/maps.c",
    "tests/behaviour/placement.c",
    "tests/behaviour/scopes.c",
    "tests/behaviour/paths.c",
    "tests/behaviour/parts.c",
    "tests/behaviour/escapes.c",
    "tests/behaviour/quotas.c",
    "tests/behaviour/hostile.c",
    "tests/behaviour/policies.c",
    "tests/behaviour/pauses.c",
    "tests/behaviour/managers.c",
    "tests/behaviour/finalizers.c",
    "tests/behaviour/weak_references.c",
    "tests/behaviour/interleavings.c",
    "tests/behaviour/steps.c",
    "tests/faults/core.c",
    "tests/faults/signals.c",
    "tests/faults/keys.c",
    "tests/faults/barrier_refused.c",
    "tests/unit/debug/lifetimes_test.c",
    "tests/unit/debug/holders_test.c",
    "tests/unit/debug/graph_test.c",
    "tests/unit/debug/snapshot_test.c",
    "tests/unit/debug/trace_test.c",
    "tests/unit/debug/watch_test.c",
    "tests/behaviour/random_graph.c",
    "tests/behaviour/threads.c",
    "tests/behaviour/graph_shapes.c",
)
WHOLE_TESTS = (
    "tests/unit/debug/tensors_test.c",
    "tests/unit/pressure/pressure_callback_test.c",
    "tests/unit/memory/host_test.c",
    "tests/unit/memory/ladder_test.c",
    "tests/unit/pressure/pressure_test.c",
    "tests/unit/device/fake_test.c",
    "tests/unit/device/registry_test.c",
    "tests/unit/tensor/copy_test.c",
    "tests/unit/tensor/create_test.c",
    "tests/unit/tensor/fault_test.c",
    "tests/unit/tensor/join_test.c",
    "tests/unit/tensor/print_test.c",
    "tests/unit/tensor/record_test.c",
    "tests/unit/tensor/shape_test.c",
    "tests/unit/tensor/storage_test.c",
    "tests/unit/tensor/view_test.c",
    "tests/unit/ops/elementwise_test.c",
    "tests/unit/ops/in_place_test.c",
    "tests/unit/ops/index_test.c",
    "tests/unit/ops/matmul_test.c",
    "tests/unit/ops/neural_test.c",
    "tests/unit/ops/reduce_test.c",
    "tests/unit/autograd/backward_test.c",
    "tests/unit/autograd/cycles_test.c",
    "tests/unit/autograd/function_test.c",
    "tests/unit/autograd/grad_test.c",
    "tests/unit/autograd/hooks_test.c",
    "tests/unit/autograd/order_test.c",
    "tests/unit/autograd/faults_test.c",
    "tests/unit/autograd/rules_test.c",
    "tests/unit/io/json_test.c",
    "tests/unit/io/safetensors_test.c",
    "tests/unit/io/narrow_float_test.c",
    "tests/unit/io/idx_test.c",
    "tests/unit/io/dataset_test.c",
    "tests/unit/io/exhausted_test.c",
    "tests/unit/io/durable_test.c",
    "tests/unit/nn/module_test.c",
    "tests/unit/nn/layers_test.c",
    "tests/unit/nn/optimizer_test.c",
    "tests/unit/nn/parameters_test.c",
    "tests/behaviour/autograd_cycles.c",
    "tests/behaviour/callback_limits.c",
    "tests/behaviour/callbacks.c",
    "tests/behaviour/fake_device.c",
    "tests/behaviour/scoped.c",
    "tests/behaviour/strided_views.c",
    "tests/behaviour/tensors.c",
    "tests/behaviour/tensor_accounts.c",
    "tests/behaviour/view_uses.c",
    "tests/behaviour/dead.c",
    "tests/faults/training.c",
    "tests/faults/cancelled.c",
    "tests/faults/forks.c",
    "tests/faults/forks_in_callbacks.c",
)
# LeakSanitizer keeps locks of its own over a fork: these are linked with the library's objects, without it.
UNLEAKED = ("tests/faults/forks.c", "tests/faults/forks_in_callbacks.c", "tests/stress/process.c", "tests/unit/base/pool_test.c")
# What is built, and what tests read while they run: a copy of the tree without one of these has tests that fail.
NEEDED_FOLDERS = ("data/mnist", "include", "kernels", "lib", "tests")
SHARED_TEST_SOURCE = "tests/behaviour/cell.c"
# Put themselves between the library and the system: they are linked with the library's objects.
WRAPS = {"tests/unit/io/durable_test.c": ("fsync", "ftruncate", "rename", "sendfile", "unlink", "write")}

# LeakSanitizer costs nothing while a test runs, and sees memory that nobody gave back. To compilers it is nothing, to linkers a library.
LEAK = "-fsanitize=leak"
FLAGS = ["-std=gnu17", "-w", "-g1", "-O1", LEAK, "-fPIC", "-D_GNU_SOURCE", "-DND_HAVE_JEMALLOC=0", "-DND_HAVE_ONEDNN=0",
         "-DND_HAVE_CUDA=0", "-DND_HAVE_THREADS=1", "-DND_HAVE_ZLIB=1", "-DND_ISA_X86=0", "-Iinclude", "-I."]
ISA_FLAGS = ["-DND_ISA=baseline", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd"]
LIBRARIES = ["-lz", "-ldl", "-lpthread", "-lm"]
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def folders_of(target):
    return CORE_ROOMS if target == CORE else (target,)


def needs_objects(test):
    """Whether the program of a test has the library's objects in it, and is linked anew when one of them changes."""
    return test in WRAPS or test in UNLEAKED


def isa_sources(root):
    """The sources of kernels/cpu that are compiled once per instruction set."""
    rules = re.findall(r"^nd_isa_kernels\((.*?)^\)", (root / "kernels/cpu/BUILD.bazel").read_text(), re.MULTILINE | re.DOTALL)
    return {name for rule in rules for name in re.findall(r'"(\w+\.c)"', rule)}


def own_tests(root, target):
    """The tests of a folder of the library, which the core has in its lists."""
    return [] if target == CORE else sorted(
        str(path.relative_to(root)) for path in (root / "tests/unit" / pathlib.PurePath(target).name).glob("*_test.c"))


def newer(path, than):
    return not path.exists() or path.stat().st_mtime < than


class Room:
    """The library as built in `folder` from the tree `root`; sources below `target`, a folder or CORE, are compiled with `flags` as well. `more` are
    tests beside the quick ones."""

    def __init__(self, root, folder, target=CORE, flags=(), jobs=2, more=()):
        self.root = pathlib.Path(root).resolve()
        lacking = [place for place in NEEDED_FOLDERS if not (self.root / place).is_dir()]
        if lacking:
            raise RuntimeError(f"{self.root} has no {', '.join(lacking)}: a copy of the tree must be whole")
        self.folder = pathlib.Path(folder).resolve()
        self.target = target
        self.folders = folders_of(target)
        self.flags = list(flags)
        self.jobs = jobs
        self.sources = sorted(
            str(path.relative_to(self.root)) for place in WHOLE_FOLDERS for path in (self.root / place).glob("*.c"))
        self.isa_sources = isa_sources(self.root)
        self.tests = [test for test in CORE_TESTS + WHOLE_TESTS if (self.root / test).exists()]
        if not set(self.folders) <= set(CORE_FOLDERS):
            # Those of the core reach nothing of the target.
            self.tests = [test for test in self.tests if test in WHOLE_TESTS]
        self.tests += more
        # All of a folder's own tests, too, but those that want a library or a file that is not built here.
        self.own = [test for test in own_tests(self.root, target) if test not in self.tests]
        self.tests += self.own

    def object_of(self, source):
        return self.folder / (source.replace("/", "_")[:-2] + ".o")

    def program_of(self, test):
        return self.folder / test.replace("/", "_")[:-2]

    def compile(self, source, text_of=None, to=None):
        """Compiles a source, or another text of it, to its object; False when the compiler refuses."""
        path = pathlib.PurePosixPath(source)
        isa = ISA_FLAGS if str(path.parent) == "kernels/cpu" and path.name in self.isa_sources else []
        flags = self.flags if os.path.dirname(source) in self.folders else []
        command = ["gcc", *FLAGS, *isa, *flags, "-c", str(text_of or source), "-o", str(to or self.object_of(source))]
        return subprocess.run(command, cwd=self.root, check=False, **QUIET).returncode == 0

    def objects(self, other=None):
        """The objects of all sources, with those of `other`, {source: object}, in the place of their own."""
        return [str((other or {}).get(source, self.object_of(source))) for source in self.sources]

    def link(self, other=None, to=None):
        """Makes the shared libraries in the folder `to`; False when the linker refuses."""
        for name in ("core", "whole"):
            objects = [object for object, source in zip(self.objects(other), self.sources)
                       if name == "whole" or os.path.dirname(source) in CORE_FOLDERS]
            command = ["gcc", *FLAGS, *self.flags, "-shared", "-o", str((to or self.folder) / f"lib{name}.so"), *objects, *LIBRARIES]
            if subprocess.run(command, cwd=self.root, check=False, **QUIET).returncode != 0:
                return False
        return True

    def link_test(self, test, other=None, to=None):
        """Makes the program of a test; raises when it does not build, unless that is one of the folder's own."""
        wraps = [f"-Wl,--wrap={call}" for call in WRAPS.get(test, ())]
        name = "core" if test in CORE_TESTS else "whole"
        library = ["-L", str(self.folder), f"-l{name}", f"-Wl,-rpath,{self.folder}"]
        if needs_objects(test):
            library = [*self.objects(other), *self.flags]
        flags = [flag for flag in FLAGS if flag != LEAK or test not in UNLEAKED]
        own = test in self.own
        subprocess.run(["gcc", *flags, *wraps, test, SHARED_TEST_SOURCE, "-o", str(to or self.program_of(test)), *library, "-lcmocka",
                        *LIBRARIES], cwd=self.root, check=not own, **(QUIET if own else {}))

    def build(self):
        """Builds what is not built or older than its source or any header; raises when something does not build."""
        self.folder.mkdir(parents=True, exist_ok=True)
        headers = max(path.stat().st_mtime for place in ("include", "lib", "kernels", "tests")
                      for pattern in ("*.h", "*.inc") for path in (self.root / place).rglob(pattern))
        def old(path, source):
            return newer(path, max(headers, (self.root / source).stat().st_mtime))
        sources = [source for source in self.sources if old(self.object_of(source), source)]
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            for source, done in zip(sources, pool.map(self.compile, sources)):
                if not done:
                    raise RuntimeError(f"{source} does not compile")
            if sources and not self.link():
                raise RuntimeError("the library does not link")
            list(pool.map(self.link_test, [test for test in self.tests if old(self.program_of(test), test) or (sources and needs_objects(test))]))

    def run(self, test, seconds, library=None, program=None, settings=()):
        """Runs a test, with the library in another folder and variables set in its environment: "passed", "failed", or "timeout"."""
        if not pathlib.Path(program or self.program_of(test)).exists():
            return "failed"
        home = str(library or self.folder)
        with tempfile.TemporaryDirectory(dir=home) as folder:
            environment = dict(os.environ, TEST_TMPDIR=folder, LD_LIBRARY_PATH=home, **dict(settings))
            with subprocess.Popen([str(program or self.program_of(test))], cwd=self.root, env=environment, start_new_session=True,
                                  **QUIET) as process:
                try:
                    return "passed" if process.wait(seconds) == 0 else "failed"
                except subprocess.TimeoutExpired:
                    return "timeout"
                finally:
                    # Also what it forked.
                    try:
                        os.killpg(process.pid, 9)
                    except ProcessLookupError:
                        pass

    def coverage(self):
        """What gcov says of the target's files since it was last asked, then forgets: a list of its "files"."""
        data = [self.object_of(source).with_suffix(".gcda") for source in self.sources if os.path.dirname(source) in self.folders]
        data = [str(path) for path in data if path.exists()]
        if not data:
            return []
        text = subprocess.run(["gcov", "--branch-probabilities", "--json-format", "--stdout", *data], cwd=self.root, check=True,
                              capture_output=True).stdout
        if text[:2] == b"\x1f\x8b":
            text = gzip.decompress(text)
        for path in data:
            os.unlink(path)
        return [file for line in text.splitlines() if line.strip() for file in json.loads(line)["files"]
                if file["file"].startswith(tuple(folder + "/" for folder in self.folders))]
