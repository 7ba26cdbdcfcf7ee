# Sourced: `run_ranks N PROGRAM ARGS`, mpirun as these tests want it; ends the test where there is none. More ranks than processors,
# and as root, too; ranks that find nothing to do give way. Options for mpirun itself are in the array `mpirun_options`, the program is
# `mpirun`: that of the MPI the ranks are linked with (ND_MPIRUN), since another one's starts each rank as the only one.
mpirun=${ND_MPIRUN:-mpirun}
command -v "$mpirun" >/dev/null || { echo "SKIPPED: no mpirun"; exit 0; }

mpirun_options=()
mpi=other
case $("$mpirun" --version 2>&1) in *"Open MPI"*) mpi=openmpi ;; *HYDRA*) mpi=mpich ;; esac
if [ "$mpi" = openmpi ]; then
    mpirun_options=(--oversubscribe --bind-to none)
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
    # Reading another process's memory needs a right that containers do not give.
    export OMPI_MCA_btl_vader_single_copy_mechanism=none
    # One machine: no search for networks.
    export OMPI_MCA_btl=vader,self OMPI_MCA_pml=ob1
fi
# The same of UCX, below MPICH: memory in common alone. Where it reads the memory of a process that has died it ends this one, and over
# TCP MPICH 4.0.2 hangs in MPI_Finalize() now and then.
export UCX_TLS=posix,sysv,self

# Of this test alone: its sandbox may number processes as another one's does, and names of jobs are made of such numbers. Sockets
# lie there as well, whose names have a hundred bytes at most.
scratch=$(mktemp -d /tmp/nd-XXXXXX)
trap 'rm -rf "$scratch"' EXIT
export TMPDIR=$scratch HOME=${HOME:-$scratch} OMPI_MCA_btl_vader_backing_directory=$scratch

# Whole stacks, so that what is told apart by a name in them can be.
if [ -n "${ASAN_OPTIONS:-}" ]; then
    export ASAN_OPTIONS=$ASAN_OPTIONS:fast_unwind_on_malloc=0
    export LSAN_OPTIONS=suppressions=$PWD/tests/distributed/leaks.txt:print_suppressions=0
fi
# MPI is not compiled for the thread sanitizer, which sees what MPI's threads and the memory between processes do through libc, but not the atomic
# instructions that order it: calls from such libraries are not looked at. All of ndarc and of the tests is. Tests fork on purpose.
if [ -n "${TSAN_OPTIONS:-}" ]; then
    export TSAN_OPTIONS=$TSAN_OPTIONS:ignore_noninstrumented_modules=1:die_after_fork=0
fi

run_ranks() {
    local ranks=$1
    shift
    ND_TEST_RANKS=$ranks "$mpirun" "${mpirun_options[@]}" -n "$ranks" "$@"
}
