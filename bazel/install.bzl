"""install_tree: a folder with everything that //:install copies, built optimised and with debug information."""

load("@local_bazel//:cc.bzl", "CcInfo")

def _with_debug_information(settings, _attr):
    return {
        "//command_line_option:compilation_mode": "opt",
        "//command_line_option:copt": settings["//command_line_option:copt"] + ["-g"],
        # Bazel's own options for optimised builds end in -g0 and come first.
        "//command_line_option:strip": "never",
    }

_debug_information = transition(
    implementation = _with_debug_information,
    inputs = ["//command_line_option:copt"],
    outputs = [
        "//command_line_option:compilation_mode",
        "//command_line_option:copt",
        "//command_line_option:strip",
    ],
)

def _system_libraries(deps):
    """The link flags of libraries of the system, and their archives."""
    flags = []
    archives = []
    for dep in deps:
        for input in dep[CcInfo].linking_context.linker_inputs.to_list():
            flags += input.user_link_flags
            archives += [library.static_library for library in input.libraries if library.static_library]
    return flags, archives

def _install_tree(ctx):
    tree = ctx.actions.declare_directory(ctx.label.name)
    flags, archives = _system_libraries(ctx.attr.deps)
    mpi_flags, _ = _system_libraries(ctx.attr.distributed_deps)
    shared = ctx.files.shared[0]
    arguments = ctx.actions.args()
    arguments.add(tree.path)
    arguments.add(shared)
    arguments.add(" ".join(flags + ctx.attr.linkopts))
    arguments.add_joined(archives, join_with = " ", omit_if_empty = False)
    arguments.add(" ".join(mpi_flags))
    arguments.add_all("--objects", ctx.files.objects)
    arguments.add_all("--distributed", ctx.files.distributed)
    arguments.add_all("--headers", ctx.files.headers)
    arguments.add_all("--documents", ctx.files.documents)
    arguments.add_all("--beside", ctx.files.beside)
    ctx.actions.run(
        executable = ctx.file._stage,
        arguments = [arguments],
        inputs = depset([shared, ctx.file._stage] + archives + ctx.files.objects + ctx.files.distributed + ctx.files.headers + ctx.files.documents + ctx.files.beside),
        outputs = [tree],
        mnemonic = "Install",
        progress_message = "Laying out what is installed",
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([tree]), runfiles = ctx.runfiles([tree]))]

install_tree = rule(
    _install_tree,
    attrs = {
        "beside": attr.label_list(allow_files = True, doc = "libraries that the shared one finds beside itself"),
        "deps": attr.label_list(cfg = _debug_information, providers = [CcInfo], doc = "system libraries of a static link"),
        "distributed": attr.label(cfg = _debug_information, doc = "what libnd_distributed.a is made of; without it there is none"),
        "distributed_deps": attr.label_list(cfg = _debug_information, providers = [CcInfo], doc = "what that takes of the system besides deps"),
        "documents": attr.label_list(allow_files = True),
        "headers": attr.label_list(allow_files = True, doc = "below a folder include/"),
        "linkopts": attr.string_list(doc = "of a static link, besides those of deps"),
        "objects": attr.label_list(cfg = _debug_information, doc = "what libnd.a is made of"),
        "shared": attr.label(cfg = _debug_information, mandatory = True, doc = "the shared library"),
        "_allowlist_function_transition": attr.label(default = "@bazel_tools//tools/allowlists/function_transition_allowlist"),
        "_stage": attr.label(default = "//tools/install:stage.sh", allow_single_file = True),
    },
)
