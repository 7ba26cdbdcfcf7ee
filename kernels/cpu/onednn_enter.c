// Entering oneDNN and leaving it: its threads, signals, and the end of the process.
//
// oneDNN takes as many OpenMP threads as the calling thread may have, and they spin while they wait
// for each other. So it is told that there is one, and the threads that share a computation are the
// pool's. OpenMP keeps that number for each thread: it is put back, since the thread may be the
// user's. OpenMP's functions are looked up, not linked: oneDNN may have been built without it.
//
// At exit() oneDNN's destructors give back the code that it has generated, which other threads may
// be running. They are registered as oneDNN first needs what they destroy, in the middle of a
// computation, and the last one registered runs first. Invariant: behind the first computation of
// each kind stands hold_off(), which runs before all destructors that were registered earlier, lets
// nobody enter any more, and waits for those who are inside. While one of a kind is computed for
// the first time, `beginning` is held for reading, and two who must not come in between wait for
// it: exit(), by a destructor of its thread, which run before anything else; and fork(), whose
// child would wait for ever for what another thread had begun to make. That destructor runs when a
// thread ends, too. From it on the thread is `ending`, and no other one begins a kind, until the
// destructors of its keys run, which exit() does not call.
//
// oneDNN holds locks of its own for a moment of any computation, and a child would wait for ever for
// one that it was forked with. So fork() closes the door, waits for those who are inside, and opens
// it again behind the copy. For those who take too long it does not wait: their child does without
// oneDNN.
#include "kernels/cpu/onednn.h"

#if ND_HAVE_ONEDNN
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/// How long exit() waits for those who compute, at most: a computation for which that is too short
/// ends with the process, as well as it can.
#define WAIT_NS UINT64_C(60000000000)
/// How long fork() does.
#define FORK_WAIT_NS UINT64_C(5000000000)
#define NAP_NS 50000
/// How long the first computation of a kind waits, in naps, for a thread that ends: a second or
/// more, since on a busy machine one is taken off its core in the middle of it. Then the library's
/// own loops do the computation, whose last bits are others.
#define ENDING_ROUNDS 20000
/// Address space that making a primitive takes at most, several times over: each piece of generated
/// code is 256 KiB.
#define CODE_BYTES ((size_t)16 << 20)
/// And what other threads may take meanwhile where there is a limit: malloc's arena for a new thread is
/// cut out of 128 MiB of addresses.
#define OTHERS_BYTES ((size_t)256 << 20)
/// In `generating`: somebody takes as much as all who generate code may take, to see whether it is
/// there. It would be missing where it is needed, so nobody begins meanwhile.
#define PROBING (UINT32_C(1) << 31)

static struct {
    int (*get_max_threads)(void);
    void (*set_num_threads)(int);
} openmp;

/// Why nobody enters: oneDNN ends, or is not to be trusted here; or another thread forks.
enum { ENDED = 1, FORKING = 2 };

static _Alignas(64) _Atomic uint32_t inside; ///< threads
static _Atomic uint32_t closed;              ///< ENDED, FORKING
static pthread_rwlock_t beginning = PTHREAD_RWLOCK_INITIALIZER;
static _Atomic uint32_t ending;        ///< threads in exit(), or near their end
static _Thread_local bool ending_here; ///< this one is among them
static pthread_key_t end_key;          ///< its destructor: the thread ends, the process does not
static bool has_end_key;
static _Atomic uint64_t known[ND__ONEDNN_KINDS / 64];
static _Atomic uint32_t generating; ///< threads that may generate code, and PROBING
static pid_t process;               ///< that `inside` is about

static void find_openmp(void) {
    *(void **)&openmp.get_max_threads = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    *(void **)&openmp.set_num_threads = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
}

/// oneDNN throws where it finds no memory, through pthread_once(), for which the C library opens what
/// unwinds the stack when that is first needed, and ends the process when it cannot. So it is
/// opened before; false where that fails. It is when this library is loaded, before a thread could:
/// a fork beside that would leave the child a file that is open by half.
static bool can_unwind(void) {
    static atomic_bool can;
    void *caller;
    if (!atomic_load_explicit(&can, memory_order_relaxed) && backtrace(&caller, 1) > 0)
        atomic_store_explicit(&can, true, memory_order_relaxed);
    return atomic_load_explicit(&can, memory_order_relaxed);
}

// -------------------------------------------------------------------------------------------- exit

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void nap(void) {
    // Unlike nanosleep() no cancellation point.
    syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

/// Not in a child that was made without its handlers: those who were inside are not there.
static void wait_while(bool (*busy)(void), uint64_t ns) {
    uint64_t until = now_ns() + ns;
    while (process == getpid() && busy() && now_ns() < until)
        nap();
}

static bool somebody_is_inside(void) {
    return atomic_load(&inside) != 0;
}

static bool somebody_begins(void) {
    if (pthread_rwlock_trywrlock(&beginning) != 0)
        return true;
    pthread_rwlock_unlock(&beginning);
    return false;
}

static void hold_off(void) {
    atomic_fetch_or(&closed, ENDED); // ordered with who enters, and then looks at it
    wait_while(somebody_is_inside, WAIT_NS);
}

/// When a thread ends, or the process by its exit(): which of both is known later.
static void thread_ends(void *data) {
    (void)data;
    if (has_end_key && !ending_here && pthread_setspecific(end_key, &ending) == 0) {
        ending_here = true;
        atomic_fetch_add(&ending, 1); // ordered with who begins, and then looks at it
    }
    wait_while(somebody_begins, WAIT_NS);
}

static void thread_has_ended(void *data) {
    (void)data;
    if (ending_here)
        atomic_fetch_sub(&ending, 1);
    ending_here = false;
}

// What C++ has for destructors of a thread's variables; C has no name for it. These run at exit(),
// too, unlike those of pthread_key_create().
extern int __cxa_thread_atexit_impl(void (*function)(void *), void *data, void *library)
    __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

/// glibc ends the process where it finds no memory to remember a destructor in. More than malloc keeps for
/// a thread goes back to where that is taken from.
static bool can_remember(void) {
    void *volatile block = malloc(2048);
    free(block);
    return block != NULL;
}

void nd__onednn_watch_thread(void) {
    static _Thread_local bool watched;
    if (!watched && __cxa_thread_atexit_impl && can_remember())
        watched = __cxa_thread_atexit_impl(thread_ends, NULL, &__dso_handle) == 0;
}

// -------------------------------------------------------------------------------------------- fork

static void before_fork(void) {
    pthread_rwlock_wrlock(&beginning);
    atomic_fetch_or(&closed, FORKING); // ordered as in hold_off()
    wait_while(somebody_is_inside, FORK_WAIT_NS);
}

static void in_parent(void) {
    atomic_fetch_and(&closed, ~(uint32_t)FORKING);
    pthread_rwlock_unlock(&beginning);
}

static void in_child(void) {
    pthread_rwlock_init(&beginning, NULL);
    if (somebody_is_inside())
        atomic_fetch_or(&closed, ENDED);
    atomic_fetch_and(&closed, ~(uint32_t)FORKING);
    atomic_store(&inside, 0);
    atomic_store(&generating, 0);
    atomic_store(&ending, ending_here);
    process = getpid();
}

/// After the lock of the plans (onednn_plan.c), so that this one is taken before it, and after all
/// others.
__attribute__((constructor(102))) static void begin(void) {
    process = getpid();
    has_end_key = pthread_key_create(&end_key, thread_has_ended) == 0;
    pthread_atfork(before_fork, in_parent, in_child);
    nd__onednn_watch_thread();
    can_unwind();
    atexit(hold_off); // also for those who wait to begin the first kind of all
}

// --------------------------------------------------------------------------------- enter and leave

static bool is_known(uint32_t kind) {
    return atomic_load_explicit(&known[kind / 64], memory_order_relaxed) >> kind % 64 & 1;
}

static bool another_is_ending(void) {
    return atomic_load(&ending) > ending_here;
}

static bool has_bytes(size_t bytes) {
    void *probe = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return probe != MAP_FAILED && munmap(probe, bytes) == 0;
}

bool nd__onednn_has_room(void) {
    return has_bytes(CODE_BYTES);
}

bool nd__onednn_has_room_beside(size_t bytes) {
    return has_bytes(CODE_BYTES + bytes);
}

/// Whether there is room for so many threads that generate code, beside others.
static bool has_room_for(uint32_t threads) {
    struct rlimit limit;
    const bool is_limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return has_bytes(threads * CODE_BYTES + (is_limited ? OTHERS_BYTES : 0));
}

bool nd__onednn_begin_code(void) {
    uint32_t threads = atomic_load(&generating);
    for (;;) {
        if (threads & PROBING) {
            nap();
            threads = atomic_load(&generating);
        } else if (atomic_compare_exchange_weak(&generating, &threads, threads | PROBING)) {
            bool room = has_room_for(threads + 1) && can_unwind();
            atomic_fetch_sub(&generating, room ? PROBING - 1 : PROBING);
            return room;
        }
    }
}

void nd__onednn_end_code(void) {
    atomic_fetch_sub(&generating, 1);
}

/// The first computation of a kind is entered: what it makes may be registered for the end of the
/// process. False when that has begun. A thread that ends is over in microseconds; one that is not
/// is in exit(), which soon closes the door, and may wait for this thread then.
static bool begin_kind(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!nd__onednn_begin_code())
        return false;
    for (int round = 0; round < ENDING_ROUNDS && !(atomic_load(&closed) & ENDED); round++) {
        pthread_rwlock_rdlock(&beginning);
        if (!another_is_ending()) {
            pthread_once(&once, find_openmp);
            return true;
        }
        pthread_rwlock_unlock(&beginning);
        nap();
    }
    nd__onednn_end_code();
    return false;
}

/// No handler and no cancellation ends what runs on this thread.
static void hold_thread(nd__onednn_before *before) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before->blocked);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before->cancel_state);
}

static void let_thread_go(const nd__onednn_before *before) {
    pthread_setcancelstate(before->cancel_state, NULL);
    pthread_sigmask(SIG_SETMASK, &before->blocked, NULL);
}

/// False when oneDNN has ended. Waits while another thread forks.
static bool go_inside(void) {
    for (;;) {
        atomic_fetch_add(&inside, 1);
        const uint32_t why_not = atomic_load(&closed);
        if (why_not == 0)
            return true;
        atomic_fetch_sub(&inside, 1);
        if (why_not & ENDED)
            return false;
        nap();
    }
}

static void give_kind_up(void) {
    pthread_rwlock_unlock(&beginning);
    nd__onednn_end_code();
}

static void end_kind(uint32_t kind) {
    atexit(hold_off);
    atomic_fetch_or(&known[kind / 64], UINT64_C(1) << kind % 64);
    give_kind_up();
}

bool nd__onednn_enter(uint32_t kind, nd__onednn_before *ret_before) {
    nd__onednn_before before = {.threads = 1, .kind = kind};
    hold_thread(&before);
    nd__onednn_watch_thread();
    before.first = !is_known(kind);
    if (before.first && !begin_kind()) {
        let_thread_go(&before);
        return false;
    }
    if (!go_inside()) {
        if (before.first)
            give_kind_up();
        let_thread_go(&before);
        return false;
    }
    if (openmp.get_max_threads && openmp.set_num_threads) {
        before.threads = openmp.get_max_threads();
        if (before.threads != 1)
            openmp.set_num_threads(1);
    }
    *ret_before = before;
    return true;
}

bool nd__onednn_is_waited_for(void) {
    return atomic_load_explicit(&closed, memory_order_relaxed) != 0;
}

bool nd__onednn_enter_to_end(nd__onednn_before *ret_before) {
    nd__onednn_before before = {.threads = 1};
    hold_thread(&before);
    if (!go_inside()) {
        let_thread_go(&before);
        return false;
    }
    *ret_before = before;
    return true;
}

void nd__onednn_leave(const nd__onednn_before *before) {
    if (before->threads != 1)
        openmp.set_num_threads(before->threads);
    if (before->first)
        end_kind(before->kind);
    atomic_fetch_sub(&inside, 1);
    let_thread_go(before);
}
#endif
