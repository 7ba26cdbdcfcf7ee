"""cuda_library: a cc_library of .cu files, compiled by the toolkit's nvcc, and empty where there is no toolkit."""

load("@local_bazel//:cc.bzl", "CcInfo")
load("@local_cuda//:defs.bzl", "HAVE_CUDA", "NVCC")
load("@rules_cc//cc:defs.bzl", "cc_library")

# Hopper machine code, and the portable form that newer GPUs translate when they load it.
_ARCHITECTURES = ["-gencode", "arch=compute_90,code=[sm_90,compute_90]"]

# For the host's half of a .cu file. Without exceptions and guarded statics (nvcc makes those for the <<<>>> launches
# that we do not use) it needs no C++ runtime, so neither does a C program that links it.
_HOST_OPTIONS = ["-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-fno-exceptions", "-fno-threadsafe-statics"]

# nvcc names its temporary files by its process number, which is 2 in every sandbox: two at a time took each other's.
_IN_A_FOLDER_OF_ITS_OWN = '''
TMPDIR=$(mktemp -d) || exit
export TMPDIR
"$@"
status=$?
rm -rf "$TMPDIR"
exit $status
'''

def _cuda_objects(ctx):
    compilation = [dep[CcInfo].compilation_context for dep in ctx.attr.deps]
    headers = depset(ctx.files.hdrs, transitive = [context.headers for context in compilation])
    arguments = ["-c", "-O3", "-std=c++17", "-Xcompiler", ",".join(_HOST_OPTIONS)] + _ARCHITECTURES

    # A fifth of the size; what a program uses is expanded when it is loaded.
    arguments += ["-Xfatbin", "-compress-all"]
    if "-Werror" in ctx.fragments.cpp.copts:
        arguments += ["--Werror", "all-warnings"]
    arguments += ["-D" + define for define in ctx.attr.local_defines]
    root = ctx.label.workspace_root or "."
    arguments += ["-I" + root, "-I" + ctx.bin_dir.path + ("/" + root if root != "." else "")]
    for context in compilation:
        for path in context.includes.to_list() + context.quote_includes.to_list():
            arguments.append("-I" + path)
        for path in context.system_includes.to_list():
            arguments += ["-isystem", path]
        arguments += ["-D" + define for define in context.defines.to_list()]
    objects = []
    for source in ctx.files.srcs:
        object = ctx.actions.declare_file("%s/%s.o" % (ctx.label.name, source.basename))
        ctx.actions.run_shell(
            command = _IN_A_FOLDER_OF_ITS_OWN,
            arguments = [NVCC] + arguments + [source.path, "-o", object.path],
            inputs = depset([source], transitive = [headers]),
            outputs = [object],
            env = {"PATH": "/usr/local/bin:/usr/bin:/bin"},
            mnemonic = "CudaCompile",
            progress_message = "Compiling %s" % source.short_path,
        )
        objects.append(object)
    return [DefaultInfo(files = depset(objects))]

_cuda_objects_rule = rule(
    _cuda_objects,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(allow_files = True),
        "local_defines": attr.string_list(),
        "srcs": attr.label_list(allow_files = [".cu"]),
    },
    fragments = ["cpp"],
)

def _select(on, fake):
    values = {
        str(Label("//bazel:cuda_is_fake")): fake,
        "//conditions:default": [],
    }
    if HAVE_CUDA:
        values[str(Label("//bazel:cuda_is_on"))] = on
    return select(values)

def when_cuda(values):
    """`values` where the toolkit is installed and //bazel:cuda is on, and where it is fake; else nothing."""
    return _select(values, values)

def cuda_library(name, srcs, on_fake_runtime, hdrs = [], deps = [], local_defines = [], **kwargs):
    """A C-callable library of .cu files.

    Args:
      name: of the library.
      srcs: the .cu files; each becomes one object.
      on_fake_runtime: a library of the same functions for //tests/cudart, taken where //bazel:cuda is fake.
      hdrs: headers and .inc files that they share, and that dependants may include.
      deps: libraries whose headers they use.
      local_defines: preprocessor definitions for the .cu files.
      **kwargs: visibility and the like.
    """
    objects = []
    if HAVE_CUDA and srcs:
        _cuda_objects_rule(
            name = name + "_objects",
            srcs = srcs,
            hdrs = hdrs,
            deps = deps,
            local_defines = local_defines,
            tags = ["manual"],
        )
        objects = _select([":" + name + "_objects"], [])
    cc_library(
        name = name,
        srcs = objects,
        hdrs = hdrs,
        linkstatic = 1,
        deps = deps + _select(["@local_cuda//:cudart"], [on_fake_runtime]),
        **kwargs
    )
