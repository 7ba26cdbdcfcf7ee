"""planted_node: a test with a fault planted in a file of lib/distributed."""

load("//bazel:cc.bzl", "MPI", "MPI_DEFINES", "nd_cc_binary", "nd_cc_library")

def planted_node(name, test, planted_in = "node.c", hdrs = ["node_ranks.h"], linkopts = []):
    """A binary NAME that must fail.

    Args:
      name: of the binary and of planted/NAME.txt.
      test: must notice it.
      linkopts: of the test.
    """
    native.genrule(
        name = name + "_source",
        testonly = 1,
        srcs = [
            "planted/%s.txt" % name,
            "//lib/distributed:" + planted_in,
        ],
        outs = ["planted/%s/%s" % (name, planted_in)],
        cmd = "$(location //tests/model:plant.sh) $(SRCS) >$@",
        tools = ["//tests/model:plant.sh"],
    )
    # Comes before the library's own file, which is not linked then.
    nd_cc_library(
        name = name + "_planted",
        testonly = 1,
        srcs = ["planted/%s/%s" % (name, planted_in)],
        alwayslink = 1,
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
