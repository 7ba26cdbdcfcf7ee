"""The provider that is still built into Bazel 4 to 8, where the real rules_cc has it."""

load(":builtin.bzl", "BUILTIN_CC_INFO")

CcInfo = BUILTIN_CC_INFO
