"""planted_backend: a test with a bug planted in one of lib/device/cuda's files."""

load("//bazel:cc.bzl", "nd_cc_binary", "nd_cc_library")

_FILES = ["cublas.c", "cublaslt.c", "cuda.c", "cuda_graph.c", "cuda_memory.c", "cuda_stream.c", "cudnn.c", "cudnn_attention.c", "library.c", "order.c", "staging.c"]
_HEADERS = [
    "cublas.h",
    "cublaslt.h",
    "cuda_device.h",
    "cuda_graph.h",
    "cuda_memory.h",
    "cuda_stream.h",
    "cudnn.h",
    "cudnn_attention.h",
    "library.h",
    "order.h",
]

def planted_backend(name, planted_in, test = "backend_test"):
    """A binary NAME that must fail.

    Args:
      name: of the binary and of planted/NAME.txt.
      planted_in: the file that the change applies to.
      test: must notice it.
    """
    native.genrule(
        name = name + "_source",
        testonly = 1,
        srcs = [
            "planted/%s.txt" % name,
            "//lib/device/cuda:" + planted_in,
        ],
        outs = ["planted/%s/%s" % (name, planted_in)],
        cmd = "$(location //tests/model:plant.sh) $(SRCS) >$@",
        tools = ["//tests/model:plant.sh"],
    )
    nd_cc_library(
        name = name + "_planted",
        testonly = 1,
        srcs = ["planted/%s/%s" % (name, planted_in)] +
               ["//lib/device/cuda:" + file for file in _HEADERS] +
               ["//lib/device/cuda:" + file for file in _FILES if file != planted_in],
        alwayslink = 1,
        tags = ["long"],
        copts = ["-Wno-unused"],
        deps = [
            ":cudart",
            "//kernels/cuda:on_fake_runtime",
            "//lib/device:table",
            "//lib/device/cuda:cudnn_plan",
            "//lib/device/cuda:gemm",
        ],
    )
    nd_cc_binary(
        name = name,
        testonly = 1,
        srcs = [
            "backend.h",
            "graphs.h",
            "roles.h",
            "streams.h",
            test + ".c",
        ],
        linkstatic = 1,
        tags = ["long"],
        deps = [
            ":%s_planted" % name,
            ":nd_without_backend",
            "//tests:testing",
            "//third_party/dlpack",
            "@local_cmocka//:cmocka",
        ],
    )
