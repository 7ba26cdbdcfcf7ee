"""planted_backend: a test with a bug planted in one of lib/device/cuda's files. planted_ring: with one in kernels/cuda/pipeline.cuh."""

load("//bazel:cc.bzl", "nd_cc_binary")
load("@rules_cc//cc:defs.bzl", "cc_library")
load("//tests/model:plant.bzl", "planted_library")

_FILES = ["cublas.c", "cublaslt.c", "cuda.c", "cuda_graph.c", "cuda_kept.c", "cuda_memory.c", "cuda_peer.c", "cuda_stream.c", "cudnn.c", "cudnn_attention.c", "cufft.c", "cusolver.c", "cusolver_library.c", "library.c", "memo.c", "order.c", "staging.c"]
_HEADERS = [
    "cublas.h",
    "cublaslt.h",
    "cuda_device.h",
    "cuda_graph.h",
    "cuda_kept.h",
    "cuda_memory.h",
    "cuda_peer.h",
    "cuda_stream.h",
    "cudnn.h",
    "cudnn_attention.h",
    "cufft.h",
    "cusolver.h",
    "cusolver_library.h",
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
            "results.h",
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

def planted_ring(name):
    """A binary NAME of pipeline_test that must fail.

    Its kernels are those of one file with the changed header before it, whose guard keeps the header as it is away.

    Args:
      name: of the binary and of planted/NAME.txt.
    """
    kernels = []
    for source in ["matmul_bf16", "matmul_f16"]:
        kernels.append("planted/%s/%s.cc" % (name, source))
        native.genrule(
            name = "%s_%s" % (name, source),
            testonly = 1,
            srcs = [
                "planted/%s.txt" % name,
                "//kernels/cuda:pipeline.cuh",
                "//kernels/cuda:%s.cu" % source,
            ],
            outs = [kernels[-1]],
            cmd = "$(location //tests/model:plant.sh) $(location planted/%s.txt) $(location //kernels/cuda:pipeline.cuh) >$@ && cat $(location //kernels/cuda:%s.cu) >>$@" % (name, source),
            tags = ["long"],
            tools = ["//tests/model:plant.sh"],
        )
    cc_library(
        name = name + "_planted",
        testonly = 1,
        srcs = kernels,
        alwayslink = 1,
        copts = [
            "-std=c++17",
            "-O1",
            "-D__CUDACC__",
            "-D__CUDA_ARCH_LIST__=900",
            "-fno-exceptions",
            "-fno-threadsafe-statics",
        ],
        tags = ["long"],
        deps = [
            ":cudart",
            "//kernels/cuda:on_fake_runtime",
        ],
    )
    nd_cc_binary(
        name = name,
        testonly = 1,
        srcs = [
            "calls.h",
            "pipeline_test.c",
            "roles.h",
        ],
        linkstatic = 1,
        tags = ["long"],
        deps = [
            ":%s_planted" % name,
            ":test_kernels",
            "//lib/core",
            "//lib/debug",
            "//tests:products",
            "//tests:testing",
            "@local_cmocka//:cmocka",
        ],
    )
