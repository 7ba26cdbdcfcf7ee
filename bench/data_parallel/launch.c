// By the environment, since mpiruns differ in their options and pass over variables of others.
#include "bench/data_parallel/launch.h"

#include "bench/support/paths.h"

#include <nd/distributed.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/// That of the MPI which this program is linked with, since another one's starts each rank as the
/// only one; ND_MPIRUN in the environment names another.
static const char *launcher(void) {
    const char *chosen = getenv("ND_MPIRUN");
    return chosen ? chosen : *ND_MPIRUN ? ND_MPIRUN : "mpirun";
}

const char *launch_missing(void) {
    if (!nd_has_mpi())
        return "this program was built without MPI; ND_MPI=1 ./bazelw installs one";
    return bench_program_exists(launcher()) ? NULL : "there is no mpirun for its MPI";
}

void launch_ranks(int ranks, const char *seconds, bench_peer *ret_figures) {
    char program[4096], number[16];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    snprintf(number, sizeof number, "%d", ranks);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);
    setenv("OMPI_MCA_btl", "vader,self", 0); // one machine
    setenv("OMPI_MCA_pml", "ob1", 0);
    const char *const arguments[] = {launcher(), "-n", number, program, LAUNCH_RANK, seconds, NULL};
    bench_peer_run(ret_figures, arguments);
}
