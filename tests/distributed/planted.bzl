"""planted_node: a test with a fault planted in lib/distributed/node.c."""

load("//bazel:cc.bzl", "MPI_DEFINES", "nd_cc_binary", "nd_cc_library")

def planted_node(name, test, linkopts = []):
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
            "//lib/distributed:node.c",
        ],
        outs = ["planted/%s/node.c" % name],
        cmd = "$(location //tests/model:plant.sh) $(SRCS) >$@",
        tools = ["//tests/model:plant.sh"],
    )
    # Comes before the library's own file, which is not linked then.
    nd_cc_library(
        name = name + "_planted",
        testonly = 1,
        srcs = ["planted/%s/node.c" % name],
        copts = ["-Wno-unused"],
        local_defines = MPI_DEFINES,
        deps = ["//lib/distributed"],
    )
    nd_cc_binary(
        name = name,
        testonly = 1,
        srcs = [
            "node_ranks.h",
            test + ".c",
        ],
        linkopts = linkopts,
        deps = [
            ":%s_planted" % name,
            "//:nd_distributed",
            "//tests:testing",
            "@local_cmocka//:cmocka",
        ],
    )
