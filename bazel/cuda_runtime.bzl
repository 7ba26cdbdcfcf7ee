"""cuda_runtime: NVIDIA's runtime as a shared library of ndarc's own, which libnd.so finds beside itself.

The runtime has a page of thread-local variables, more than a library gets that dlopen() brings in. Inside libnd.so they would make
one block with ndarc's own, none of which could then lie at a fixed distance from its thread's address (_COPTS in cc.bzl).

NVIDIA's own libcudart.so would not do: a process has one library of that name, whichever came first, so that ndarc would run on
PyTorch's or PyTorch on ndarc's, of another version, and each would take the other's last error.
"""

load("@local_cuda//:defs.bzl", "HAVE_CUDA")
load("@rules_cc//cc:defs.bzl", "cc_binary")
load("//bazel:cuda_library.bzl", "when_nvcc")

def _calls(name):
    return name.split(".")[0] + "_calls"

def cuda_runtime(name, **kwargs):
    """The library, and <name up to the point>_calls.txt, the options for linking what calls it; nothing where there is no toolkit.

    Args:
      name: of the library's file, and its SONAME.
      **kwargs: visibility and the like.
    """
    if not HAVE_CUDA:
        return
    calls = _calls(name)
    native.genrule(
        name = calls,
        srcs = ["@local_cuda//:libcudart_static.a"],
        outs = [
            calls + ".S",
            calls + ".txt",
        ],
        cmd = "$(location //bazel:cuda_calls.sh) $< $(OUTS)",
        message = "Finding the functions of CUDA's runtime",
        tags = ["manual"],
        tools = [str(Label("//bazel:cuda_calls.sh"))],
        visibility = ["//visibility:private"],
    )
    cc_binary(
        name = name,
        srcs = [calls + ".S"],
        additional_linker_inputs = [str(Label("//bazel:cuda_runtime.lds"))],
        linkopts = [
            "-Wl,--version-script=$(location %s)" % str(Label("//bazel:cuda_runtime.lds")),
            "-Wl,-soname,%s" % name,
            "-Wl,-z,defs",
            # Stays mapped with libnd.so.
            "-Wl,-z,nodelete",
        ],
        linkshared = 1,
        linkstatic = 1,
        tags = ["manual"],
        deps = ["@local_cuda//:cudart"],
        **kwargs
    )

def beside_cuda_runtime(name):
    """What a library needs that is linked with it, empty where nvcc compiles no kernels: `files` beside it, `inputs` and `linkopts`.

    Args:
      name: of the library.
    """
    return struct(
        files = when_nvcc([name]),
        inputs = when_nvcc([
            name,
            _calls(name) + ".txt",
        ]),
        linkopts = when_nvcc([
            "@$(location %s.txt)" % _calls(name),
            "$(location %s)" % name,
            "-Wl,-rpath,$$ORIGIN",
        ]),
    )
