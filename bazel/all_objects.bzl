"""Every object file of the libraries below `deps` that are ndarc's own, for a link that must leave none of them out."""

load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

def _all_objects(ctx):
    objects = []
    for dep in ctx.attr.deps:
        for input in dep[CcInfo].linking_context.linker_inputs.to_list():
            if input.owner.workspace_name != ctx.label.workspace_name:
                continue
            for library in input.libraries:
                # An alwayslink library is put in whole anyway, and must not come twice.
                if not library.alwayslink:
                    objects += library.pic_objects
    return [DefaultInfo(files = depset(objects))]

all_objects = rule(_all_objects, attrs = {"deps": attr.label_list(providers = [CcInfo])})
