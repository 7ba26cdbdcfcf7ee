"""hardened_archives: archives of libraries as --//bazel:hardening=on compiles them."""

def _with_hardening(_settings, _attr):
    return {
        "//bazel:hardening": "on",
        "//command_line_option:compilation_mode": "opt",
    }

_hardening = transition(
    implementation = _with_hardening,
    inputs = [],
    outputs = [
        "//bazel:hardening",
        "//command_line_option:compilation_mode",
    ],
)

def _hardened_archives(ctx):
    archives = depset([file for file in ctx.files.libraries if file.extension == "a"])
    return [DefaultInfo(files = archives, runfiles = ctx.runfiles(transitive_files = archives))]

hardened_archives = rule(
    _hardened_archives,
    attrs = {
        "libraries": attr.label_list(cfg = _hardening),
        "_allowlist_function_transition": attr.label(default = "@bazel_tools//tools/allowlists/function_transition_allowlist"),
    },
)
