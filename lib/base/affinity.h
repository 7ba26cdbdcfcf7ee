// Keeps a thread that is woken off the CPU of the one that wakes it.
//
// Linux may wake a thread on that CPU though another one is idle: in virtual machines it does so most
// times after a pause of milliseconds, because an idle virtual CPU looks to it like one that the host
// has taken away. Then both share one CPU for milliseconds more, until load is balanced. So who wakes
// one first takes his own CPU out of what it may run on, and it puts that back when it runs. Nothing
// is changed where no other CPU is left, or where the system refuses.
#ifndef ND_LIB_BASE_AFFINITY_H
#define ND_LIB_BASE_AFFINITY_H
#include <sched.h>
#include <stdint.h>
#include <sys/types.h>

/// A thread that others wake. Zeros at first.
typedef struct nd__affinity {
    _Atomic uint32_t state;
    pid_t thread;
    cpu_set_t allowed; ///< where it could run before it was kept off a CPU
} nd__affinity;

/// The calling thread is the one that this is of.
void nd__affinity_begin(nd__affinity *affinity);
/// Around the calling thread's sleep: between these two it can be kept off a CPU, behind them it may
/// run where it could before.
void nd__affinity_sleeps(nd__affinity *affinity);
void nd__affinity_wakes(nd__affinity *affinity);

/// Has the thread wake on another CPU than this one. Nothing is done while it is awake, or when it is
/// kept off one already. From any thread.
void nd__affinity_keep_off(nd__affinity *affinity, int cpu);

/// Has the calling thread go on on another CPU than this one; it may be moved back at any time.
void nd__affinity_leave(int cpu);
#endif
