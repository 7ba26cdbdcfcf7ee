"""Every object file of the libraries below `deps` that are ndarc's own, for a link that must leave none of them out."""

load("@local_bazel//:cc.bzl", "CcInfo")

def _all_objects(ctx):
    replaced = [dep.label for dep in ctx.attr.replaced]
    objects = []
    for dep in ctx.attr.deps:
        for input in dep[CcInfo].linking_context.linker_inputs.to_list():
            if input.owner in replaced or input.owner.workspace_name != ctx.label.workspace_name:
                continue
            for library in input.libraries:
                objects += library.pic_objects
    return [DefaultInfo(files = depset(objects))]

all_objects = rule(
    _all_objects,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "replaced": attr.label_list(doc = "libraries to leave out, because `deps` names others in their place"),
    },
)
