// How many CPUs this process may use: the kernel's mask, and the quota of the control group.
//
// The mask is that of the process's first thread: a program that pins the thread which happens to
// compute first has not said anything about the others.
#include "lib/base/cpus.h"
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int quota_of_group(const char *folder);

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
    int quota = nd__cpus_of_quota("/sys/fs/cgroup", "/proc/self/cgroup");
    if (quota > 0 && quota < cpus)
        cpus = quota;
    return cpus > 0 ? cpus : 1;
}

/// The file's text, ended by 0. Empty when it cannot be read.
static void read_text(const char *path, char *text, size_t bytes) {
    size_t used = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        ssize_t got;
        while (used < bytes - 1 && (got = read(file, text + used, bytes - 1 - used)) > 0)
            used += (size_t)got;
        close(file);
    }
    text[used] = '\0';
}

int nd__cpus_of_quota(const char *root, const char *groups) {
    char text[4096], folder[PATH_MAX];
    read_text(groups, text, sizeof text);
    // Version 2 is the line "0::/path". Version 1 has a folder for each kind of limit.
    char *line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    char *path = line ? strchr(line, '/') : NULL;
    if (path)
        path[strcspn(path, "\n")] = '\0';
    size_t root_bytes = strlen(root);
    int bytes = snprintf(folder, sizeof folder, "%s%s", root, path ? path : "");
    if (bytes < 0 || (size_t)bytes >= sizeof folder)
        return 0;
    // A group's quota bounds the groups in it, so the least on the way up counts.
    int least = 0;
    for (;;) {
        int quota = quota_of_group(folder);
        if (quota > 0 && (least == 0 || quota < least))
            least = quota;
        char *slash = strrchr(folder + root_bytes, '/');
        if (!slash)
            return least;
        *slash = '\0';
    }
}

static int quota_of_group(const char *folder) {
    char path[PATH_MAX + 32], text[64];
    long long quota = 0, period = 0;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    read_text(path, text, sizeof text);
    if (sscanf(text, "%lld %lld", &quota, &period) != 2) { // "max 100000": none
        snprintf(path, sizeof path, "%s/cpu/cpu.cfs_quota_us", folder);
        read_text(path, text, sizeof text);
        quota = strtoll(text, NULL, 10);
        snprintf(path, sizeof path, "%s/cpu/cpu.cfs_period_us", folder);
        read_text(path, text, sizeof text);
        period = strtoll(text, NULL, 10);
    }
    if (quota <= 0 || period <= 0 || quota / period >= INT_MAX)
        return 0;
    return (int)((quota + period - 1) / period);
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
