"""@local_mpi: the MPI of this machine, if there is one.

Asks the MPI's own compiler, MPICC or mpicc, how programs are compiled and linked (-show, which OpenMPI and MPICH know), and tries it
with a short program. Without an MPI HAVE_MPI is False and :mpi is an empty library. MPICC=none leaves out one that is there. MPIRUN is
the program that starts ranks of this MPI: those that another one starts do not find each other.
"""

_BUILD = """load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "mpi",
    hdrs = glob(["include*/**"], allow_empty = True),
    includes = {includes},
    linkopts = {linkopts},
    linkstatic = 1,
    visibility = ["//visibility:public"],
)
"""

_PROBE = "#include <mpi.h>\nint main(void)\n{\n    return MPI_Init_thread(0, 0, MPI_THREAD_MULTIPLE, &(int){0});\n}\n"

def _find_wrapper(ctx):
    """The MPI's compiler; None: there is no MPI."""
    mpicc = ctx.os.environ.get("MPICC", "mpicc")
    wrapper = ctx.which(mpicc) if "/" not in mpicc else ctx.path(mpicc)
    return wrapper if wrapper and wrapper.exists else None

def _find_launcher(ctx, wrapper):
    """The mpirun beside that compiler, with the same suffix (mpirun.mpich beside mpicc.mpich), or else the first on the PATH."""
    beside = wrapper.dirname.get_child(wrapper.basename.replace("mpicc", "mpirun"))
    if beside != wrapper and beside.exists:
        return beside
    return ctx.which("mpirun") or ""

def _words(ctx, wrapper):
    """What the compiler adds to a command line; None where that does not work."""
    shown = ctx.execute([wrapper, "-show"])
    if shown.return_code != 0:
        return None
    words = [word for word in shown.stdout.replace("\n", " ").split(" ")[1:] if word]
    ctx.file("probe.c", _PROBE)
    compiler = ctx.os.environ.get("CC", "cc")
    return words if ctx.execute([compiler, "probe.c", "-o", "probe"] + words).return_code == 0 else None

def _mpi_repository(ctx):
    wrapper = _find_wrapper(ctx)
    words = _words(ctx, wrapper) if wrapper else None
    includes = []
    linkopts = []
    for word in words or []:
        if word.startswith("-I"):
            includes.append("include%d" % len(includes))
            ctx.symlink(word[2:], includes[-1])
        elif word.startswith("-L") or word.startswith("-l") or word.startswith("-Wl,"):
            linkopts.append(word)
    launcher = _find_launcher(ctx, wrapper) if words != None else ""
    ctx.file("defs.bzl", "HAVE_MPI = %s\nMPIRUN = \"%s\"\n" % (words != None, launcher))
    ctx.file("BUILD.bazel", _BUILD.format(includes = includes, linkopts = linkopts))

mpi_repository = repository_rule(
    _mpi_repository,
    configure = True,
    environ = ["CC", "MPICC", "PATH"],
    local = True,
)
