"""planted_library: a source with a change that a test must notice."""

load("//bazel:cc.bzl", "nd_cc_library")

def planted_file(name, source):
    """The file that has the change, in the package of planted/NAME.txt."""
    return "planted/%s/%s" % (name, source.split(":")[-1])

def planted_library(name, source, kept = [], **library):
    """A library NAME_planted of SOURCE with the change, which a program links before SOURCE itself, whose object is not needed then.

    Args:
      name: of planted/NAME.txt, which says what changes (plant.sh).
      source: the label of the file that the change applies to.
      kept: sources beside it, as they are.
      **library: as nd_cc_library has them.
    """
    native.genrule(
        name = name + "_source",
        testonly = 1,
        srcs = [
            "planted/%s.txt" % name,
            source,
        ],
        outs = [planted_file(name, source)],
        cmd = "$(location //tests/model:plant.sh) $(SRCS) >$@",
        tools = ["//tests/model:plant.sh"],
    )
    nd_cc_library(
        name = name + "_planted",
        testonly = 1,
        srcs = [planted_file(name, source)] + kept,
        alwayslink = 1,
        **library
    )
