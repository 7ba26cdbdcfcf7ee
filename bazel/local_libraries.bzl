"""What this machine has: one small repository per library, each with HAVE_<NAME> in defs.bzl and one cc_library.

A library that is missing gives HAVE_<NAME> = False and an empty cc_library, so everything builds without it. The
question is put to the compiler (does a three-line program that uses the library link?), not to a list of folders.
"""

load("//bazel:bazel_repository.bzl", "bazel_repository")
load("//bazel:cuda_repository.bzl", "cuda_repository")
load("//bazel:mpi_repository.bzl", "mpi_repository")

_BUILD = """load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "{name}",
    linkopts = {linkopts},
    target_compatible_with = {compatible_with},
    visibility = ["//visibility:public"],
)
"""

def _from_elsewhere(label):
    """A label as other repositories write it: of the main one, Bazel's text begins with //."""
    text = str(label)
    return "@" + text if text.startswith("//") else text

def _system_library(ctx):
    compiler = ctx.os.environ.get("CC", "cc")
    ctx.file("probe.c", "".join(["#include <%s>\n" % header for header in ctx.attr.headers]) +
                        "int main(void)\n{\n    %s;\n    return 0;\n}\n" % ctx.attr.expression)
    have = False
    linkopts = []
    for options in ctx.attr.ways_to_link:
        if not have and ctx.execute([compiler, "probe.c", "-o", "probe"] + options.split(" ")).return_code == 0:
            have = True
            linkopts = options.split(" ")
    ctx.file("defs.bzl", "HAVE_%s = %s\n" % (ctx.attr.library.upper(), have))
    ctx.file("BUILD.bazel", _BUILD.format(
        name = ctx.attr.library,
        linkopts = linkopts,
        compatible_with = [_from_elsewhere(ctx.attr.missing)] if ctx.attr.missing and not have else [],
    ))

system_library = repository_rule(
    _system_library,
    attrs = {
        "expression": attr.string(mandatory = True, doc = "a C expression that needs the library"),
        "headers": attr.string_list(mandatory = True),
        "library": attr.string(mandatory = True),
        "missing": attr.label(doc = "a constraint that no platform has: what needs the library is skipped without it"),
        "ways_to_link": attr.string_list(mandatory = True, doc = "linker options; the first that work are used"),
    },
    configure = True,
    environ = ["CC"],
    local = True,
)

def _system_program(ctx):
    path = ctx.which(ctx.attr.program)
    ctx.file("defs.bzl", "HAVE_{name} = {have}\n{name} = {path}\n".format(
        name = ctx.attr.program.upper(),
        have = path != None,
        path = repr(str(path) if path else ""),
    ))
    ctx.file("BUILD.bazel", "")

# HAVE_<NAME> and the path <NAME> of a program that is not needed where it is missing.
system_program = repository_rule(
    _system_program,
    attrs = {"program": attr.string(mandatory = True)},
    configure = True,
    environ = ["PATH"],
    local = True,
)

def local_libraries():
    """What the library itself uses: @local_bazel, @local_cuda, @local_jemalloc, @local_jpeg, @local_mpi, @local_onednn
    and @local_zlib."""
    bazel_repository(name = "local_bazel")
    cuda_repository(name = "local_cuda")
    system_library(
        name = "local_jemalloc",
        library = "jemalloc",
        headers = ["stddef.h", "jemalloc/jemalloc.h"],
        expression = "sdallocx(mallocx(16, 0), 16, 0)",
        # The archive first, so that a program carries its allocator with it.
        ways_to_link = ["-l:libjemalloc_pic.a -lm -lpthread -ldl", "-ljemalloc"],
    )

    # Only the header: the library is opened when a program first needs it (lib/base/optional.h).
    system_library(
        name = "local_jpeg",
        library = "jpeg",
        headers = ["stddef.h", "stdio.h", "jpeglib.h", "jerror.h"],
        expression = "(void)sizeof(struct jpeg_decompress_struct)",
        ways_to_link = ["-lc"],
    )
    mpi_repository(name = "local_mpi")
    system_library(
        name = "local_onednn",
        library = "onednn",
        headers = ["dnnl.h"],
        expression = "dnnl_version()",
        ways_to_link = ["-ldnnl"],
    )
    system_library(
        name = "local_zlib",
        library = "zlib",
        headers = ["zlib.h"],
        expression = "zlibVersion()",
        ways_to_link = ["-lz"],
    )

def test_libraries():
    """What only tests and benchmarks use: @local_cmocka, @local_libtorch, @local_nim and @local_openmp."""
    system_library(
        name = "local_cmocka",
        library = "cmocka",
        headers = ["stdarg.h", "stddef.h", "stdint.h", "setjmp.h", "cmocka.h"],
        expression = "cmocka_set_message_output(CM_OUTPUT_STDOUT)",
        missing = str(Label("//bazel:cmocka_is_missing")),
        ways_to_link = ["-lcmocka"],
    )

    # Only rivals in //bench.
    system_library(
        name = "local_libtorch",
        library = "libtorch",
        headers = ["torch/csrc/api/include/torch/version.h"],
        expression = "(void)TORCH_VERSION_MAJOR",
        ways_to_link = ["-ltorch -ltorch_cpu -lc10"],
    )
    system_library(
        name = "local_openmp",
        library = "openmp",
        headers = ["omp.h"],
        expression = "omp_get_max_threads()",
        ways_to_link = ["-fopenmp"],
    )
    system_program(name = "local_nim", program = "nim")
