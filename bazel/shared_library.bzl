"""What dependants of a shared library need: nd_shared_library, and a link without the version in its name."""

load("@local_bazel//:cc.bzl", "CcInfo", "cc_common")

def _nd_shared_library(ctx):
    return [
        cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps]),
        DefaultInfo(
            files = depset(ctx.files.library),
            runfiles = ctx.runfiles(files = ctx.files.library),
        ),
    ]

nd_shared_library = rule(
    _nd_shared_library,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo], doc = "the library to link with, and its headers"),
        "library": attr.label_list(allow_files = True, doc = "the files that building this target makes"),
    },
    doc = "As a cc_library of its deps; but named on the command line it builds the library too, which a cc_library of finished ones does not.",
    provides = [CcInfo],
)

def _unversioned(ctx):
    link = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.symlink(output = link, target_file = ctx.file.library)
    return [DefaultInfo(
        files = depset([link]),
        runfiles = ctx.runfiles(files = [link, ctx.file.library] + ctx.files.beside),
    )]

unversioned = rule(
    _unversioned,
    attrs = {
        "beside": attr.label_list(allow_files = True, doc = "what the library finds beside itself"),
        "library": attr.label(allow_single_file = True, mandatory = True),
    },
    doc = "A link of this target's name, beside the library that it leads to.",
)
