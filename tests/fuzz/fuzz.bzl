"""fuzz_harness: one function that takes bytes, as a test over its corpus and as a target of libFuzzer."""

load("//bazel:cc.bzl", "nd_cc_binary", "nd_cc_library", "nd_cc_test")
load("@rules_shell//shell:sh_test.bzl", "sh_test")

def fuzz_harness(name, srcs, corpus, deps, of_steps = False):
    """Makes NAME_corpus, an ordinary test; NAME_fuzzer and NAME_fuzz, which want --config=fuzz (or fuzz_threads).

    Args:
      name: of the harness.
      srcs: define LLVMFuzzerTestOneInput.
      corpus: the folder below corpus/ with its inputs as text.
      deps: what it uses; among it what reads and writes the text.
      of_steps: whether inputs are programs, which libFuzzer then changes by steps.
    """
    inputs = native.glob(["corpus/%s/*.txt" % corpus])
    files = ["$(location %s)" % input for input in inputs]
    nd_cc_library(
        name = name + "_harness",
        testonly = True,
        srcs = srcs,
        deps = deps,
        alwayslink = True,
    )
    nd_cc_test(
        name = name + "_corpus",
        size = "medium",
        srcs = [
            "mutate.c",
            "mutate.h",
            "replay.c",
            "text.h",
        ],
        args = files,
        data = inputs,
        tags = ["cpu:2"] if name == "threads" else [],
        deps = [
            ":%s_harness" % name,
            "//:nd",
            "//tests:testing",
        ],
    )
    nd_cc_binary(
        name = name + "_fuzzer",
        testonly = True,
        srcs = ["mutate.h"] + (["custom_mutator.c", "mutate.c"] if of_steps else []),
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = [":%s_harness" % name],
    )
    sh_test(
        name = name + "_fuzz",
        size = "large",
        srcs = ["fuzz_test.sh"],
        args = [
            "$(location :%s_fuzzer)" % name,
            "$(location :%s_corpus)" % name,
        ] + files,
        data = inputs + [
            ":%s_corpus" % name,
            ":%s_fuzzer" % name,
        ],
        tags = [
            "external",  # another run finds something else: never from the cache
            "manual",
        ],
    )
