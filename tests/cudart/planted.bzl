"""planted_backend: a test with a bug planted in one of lib/device/cuda's files."""

load("//bazel:cc.bzl", "nd_cc_binary")
load("//tests/model:plant.bzl", "planted_library")

_FILES = ["cublas.c", "cublaslt.c", "cuda.c", "cuda_graph.c", "cuda_kept.c", "cuda_memory.c", "cuda_stream.c", "cudnn.c", "cudnn_attention.c", "library.c", "memo.c", "order.c", "staging.c"]
_HEADERS = [
    "cublas.h",
    "cublaslt.h",
    "cuda_device.h",
    "cuda_graph.h",
    "cuda_kept.h",
    "cuda_memory.h",
    "cuda_stream.h",
    "cudnn.h",
    "cudnn_attention.h",
    "library.h",
    "memo.h",
    "order.h",
]

def planted_backend(name, planted_in, test):
    """A binary NAME that must fail.

    Args:
      name: of the binary and of planted/NAME.txt.
      planted_in: the file that the change applies to.
      test: must notice it.
    """
    planted_library(
        name = name,
        source = "//lib/device/cuda:" + planted_in,
        kept = ["//lib/device/cuda:" + file for file in _HEADERS + _FILES if file != planted_in],
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
