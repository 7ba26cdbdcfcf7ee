"""ranks_test: a test that starts ranks, by the launcher of the MPI that they are linked with."""

load("@local_mpi//:defs.bzl", "MPIRUN")
load("@rules_shell//shell:sh_test.bzl", "sh_test")

def ranks_test(name, data, env = {}, **kwargs):
    """An sh_test that sources mpirun.sh.

    Args:
      name: of the test.
      data: what it runs.
      env: beside the launcher's name.
      **kwargs: of sh_test.
    """
    sh_test(
        name = name,
        data = data + [
            "leaks.txt",
            "mpirun.sh",
        ],
        env = dict(env, ND_MPIRUN = MPIRUN),
        **kwargs
    )
