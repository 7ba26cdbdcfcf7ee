// A control group (cgroups(7)) whose processes may have so many bytes of memory together, below the
// group that this process is in. Made by the program, and removed by it.
//
// Versions 1 and 2. In version 2 a group that has processes gives its children no limits, so the new
// group is then made beside the own one. Nothing of the groups that were there is changed.
#ifndef ND_BENCH_MEMORY_GROUP_H
#define ND_BENCH_MEMORY_GROUP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { GROUP_PATH = 4096, GROUP_REASON = 512 };

/// Where control groups are mounted, and the file that names the process's own.
#define GROUP_ROOT "/sys/fs/cgroup"
#define GROUP_OWN "/proc/self/cgroup"

typedef struct memory_group {
    int version;             ///< of control groups: 1 or 2; 0: there is no group
    char folder[GROUP_PATH]; ///< the group's
} memory_group;

/// Finds the folder in which groups with a limit can be made, and writes it to `ret_parent` as a
/// group of that version. `root` and `own` as above. False with a reason.
bool memory_group_find_parent(const char *root, const char *own, memory_group *ret_parent,
                              char reason[GROUP_REASON]);
/// Makes a group of at most `bytes`, without swap, in that folder. False with a reason, and then
/// nothing is left. Groups of programs that were killed are removed on the way.
bool memory_group_make(const memory_group *parent, uint64_t bytes, memory_group *ret_group,
                       char reason[GROUP_REASON]);
/// Puts a process into the group; what it has already stays charged to its old one.
bool memory_group_add(const memory_group *group, pid_t process);
/// The most bytes that it had; 0: the kernel does not say.
uint64_t memory_group_get_peak(const memory_group *group);
/// How many of its processes the kernel has killed for lack of memory.
uint64_t memory_group_get_kills(const memory_group *group);
/// Removes it. Its processes must have ended. False when the kernel refuses.
bool memory_group_remove(memory_group *group);

#endif
