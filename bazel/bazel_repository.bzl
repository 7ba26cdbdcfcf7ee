"""@local_bazel: where this Bazel keeps what ndarc's own rules need.

CcInfo and cc_common are names of Bazel 4 to 8 itself, and from 9 on names of rules_cc alone. A consumer's rules_cc may be too old to
have them, so its version is not relied on before it must be.
"""

_BUILTIN = """BUILTIN_CC_INFO = CcInfo
BUILTIN_CC_COMMON = cc_common
"""

_FROM_BUILTIN = """load(":builtin.bzl", "BUILTIN_CC_COMMON", "BUILTIN_CC_INFO")

CcInfo = BUILTIN_CC_INFO
cc_common = BUILTIN_CC_COMMON
"""

_FROM_RULES_CC = """load("@rules_cc//cc/common:cc_common.bzl", _cc_common = "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", _CcInfo = "CcInfo")

CcInfo = _CcInfo
cc_common = _cc_common
"""

def _bazel_repository(ctx):
    major = native.bazel_version.split(".")[0]
    builtin = not major.isdigit() or int(major) < 8
    if builtin:
        # A file cannot define a name that it also reads.
        ctx.file("builtin.bzl", _BUILTIN)
    ctx.file("cc.bzl", _FROM_BUILTIN if builtin else _FROM_RULES_CC)
    ctx.file("BUILD.bazel", "")

bazel_repository = repository_rule(_bazel_repository)
