"""Everything ndarc needs from outside, for a WORKSPACE. Nothing is downloaded.

A consumer's WORKSPACE calls ndarc_deps() after it has defined ndarc's repository, under whatever name.
"""

load("@bazel_tools//tools/build_defs/repo:utils.bzl", "maybe")
load("//bazel:bundled_repository.bzl", "bundled_repository")
load("//bazel:local_libraries.bzl", "local_libraries", "test_libraries")

def ndarc_deps(bundled = ["rules_cc", "rules_java", "rules_shell", "remote_coverage_tools"]):
    """Defines the repositories that ndarc's packages name.

    Args:
      bundled: which small stand-ins to define for repositories that Bazel 4 to 6 would download. One that the WORKSPACE has
        defined before the call is kept. A WORKSPACE that defines its own after the call leaves its name out here.
    """
    for name in bundled:
        maybe(bundled_repository, name = name, root = str(Label("//bazel/stubs/%s:WORKSPACE" % name)))
    local_libraries()
    test_libraries()
