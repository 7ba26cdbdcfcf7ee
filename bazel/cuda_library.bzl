"""cuda_library: a cc_library of .cu files, compiled by the toolkit's nvcc, and empty where there is no toolkit."""

load("@local_bazel//:cc.bzl", "CcInfo")
load("@local_cuda//:defs.bzl", "HAVE_CUDA", "NVCC")
load("@rules_cc//cc:defs.bzl", "cc_library")

# Machine code, and the portable form of the newest that newer GPUs translate when they load it. The first is the least that runs.
_ARCHITECTURES = {
    "90": ["-gencode", "arch=compute_90,code=[sm_90,compute_90]"],
    "80_90": [
        "-gencode",
        "arch=compute_80,code=sm_80",
        "-gencode",
        "arch=compute_90,code=[sm_90,compute_90]",
    ],
}

# Of files with instructions that are in code for 9.0 alone, and in no portable form: newer GPUs translate what the file has beside them.
_ARCHITECTURES_WITH_90A = {
    "90": ["-gencode", "arch=compute_90a,code=sm_90a", "-gencode", "arch=compute_90,code=compute_90"],
    "80_90": [
        "-gencode",
        "arch=compute_80,code=sm_80",
        "-gencode",
        "arch=compute_90a,code=sm_90a",
        "-gencode",
        "arch=compute_90,code=compute_90",
    ],
}

# For the host's half of a .cu file. Without exceptions and guarded statics (nvcc makes those for the <<<>>> launches
# that we do not use) it needs no C++ runtime, so neither does a C program that links it.
_HOST_OPTIONS = ["-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-fno-exceptions", "-fno-threadsafe-statics"]

# nvcc names its temporary files by its process number, which is 2 in every sandbox: two at a time took each other's. $1 becomes what
# ptxas says of each kernel for sm_90 (sm_90a), and how many 16-byte accesses of global memory its portable form has.
_IN_A_FOLDER_OF_ITS_OWN = '''
TMPDIR=$(mktemp -d) || exit
export TMPDIR
budget=$1
shift
"$@" -Xptxas -v --keep --keep-dir "$TMPDIR" 2>"$TMPDIR/said"
status=$?
grep -v -e '^ptxas info' -e 'bytes stack frame' "$TMPDIR/said" >&2
grep -e '^ptxas info' -e 'bytes stack frame' "$TMPDIR/said" >"$budget"
for portable in "$TMPDIR"/*.ptx; do
    case $portable in
    *compute_80*) ;;
    *) awk '
        /\\.entry/ { name = $0; sub(/.*\\.entry /, "", name); sub(/\\(.*/, "", name) }
        /(ld|st)\\.global.*\\.(v4\\.[busf]32|v2\\.[busf]64)/ { count[name (/ld\\.global/ ? " loads" : " stores")]++ }
        /cp\\.async\\.c[ag]\\.shared\\.global.*, 16[,;]/ { count[name " loads"]++ }
        END { for (what in count) print "wide:", what, count[what] }' "$portable" >>"$budget" ;;
    esac
done
rm -rf "$TMPDIR"
exit $status
'''

def _cuda_objects(ctx):
    compilation = [dep[CcInfo].compilation_context for dep in ctx.attr.deps]
    headers = depset(ctx.files.hdrs, transitive = [context.headers for context in compilation])
    arguments = ["-c", "-O3", "-std=c++17", "-Xcompiler", ",".join(_HOST_OPTIONS)]
    # A fifth of the size; what a program uses is expanded when it is loaded.
    arguments += ["-Xfatbin", "-compress-all"]
    if "-Werror" in ctx.fragments.cpp.copts:
        arguments += ["--Werror", "all-warnings"]
    arguments += ["-D" + define for define in ctx.attr.local_defines]
    root = ctx.label.workspace_root or "."
    arguments += ["-I" + root, "-I" + ctx.bin_dir.path + ("/" + root if root != "." else "")]
    for context in compilation:
        for path in context.includes.to_list() + context.quote_includes.to_list():
            arguments.append("-I" + path)
        for path in context.system_includes.to_list():
            arguments += ["-isystem", path]
        arguments += ["-D" + define for define in context.defines.to_list()]
    objects = []
    budgets = []
    for source in ctx.files.srcs:
        object = ctx.actions.declare_file("%s/%s.o" % (ctx.label.name, source.basename))
        budget = ctx.actions.declare_file("%s/%s.budget" % (ctx.label.name, source.basename))
        own = ctx.attr.architectures
        if source.basename in ctx.attr.for_sm_90a:
            own = ctx.attr.architectures_with_90a + ["-DND_CODE_FOR_SM_90A=1"]
        ctx.actions.run_shell(
            command = _IN_A_FOLDER_OF_ITS_OWN,
            arguments = [budget.path, NVCC] + arguments + own + [source.path, "-o", object.path],
            inputs = depset([source], transitive = [headers]),
            outputs = [object, budget],
            env = {"PATH": "/usr/local/bin:/usr/bin:/bin"},
            mnemonic = "CudaCompile",
            progress_message = "Compiling %s" % source.short_path,
        )
        objects.append(object)
        budgets.append(budget)
    return [DefaultInfo(files = depset(objects)), OutputGroupInfo(budget = depset(budgets))]

_cuda_objects_rule = rule(
    _cuda_objects,
    attrs = {
        "architectures": attr.string_list(),
        "architectures_with_90a": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "for_sm_90a": attr.string_list(),
        "hdrs": attr.label_list(allow_files = True),
        "local_defines": attr.string_list(),
        "srcs": attr.label_list(allow_files = [".cu"]),
    },
    fragments = ["cpp"],
)

def _select(on, fake):
    values = {
        str(Label("//bazel:cuda_is_fake")): fake,
        "//conditions:default": [],
    }
    if HAVE_CUDA:
        values[str(Label("//bazel:cuda_is_on"))] = on
    return select(values)

def when_cuda(values):
    """`values` where the toolkit is installed and //bazel:cuda is on, and where it is fake; else nothing."""
    return _select(values, values)

def when_nvcc(values):
    """`values` where nvcc compiles the kernels; else nothing."""
    return _select(values, [])

def cuda_library(name, srcs, on_fake_runtime, for_sm_90a = [], hdrs = [], deps = [], local_defines = [], **kwargs):
    """A C-callable library of .cu files, and <name>_budget, what the compiler says of their kernels.

    Args:
      name: of the library.
      srcs: the .cu files; each becomes one object.
      on_fake_runtime: a library of the same functions for //tests/cudart, taken where //bazel:cuda is fake.
      for_sm_90a: those of srcs that are compiled for sm_90a in place of sm_90, with ND_CODE_FOR_SM_90A=1.
      hdrs: headers and .inc files that they share, and that dependants may include.
      deps: libraries whose headers they use.
      local_defines: preprocessor definitions for the .cu files.
      **kwargs: visibility and the like.
    """
    objects = []
    if HAVE_CUDA and srcs:
        _cuda_objects_rule(
            name = name + "_objects",
            srcs = srcs,
            hdrs = hdrs,
            architectures = select({
                str(Label("//bazel:cuda_architectures_is_80_90")): _ARCHITECTURES["80_90"],
                "//conditions:default": _ARCHITECTURES["90"],
            }),
            architectures_with_90a = select({
                str(Label("//bazel:cuda_architectures_is_80_90")): _ARCHITECTURES_WITH_90A["80_90"],
                "//conditions:default": _ARCHITECTURES_WITH_90A["90"],
            }),
            for_sm_90a = for_sm_90a,
            deps = deps,
            local_defines = local_defines,
            tags = ["manual"],
        )
        native.filegroup(
            name = name + "_budget",
            srcs = [":" + name + "_objects"],
            output_group = "budget",
            tags = ["manual"],
        )
        objects = _select([":" + name + "_objects"], [])
    cc_library(
        name = name,
        srcs = objects,
        hdrs = hdrs,
        linkstatic = 1,
        deps = deps + _select(["@local_cuda//:cudart"], [on_fake_runtime]),
        **kwargs
    )
