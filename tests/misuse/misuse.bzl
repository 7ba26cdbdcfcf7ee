"""misuse_test: what a compiler says about a small C file that uses the public headers."""

load("@rules_shell//shell:sh_test.bzl", "sh_test")

def misuse_test(name, says = "", compiler = "gcc", flags = [], levels = ["-O0"], src = None, rejected = False):
    """Compiles a C file, without and with creation sites recorded, and checks the diagnostics.

    Args:
      name: of the test.
      says: extended regular expression that the diagnostics must contain; "" when there must be none.
      compiler: one that is able to tell. Where it is not installed the test says so and passes.
      flags: what it is given besides the usual warnings.
      levels: of optimisation, each a compilation; what they say counts together.
      src: the C file; NAME.c when not given.
      rejected: whether the compilation must fail.
    """
    src = src or name + ".c"
    sh_test(
        name = name,
        size = "small",
        srcs = ["misuse_test.sh"],
        args = [
            src,
            "'%s'" % says,
            "rejected" if rejected else "accepted",
            compiler,
            "'%s'" % " ".join(levels),
        ] + flags,
        data = [
            src,
            "//include/nd:header_files",
        ],
    )
