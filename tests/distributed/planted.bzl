"""planted_node, planted_nccl: a test with a fault planted in a file of lib/distributed."""

load("//bazel:cc.bzl", "MPI", "MPI_DEFINES", "nd_cc_binary")
load("//tests/model:plant.bzl", "planted_library")

def planted_nccl(name, test, planted_in):
    """A binary NAME on a CUDA runtime without a GPU that must fail.

    Args:
      name: of the binary and of planted/NAME.txt.
      test: must notice it.
      planted_in: the file that the change applies to.
    """
    planted_library(
        name = name,
        source = "//lib/distributed:" + planted_in,
        copts = ["-Wno-unused"],
        deps = ["//lib/distributed"],
    )
    nd_cc_binary(
        name = name,
        testonly = 1,
        srcs = [
            "nccl_ranks.h",
            "nets.h",
            "ranks.h",
            test + ".c",
            "//tests/cudart:test_headers",
        ],
        linkopts = ["-ldl"],
        deps = [
            ":%s_planted" % name,
            "//lib/distributed",
            "//tests:elements",
            "//tests:testing",
            "//tests/cudart:nd",
            "@local_cmocka//:cmocka",
        ],
    )

def planted_node(name, test, planted_in = "node.c", hdrs = ["node_ranks.h"], linkopts = []):
    """A binary NAME that must fail.

    Args:
      name: of the binary and of planted/NAME.txt.
      test: must notice it.
      planted_in: the file that the change applies to.
      hdrs: of the test.
      linkopts: of the test.
    """
    planted_library(
        name = name,
        source = "//lib/distributed:" + planted_in,
        copts = ["-Wno-unused"],
        local_defines = MPI_DEFINES,
        deps = ["//lib/distributed"] + MPI,
    )
    nd_cc_binary(
        name = name,
        testonly = 1,
        srcs = hdrs + [test + ".c"],
        local_defines = MPI_DEFINES,
        linkopts = linkopts,
        deps = [
            ":%s_planted" % name,
            "//:nd_distributed",
            "//tests:elements",
            "//tests:testing",
            "@local_cmocka//:cmocka",
        ] + MPI,
    )
