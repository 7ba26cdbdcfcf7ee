// The barrier that the kernel makes, and the one where it refuses.
#include "lib/base/barrier.h"
#include "lib/base/pause.h"
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

bool nd__barrier_prepare(void) {
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

bool nd__barrier_run(void) {
    return syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

/// What is needed: a load that another thread has executed before now is behind the stores that
/// came before it in the program, and these are seen from now on. A store that is still on its way
/// then is in its processor's store buffer, which empties by itself, whatever runs there, within
/// microseconds. So the wait alone would do. Taking a page away interrupts every processor that
/// runs a thread of this process, where the kernel has no other way to make it forget the page
/// (x86-64 but for the newest AMD); an interrupt empties the buffer.
void nd__barrier_run_slow(void) {
    const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    volatile char *page =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED) {
        *page = 1;
        munmap((void *)(uintptr_t)page, bytes);
    }
    nd__pause_nap(1000000);
}
