"""Everything ndarc needs from outside, for a WORKSPACE. Nothing is downloaded.

A consumer's WORKSPACE calls ndarc_deps() after it has defined @ndarc. The bundled repositories stand in for
downloads that Bazel 4 to 6 asks for; a consumer who has the real ones defines them before the call and keeps them.
"""

load("@bazel_tools//tools/build_defs/repo:utils.bzl", "maybe")
load("//bazel:bundled_repository.bzl", "bundled_repository")
load("//bazel:local_libraries.bzl", "local_libraries")

def ndarc_deps():
    for name in ["rules_cc", "rules_java", "rules_shell", "remote_coverage_tools"]:
        maybe(bundled_repository, name = name, root = "@ndarc//bazel/stubs/%s:WORKSPACE" % name)
    local_libraries()
