"""model_binary: the checker with the core as it is, or with a bug planted in one of its files."""

load("//bazel:cc.bzl", "nd_cc_binary")
load(":plant.bzl", "planted_file", "planted_library")

# Plain accesses tell tests/model/plain.c, which takes the place of the sanitizer's runtime.
INSTRUMENTED = [
    "-fsanitize=thread",
    "-g1",
]
DEFINES = [
    "ND_MODEL",
    "abort=nd__model_abort",
]
# Sanitizers would instrument what is instrumented already.
UNSANITIZED = select({
    ":asan": [":built_without_sanitizer"],
    ":tsan": [":built_without_sanitizer"],
    ":ubsan": [":built_without_sanitizer"],
    "//conditions:default": [],
})

def noticed_in(names, programs):
    """Arguments of planted_bugs_test.sh: each name, with its program where one is said."""
    return [
        name + (":" + programs[name] if name in programs else "")
        for name in sorted(names)
    ]

def _label(path):
    return "//lib/%s:%s" % tuple(path.split("/"))

def model_binary(name, planted_in = None, header = None):
    """The checker.

    Args:
      name: of the binary; with planted_in also of planted/NAME.txt.
      planted_in: the core's file that the change applies to, as ROOM/FILE, or the lock as it is. Its object is linked in place of the one in
        the archive.
      header: the core's header that the change applies to instead, as planted_in alone sees it.
    """
    deps = [":engine"]
    if planted_in:
        source = ":lock_as_it_is.c" if planted_in == "lock_as_it_is" else _label(planted_in + ".c")
        changed = _label(header + ".h") if header else source
        planted_library(
            name = name,
            source = changed,
            kept = [source] if header else [],
            # Before the header as it is, whose guard then leaves that out.
            copts = INSTRUMENTED + (["-include", "$(execpath %s)" % planted_file(name, changed)] if header else []),
            local_defines = DEFINES,
            tags = ["long"],
            target_compatible_with = UNSANITIZED,
            deps = [":interface"],
        )
        deps = [":%s_planted" % name] + deps
    nd_cc_binary(
        name = name,
        testonly = 1,
        srcs = ["main.c"],
        linkstatic = 1,
        tags = ["long"] if planted_in else [],
        target_compatible_with = UNSANITIZED,
        deps = deps + [":core_against_scheduler"],
    )
