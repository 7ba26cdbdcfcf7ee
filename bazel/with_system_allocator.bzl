"""The same target, built with the C library's allocator whatever the build was told.

For libnd.so: jemalloc's archive wants more static thread storage than a library opened by dlopen() gets, and two
allocators in one process must never see each other's blocks.
"""

def _choose_system(_settings, _attr):
    return {"//bazel:host_allocator": "system"}

_system_allocator = transition(
    implementation = _choose_system,
    inputs = [],
    outputs = ["//bazel:host_allocator"],
)

def _with_system_allocator(ctx):
    built = ctx.files.target[0]
    output = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.run_shell(
        command = 'cp "$1" "$2"',
        arguments = [built.path, output.path],
        inputs = [built],
        outputs = [output],
    )
    return [DefaultInfo(files = depset([output]), runfiles = ctx.runfiles([output]))]

with_system_allocator = rule(
    _with_system_allocator,
    attrs = {
        "target": attr.label(mandatory = True, cfg = _system_allocator),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
    doc = "An output named like this target: a copy of the first file of `target`.",
)
