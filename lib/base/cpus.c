// How many CPUs this process may use: the kernel's mask, and the quota of the control group.
//
// The mask is that of the process's first thread: a program that pins the thread which happens to
// compute first has not said anything about the others.
#include "lib/base/cpus.h"
#include "lib/base/cgroup.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int64_t quota_of_group(const char *folder);

cpu_set_t *nd__cpus_allowed(size_t *ret_bytes) {
    for (int cpus = CPU_SETSIZE; cpus <= 64 * CPU_SETSIZE; cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        if (!set)
            return NULL;
        *ret_bytes = CPU_ALLOC_SIZE((size_t)cpus);
        if (sched_getaffinity(getpid(), *ret_bytes, set) == 0)
            return set;
        CPU_FREE(set); // the kernel's mask may be larger
    }
    return NULL;
}

int nd__cpus_of_process(void) {
    size_t bytes;
    cpu_set_t *set = nd__cpus_allowed(&bytes);
    int cpus = set ? CPU_COUNT_S(bytes, set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (set)
        CPU_FREE(set);
    int quota = nd__cpus_of_quota(ND__CGROUP_ROOT, ND__CGROUP_OWN);
    if (quota > 0 && quota < cpus)
        cpus = quota;
    return cpus > 0 ? cpus : 1;
}

int nd__cpus_of_quota(const char *root, const char *groups) {
    return (int)nd__cgroup_least(root, groups, quota_of_group);
}

static int64_t quota_of_group(const char *folder) {
    char path[PATH_MAX + 32], text[64];
    long long quota = 0, period = 0;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    nd__cgroup_read(path, text, sizeof text);
    if (sscanf(text, "%lld %lld", &quota, &period) != 2) { // "max 100000": none
        snprintf(path, sizeof path, "%s/cpu/cpu.cfs_quota_us", folder);
        nd__cgroup_read(path, text, sizeof text);
        quota = strtoll(text, NULL, 10);
        snprintf(path, sizeof path, "%s/cpu/cpu.cfs_period_us", folder);
        nd__cgroup_read(path, text, sizeof text);
        period = strtoll(text, NULL, 10);
    }
    if (quota <= 0 || period <= 0 || quota / period >= INT_MAX)
        return 0;
    return (quota + period - 1) / period;
}

int nd__cpus_parse(const char *text, int most) {
    if (!text)
        return 0;
    char *end;
    long number = strtol(text, &end, 10);
    if (end == text || (*end != '\0' && *end != ',') || number < 1 || number > most)
        return 0;
    return (int)number;
}
