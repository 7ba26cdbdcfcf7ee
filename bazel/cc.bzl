"""The C rules of ndarc: nd_cc_library, nd_cc_test, nd_cc_binary and nd_isa_kernels.

They add the language standard, the warnings and ND_HAVE_JEMALLOC, ND_HAVE_ONEDNN, ND_HAVE_THREADS, ND_HAVE_CUDA and
ND_HAVE_ZLIB, each 0 or 1. -Werror is not here but in .bazelrc, so that a newer compiler does not break a consumer.
"""

load("@local_cuda//:defs.bzl", "HAVE_CUDA")
load("@local_jemalloc//:defs.bzl", "HAVE_JEMALLOC")
load("@local_jpeg//:defs.bzl", "HAVE_JPEG")
load("@local_mpi//:defs.bzl", "HAVE_MPI")
load("@local_onednn//:defs.bzl", "HAVE_ONEDNN")
load("@local_zlib//:defs.bzl", "HAVE_ZLIB")
load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")

_COPTS = [
    "-std=gnu17",
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-fvisibility=hidden",
    # Public functions may be inlined where they are called inside the library.
    "-fno-semantic-interposition",
    # Where a short function lies in a line that the processor fetches is a tenth of what the smallest operations cost: let it not
    # depend on what was linked before.
    "-falign-functions=64",
    "-D_GNU_SOURCE",
    # Nothing here uses what is kept for older programs.
    "-DND_NO_OLD_NAMES",
]

# Thread-local variables at a fixed distance from the thread's own address: one instruction finds them. In libnd.so that takes
# static thread storage, of which a library that dlopen() brings in late gets what is left of some 1.5 KiB: all of its variables
# together are small (tests/symbols/symbols_test.sh), what is larger is allocated by the thread that wants it, and CUDA's runtime,
# which has a page of its own, is another library (cuda_runtime.bzl).
_THREAD_LOCAL = ["-ftls-model=initial-exec"]

# A consumer who chose nothing gets Bazel's fastbuild, which would compile the library without optimisation.
_OPTIMISED = select({
    str(Label("//bazel:fastbuild")): ["-O2", "-DNDEBUG"],
    "//conditions:default": [],
})

# Bazel's own flags ask for them.
_FRAME_POINTERS = select({
    str(Label("//bazel:frame_pointers_is_on")): [],
    "//conditions:default": ["-fomit-frame-pointer"],
})

# Canaries in every function with an array or a variable whose address is taken, checked copies of the C library, marks where
# an indirect jump may land. Position-independent programs, read-only relocations and immediate binding are Bazel's own.
_HARDENING = select({
    str(Label("//bazel:hardening_is_on")): ["-fstack-protector-strong"],
    "//conditions:default": [],
}) + select({
    str(Label("//bazel:hardened_and_optimised")): ["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"],
    "//conditions:default": [],
}) + select({
    str(Label("//bazel:hardened_x86_64")): ["-fcf-protection=full"],
    "//conditions:default": [],
})

def _when(have, setting, value, yes, no):
    """`yes` where the library is installed and the build setting has that value, else `no`."""
    if not have:
        return no
    return select({
        str(Label("//bazel:%s_is_%s" % (setting, value))): yes,
        "//conditions:default": no,
    })

def _have(name, have, setting, value):
    return _when(have, setting, value, ["ND_HAVE_%s=1" % name], ["ND_HAVE_%s=0" % name])

_JEMALLOC_DEFINE = _have("JEMALLOC", HAVE_JEMALLOC, "host_allocator", "jemalloc")

_DEFINES = (
    _have("ONEDNN", HAVE_ONEDNN, "blas", "onednn") +
    _have("THREADS", True, "threads", "on") +
    _have("CUDA", HAVE_CUDA, "cuda", "on") +
    ["ND_HAVE_ZLIB=%d" % (1 if HAVE_ZLIB else 0)]
)

# What a package that uses the library adds to its deps: the library, or nothing.
JEMALLOC = _when(HAVE_JEMALLOC, "host_allocator", "jemalloc", ["@local_jemalloc//:jemalloc"], [])
ONEDNN = _when(HAVE_ONEDNN, "blas", "onednn", ["@local_onednn//:onednn"], [])
FAKE_CUDA = _when(True, "cuda", "fake", [str(Label("//tests/cudart"))], [])
CUDA = _when(HAVE_CUDA, "cuda", "on", ["@local_cuda//:cudart"], []) + FAKE_CUDA
ZLIB = ["@local_zlib//:zlib"] if HAVE_ZLIB else []
MPI = ["@local_mpi//:mpi"] if HAVE_MPI else []

# What a package that reads or tests pictures adds to its local_defines.
JPEG_DEFINES = ["ND_HAVE_JPEG=%d" % (1 if HAVE_JPEG else 0)]

# The same of lib/distributed and its tests.
MPI_DEFINES = ["ND_HAVE_MPI=%d" % (1 if HAVE_MPI else 0)]

def nd_cc_library(name, copts = [], local_defines = [], deps = [], for_shared = False, **kwargs):
    """A part of the library.

    Args:
      name: of the library.
      copts: added to the usual ones.
      local_defines: added to the usual ones.
      deps: what it uses.
      for_shared: whether it is compiled a second time for libnd.so, as NAME_for_shared, with ND_SHARED=1 and without
        jemalloc. Needed where the code asks for either; the root BUILD.bazel lists these libraries.
      **kwargs: as cc_library.
    """
    cc_library(
        name = name,
        copts = _COPTS + _THREAD_LOCAL + _OPTIMISED + _FRAME_POINTERS + _HARDENING + copts,
        local_defines = _DEFINES + _JEMALLOC_DEFINE + local_defines,
        deps = deps,
        linkstatic = 1,
        **kwargs
    )
    if for_shared:
        cc_library(
            name = name + "_for_shared",
            copts = _COPTS + _THREAD_LOCAL + _OPTIMISED + _FRAME_POINTERS + _HARDENING + copts,
            local_defines = _DEFINES + ["ND_HAVE_JEMALLOC=0", "ND_SHARED=1"] + local_defines,
            deps = deps,
            linkstatic = 1,
            **dict(kwargs, visibility = [str(Label("//:__pkg__"))])
        )

def nd_room(name = "room"):
    """The files of a room of lib/, for the tests that read them.

    Args:
      name: of the filegroup.
    """
    native.filegroup(
        name = name,
        srcs = native.glob([
            "*.c",
            "*.h",
        ], allow_empty = True),
        visibility = ["//tests/rooms:__pkg__"],
    )

def nd_modelled_room(name = "room", exclude = [], exported_to = []):
    """A room whose sources are compiled once more, against the scheduler of tests/model.

    Args:
      name: of the filegroup of all files.
      exclude: patterns of files that are not compiled for that.
      exported_to: packages that name single files, besides the model's.
    """
    nd_room(name)
    model = ["//tests/model:__pkg__"]
    native.filegroup(
        name = "sources",
        srcs = native.glob([
            "*.c",
            "*.h",
        ], exclude = exclude),
        visibility = model,
    )
    native.filegroup(
        name = "internal_headers",
        srcs = native.glob(["*.h"], exclude = exclude),
        visibility = model,
    )
    native.exports_files(
        native.glob([
            "*.c",
            "*.h",
        ]),
        visibility = exported_to + model,
    )

def nd_cc_binary(name, copts = [], local_defines = [], deps = [], linkopts = [], **kwargs):
    cc_binary(
        name = name,
        copts = _COPTS + _OPTIMISED + _FRAME_POINTERS + _HARDENING + copts,
        local_defines = _DEFINES + _JEMALLOC_DEFINE + local_defines,
        deps = deps,
        linkopts = ["-lm", "-lpthread"] + linkopts,
        **kwargs
    )

def nd_cc_test(name, size = "small", copts = [], local_defines = [], deps = [], linkopts = [], **kwargs):
    """A cmocka test: one executable that carries everything but the system's shared libraries, which it also looks
    for beside itself, so that it can be copied to another machine. Skipped where there is no cmocka."""
    cc_test(
        name = name,
        size = size,
        copts = _COPTS + _OPTIMISED + _FRAME_POINTERS + _HARDENING + copts,
        local_defines = _DEFINES + _JEMALLOC_DEFINE + local_defines,
        deps = deps + ["@local_cmocka//:cmocka"],
        linkopts = ["-lm", "-lpthread", "-Wl,-rpath,$$ORIGIN"] + linkopts,
        linkstatic = 1,
        **kwargs
    )

_ISAS = {
    "baseline": [],
    "x86_64_v3": ["-march=x86-64-v3"],
    "x86_64_v4": ["-march=x86-64-v4", "-mprefer-vector-width=512"],
}

def nd_isa_kernels(name, srcs, hdrs = [], copts = [], local_defines = [], deps = [], **kwargs):
    """The same sources once per instruction set; which one runs is decided when the program runs.

    Each source is compiled with -DND_ISA=baseline, =x86_64_v3 and =x86_64_v4 and must end every symbol that other
    files see with it, so that the three sets live side by side. On a CPU other than x86-64 only baseline exists;
    dependants are told by ND_ISA_X86, 0 or 1.

    Args:
      name: of the library that holds all the sets.
      srcs: C files. They must not define anything `inline` with external linkage: the linker would keep one
        instruction set's copy for all.
      hdrs: headers, for the sources and for dependants.
      copts: for every set, before the set's own.
      local_defines: for every set.
      deps: for every set.
      **kwargs: visibility and the like, of the library that holds all the sets.
    """
    x86 = str(Label("//bazel:x86_64"))
    for isa, isa_copts in _ISAS.items():
        nd_cc_library(
            name = name + "_" + isa,
            srcs = srcs,
            hdrs = hdrs,
            # gcc moves pairs of floats through MMX registers, which are the x87 stack: the caller's long doubles become NaN.
            copts = ["-O3"] + copts + isa_copts + select({x86: ["-mno-mmx"], "//conditions:default": []}),
            local_defines = local_defines + ["ND_ISA=" + isa],
            deps = deps,
            tags = ["manual"],
            visibility = ["//visibility:private"],
        )
    cc_library(
        name = name,
        hdrs = hdrs,
        defines = select({x86: ["ND_ISA_X86=1"], "//conditions:default": ["ND_ISA_X86=0"]}),
        deps = deps + [":" + name + "_baseline"] + select({
            x86: [":" + name + "_" + isa for isa in _ISAS if isa != "baseline"],
            "//conditions:default": [],
        }),
        **kwargs
    )
