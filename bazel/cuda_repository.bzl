"""@local_cuda: the CUDA toolkit of this machine, if there is one.

Looks at CUDA_PATH, else at /usr/local/cuda. Without a toolkit HAVE_CUDA is False and :cudart is an empty library.
cuBLAS and its like are opened at run time and are no part of this.
"""

_BUILD = """load("@rules_cc//cc:defs.bzl", "cc_library")

exports_files(glob(["libcudart_static.a"], allow_empty = True))

cc_library(
    name = "cudart",
    srcs = glob(["libcudart_static.a"], allow_empty = True),
    hdrs = glob(["include/**"], allow_empty = True),
    includes = {includes},
    linkopts = {linkopts},
    linkstatic = 1,
    visibility = ["//visibility:public"],
)
"""

def _cuda_repository(ctx):
    toolkit = ctx.path(ctx.os.environ.get("CUDA_PATH", "/usr/local/cuda"))
    nvcc = toolkit.get_child("bin").get_child("nvcc")
    include = toolkit.get_child("include")
    runtime = toolkit.get_child("lib64").get_child("libcudart_static.a")
    have = nvcc.exists and include.exists and runtime.exists
    if have:
        ctx.symlink(include, "include")
        ctx.symlink(runtime, "libcudart_static.a")
    ctx.file("defs.bzl", "HAVE_CUDA = %s\nNVCC = %r\n" % (have, str(nvcc) if have else ""))
    ctx.file("BUILD.bazel", _BUILD.format(
        includes = ["include"] if have else [],
        linkopts = ["-ldl", "-lpthread", "-lrt"] if have else [],
    ))

cuda_repository = repository_rule(
    _cuda_repository,
    configure = True,
    environ = ["CUDA_PATH"],
    local = True,
)
