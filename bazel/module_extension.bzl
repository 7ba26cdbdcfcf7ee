"""The libraries of this machine for MODULE.bazel (Bazel 7 and newer)."""

load(
    "//bazel:local_libraries.bzl",
    _define_local_libraries = "local_libraries",
    _define_test_libraries = "test_libraries",
)

local_libraries = module_extension(implementation = lambda ctx: _define_local_libraries())

# Of a dev_dependency: a consumer has none of them.
test_libraries = module_extension(implementation = lambda ctx: _define_test_libraries())
