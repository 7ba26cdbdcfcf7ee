// What the control groups of this process allow it (cgroups(7), versions 1 and 2).
#ifndef ND_LIB_BASE_CGROUP_H
#define ND_LIB_BASE_CGROUP_H
#include <stddef.h>
#include <stdint.h>

/// Where control groups are mounted, and the file that names the process's own.
#define ND__CGROUP_ROOT "/sys/fs/cgroup"
#define ND__CGROUP_OWN "/proc/self/cgroup"

/// The least of what `limit` answers for the process's group and those above it, whose folders it is
/// given; it answers 0 where there is no limit, and so does this. `root` and `groups` as above.
int64_t nd__cgroup_least(const char *root, const char *groups,
                         int64_t (*limit)(const char *folder));
/// Copies a file's text, ended by 0; empty when it cannot be read.
void nd__cgroup_read(const char *path, char *text, size_t bytes);
/// Bytes of memory that the groups allow; 0: no limit.
int64_t nd__cgroup_memory(const char *root, const char *groups);
#endif
