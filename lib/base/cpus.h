// How many CPUs this process may use.
#ifndef ND_LIB_BASE_CPUS_H
#define ND_LIB_BASE_CPUS_H
#include <sched.h>
#include <stddef.h>

/// CPUs that the process is allowed on and that its control group pays for; at least 1.
int nd__cpus_of_process(void);

/// The CPUs that the process (its first thread) is allowed on, in a set from CPU_ALLOC that the
/// caller frees, with its size in bytes; NULL when the kernel does not say.
cpu_set_t *nd__cpus_allowed(size_t *ret_bytes);

/// CPUs, rounded up, that the quota of the control group pays for, or 0 where there is none. `root`
/// and `groups` as in lib/base/cgroup.h.
int nd__cpus_of_quota(const char *root, const char *groups);

/// The first number of a list like "4" or "4,2", where it is from 1 to `most`; else 0. NULL is no
/// number.
int nd__cpus_parse(const char *text, int most);
#endif
