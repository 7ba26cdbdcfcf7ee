// Jobs with shares that are claimed, and the workers that claim them.
//
// A job is a slot of static memory, so that a worker who comes late looks at something that is
// there. Its word `open` holds the range of shares nobody has begun: the caller takes from the
// front, workers take from the back, so that repeated work over the same memory stays with the core
// that has it in its cache. body and context are read only after a share was claimed, which keeps
// the job open until that share is done; so they cannot change meanwhile.
//
// Idle workers wait for `signal` to change, which every new job does. A new job sleeps on nothing:
// the caller wakes as many sleepers as could help beyond those that are spinning, and none for a
// while where waking has not helped (the machine is busy, or the jobs are over before a worker is
// there). A worker that finds itself on its caller's CPU goes to another one, and for some time those
// who are woken are kept off the caller's.
//
// Workers that have all slept for seconds end together, so that they keep no process alive whose
// own threads have ended, with all signals blocked. A thread that ended so is joined when its
// number is wanted again, or at the end.
#include "lib/base/pool.h"
#include "lib/base/affinity.h"
#include "lib/base/cpus.h"
#include "lib/base/spawn.h"
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/// Jobs of different callers at a time; who finds none free works alone.
#define JOBS 8
/// How long a worker waits for the next job before it sleeps, and a caller for the last shares.
#define SPIN_NS 200000
/// A clock that jumps as far between two looks while spinning: this thread was taken off its core.
#define TAKEN_OFF_NS 200000
/// Then spinning takes time away from somebody, perhaps from the caller, so for as long there is
/// none.
#define BUSY_NS 10000000
/// A caller that woke nobody does so after this long in one job.
#define LATE_WAKE_NS 40000
/// After so long without a job all workers end.
#define IDLE_NS INT64_C(2000000000)
/// At most 2^this jobs in a row wake nobody because waking has not helped.
#define MOST_FRUITLESS 6

/// So many wakes keep workers off the caller's CPU after one was found there.
#define STEERED_WAKES 64
/// A worker leaves its CPU to the caller at most once in so long.
#define LEAVING_NS 1000000

#define CALLER_SLEEPS 0x80000000u

typedef struct pool_job {
    _Alignas(64) _Atomic uint64_t open; ///< first open share << 32 | end of the open shares
    _Atomic uint32_t undone;            ///< shares that are not done; CALLER_SLEEPS
    _Atomic uint32_t taken;             ///< 1: a caller has the slot
    _Atomic int cpu;                    ///< where the caller was when it began
    nd__pool_body body;
    void *context;
} pool_job;

static struct {
    pool_job jobs[JOBS];
    _Alignas(64) _Atomic uint32_t signal;  ///< counts new jobs and wishes that workers end
    _Atomic uint32_t sleeping;             ///< workers that sleep, or are about to
    _Atomic uint32_t spinning;             ///< workers that would see a new job at once
    _Atomic int64_t busy_until;            ///< the clock until which nobody spins
    _Alignas(64) _Atomic uint32_t callers; ///< threads inside a job of their own
    _Atomic uint32_t fruitless;            ///< wakes in a row that did not help
    _Atomic uint32_t silent;               ///< jobs that still wake nobody
    _Atomic uint32_t steered;              ///< wakes that still keep workers off the caller's CPU
    _Alignas(64) _Atomic int limit;        ///< threads of a computation; 0: nobody has asked
    _Atomic bool deterministic;            ///< nobody cuts by `limit`
    _Atomic int workers;                   ///< that are started, and not told to end
    _Atomic int cpus;                      ///< that workers may run on
    _Atomic int refused; ///< jobs until a thread is asked for again, after a refusal
    _Atomic bool ended;  ///< the process or the library ends
    // Below lock.
    pthread_mutex_t lock;
    pid_t process; ///< whose workers these are
    pthread_t threads[ND__POOL_MOST];
    bool started[ND__POOL_MOST]; ///< and not joined; those from `workers` on end or have ended
    _Atomic int64_t idle_ns;     ///< IDLE_NS, but in tests
    nd__affinity affinity[ND__POOL_MOST];
} pool = {.idle_ns = IDLE_NS, .lock = PTHREAD_MUTEX_INITIALIZER};

/// This thread runs a body; what that computes runs on this thread alone.
static _Thread_local bool inside;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

/// False when the time was over first.
static bool futex_wait_for(_Atomic uint32_t *word, uint32_t value, int64_t nanoseconds) {
    struct timespec time = {.tv_sec = nanoseconds / 1000000000,
                            .tv_nsec = nanoseconds % 1000000000};
    return syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &time, NULL, 0) == 0 ||
           errno != ETIMEDOUT;
}

static void futex_wake(_Atomic uint32_t *word, int threads) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
}

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/// Spins until *word differs from `value` or it has been long enough. True when it differs.
static bool spin_while(_Atomic uint32_t *word, uint32_t value) {
    int64_t begin = now_ns(), last = begin;
    int64_t limit =
        begin < atomic_load_explicit(&pool.busy_until, memory_order_relaxed) ? 0 : SPIN_NS;
    for (;;) {
        for (int i = 0; i < 16; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != value)
                return true;
            relax();
        }
        int64_t now = now_ns();
        if (now - last > TAKEN_OFF_NS)
            atomic_store_explicit(&pool.busy_until, now + BUSY_NS, memory_order_relaxed);
        if (now - last > TAKEN_OFF_NS || now - begin > limit)
            return atomic_load_explicit(word, memory_order_acquire) != value;
        last = now;
    }
}

// ------------------------------------------------------------------------------------------ shares

/// Claims a share of the job; false when all are begun.
static bool claim(pool_job *job, bool front, int64_t *ret_share) {
    uint64_t open = atomic_load_explicit(&job->open, memory_order_relaxed);
    for (;;) {
        uint32_t begin = (uint32_t)(open >> 32), end = (uint32_t)open;
        if (begin >= end)
            return false;
        uint64_t less = front ? open + ((uint64_t)1 << 32) : open - 1;
        // Acquire, so that body and context are those of the job that this share is of.
        if (atomic_compare_exchange_weak_explicit(&job->open, &open, less, memory_order_acquire,
                                                  memory_order_relaxed)) {
            *ret_share = front ? begin : end - 1;
            return true;
        }
    }
}

/// Nothing of the job may be touched by a worker after this, but for the address of `undone`.
static void share_is_done(pool_job *job) {
    if (atomic_fetch_sub_explicit(&job->undone, 1, memory_order_acq_rel) == (CALLER_SLEEPS | 1))
        futex_wake(&job->undone, 1);
}

/// The caller, whose CPU this is, cannot go on while this worker does. Where there are fewer CPUs than
/// threads somebody has to share one.
static void leave_to_caller(int cpu) {
    static _Thread_local int64_t left_ns;
    if (atomic_load_explicit(&pool.workers, memory_order_relaxed) >=
        atomic_load_explicit(&pool.cpus, memory_order_relaxed))
        return;
    atomic_store_explicit(&pool.steered, STEERED_WAKES, memory_order_relaxed);
    int64_t now = now_ns();
    if (now - left_ns < LEAVING_NS)
        return;
    left_ns = now;
    nd__affinity_leave(cpu);
}

static bool has_open(const pool_job *job) {
    uint64_t open = atomic_load_explicit(&job->open, memory_order_relaxed);
    return (uint32_t)(open >> 32) < (uint32_t)open;
}

/// Does open shares of all jobs. False when there was none.
static bool help(void) {
    bool helped = false;
    for (int i = 0; i < JOBS; i++) {
        pool_job *job = &pool.jobs[i];
        if (!has_open(job))
            continue;
        int cpu = sched_getcpu();
        if (cpu == atomic_load_explicit(&job->cpu, memory_order_relaxed))
            leave_to_caller(cpu);
        int64_t share;
        while (claim(job, false, &share)) {
            job->body(job->context, share);
            share_is_done(job);
            helped = true;
        }
    }
    return helped;
}

// ----------------------------------------------------------------------------------------- workers

/// All workers end if all of them sleep, this one counted, and no job has begun since. Who starts
/// or ends some holds the lock, and may be waiting for this one.
static void end_if_idle(uint32_t seen) {
    if (pthread_mutex_trylock(&pool.lock) != 0)
        return;
    int sleeping = (int)atomic_load_explicit(&pool.sleeping, memory_order_seq_cst);
    uint32_t now = seen;
    if (sleeping == atomic_load(&pool.workers) &&
        atomic_compare_exchange_strong(&pool.signal, &now, seen + 1)) {
        atomic_store(&pool.workers, 0);
        futex_wake(&pool.signal, ND__POOL_MOST);
    }
    pthread_mutex_unlock(&pool.lock);
}

static void wait_for_signal(uint32_t seen, nd__affinity *affinity) {
    atomic_fetch_add_explicit(&pool.spinning, 1, memory_order_relaxed);
    bool changed = spin_while(&pool.signal, seen);
    atomic_fetch_sub_explicit(&pool.spinning, 1, memory_order_relaxed);
    if (changed)
        return;
    nd__affinity_sleeps(affinity);
    // Ordered with the caller, who changes the signal and then looks for sleepers.
    atomic_fetch_add_explicit(&pool.sleeping, 1, memory_order_seq_cst);
    if (!futex_wait_for(&pool.signal, seen,
                        atomic_load_explicit(&pool.idle_ns, memory_order_relaxed)))
        end_if_idle(seen);
    atomic_fetch_sub_explicit(&pool.sleeping, 1, memory_order_relaxed);
    nd__affinity_wakes(affinity);
}

static void *work(void *argument) {
    int number = (int)(intptr_t)argument;
    nd__affinity *affinity = &pool.affinity[number];
    nd__affinity_begin(affinity);
    inside = true;
    for (;;) {
        uint32_t seen = atomic_load_explicit(&pool.signal, memory_order_seq_cst);
        if (number >= atomic_load_explicit(&pool.workers, memory_order_acquire))
            return NULL;
        if (!help())
            wait_for_signal(seen, affinity);
    }
}

/// In a child the parent's workers do not exist: nobody is waited for, nothing is open. Also right
/// where the child was made without its handlers.
static void forget_workers(void) {
    atomic_store(&pool.workers, 0);
    atomic_store(&pool.sleeping, 0);
    atomic_store(&pool.spinning, 0);
    atomic_store(&pool.callers, 0);
    atomic_store(&pool.refused, 0);
    for (int i = 0; i < JOBS; i++) {
        atomic_store(&pool.jobs[i].open, 0);
        atomic_store(&pool.jobs[i].taken, 0);
    }
    memset(pool.started, 0, sizeof pool.started);
    memset(pool.affinity, 0, sizeof pool.affinity);
    pool.process = getpid();
}

static void begin_child(void) {
    pool.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    forget_workers();
}

/// The process is known before the first computation: were it found out by who starts the first
/// workers, he would forget the job that another thread has begun meanwhile.
__attribute__((constructor)) static void watch_forks(void) {
    pool.process = getpid();
    pthread_atfork(NULL, NULL, begin_child);
}

/// The thread may run wherever the process may, though the caller may be pinned.
static bool start_worker(int number) {
    pthread_t *thread = &pool.threads[number];
    size_t bytes;
    cpu_set_t *cpus = nd__cpus_allowed(&bytes);
    if (cpus)
        atomic_store(&pool.cpus, CPU_COUNT_S(bytes, cpus));
    void *argument = (void *)(intptr_t)number;
    bool started = nd__spawn(thread, cpus, cpus ? bytes : 0, work, argument) == 0 ||
                   nd__spawn(thread, NULL, 0, work, argument) == 0;
    CPU_FREE(cpus);
    if (started)
        pthread_setname_np(*thread, "ndarc");
    return started;
}

/// Whether nobody has that number any more: the idle one that had it was told to end, but may not
/// have run since. Below the lock.
static bool has_ended(int number) {
    if (pool.started[number] && pthread_tryjoin_np(pool.threads[number], NULL) == EBUSY)
        return false;
    pool.started[number] = false;
    return true;
}

/// Starts workers until there are `wanted`, unless somebody else is doing so or the system refuses:
/// the computation goes on with those that are there.
static void start_workers(int wanted) {
    if (atomic_load_explicit(&pool.refused, memory_order_relaxed) > 0) {
        atomic_fetch_sub_explicit(&pool.refused, 1, memory_order_relaxed);
        return;
    }
    if (pthread_mutex_trylock(&pool.lock) != 0)
        return;
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    if (pool.process != getpid())
        forget_workers();
    if (wanted > atomic_load(&pool.limit) - 1)
        wanted = atomic_load(&pool.limit) - 1;
    int workers = atomic_load(&pool.workers);
    while (workers < wanted && !atomic_load(&pool.ended) && has_ended(workers)) {
        // Counted before it runs: a worker whose number is not below the count ends.
        atomic_store(&pool.workers, workers + 1);
        if (!start_worker(workers)) {
            atomic_store(&pool.workers, workers);
            atomic_store(&pool.refused, 1000);
            break;
        }
        pool.started[workers++] = true;
    }
    pthread_mutex_unlock(&pool.lock);
    pthread_setcancelstate(state, NULL);
}

/// Ends all workers but `kept` and waits until they have. Below the lock. (The calling thread may
/// be a worker that has ended as the last thread of the process, which makes it call exit(): it is
/// not waited for.)
static void end_workers(int kept) {
    if (pool.process != getpid())
        forget_workers();
    if (kept < atomic_load(&pool.workers)) {
        atomic_store(&pool.workers, kept);
        atomic_fetch_add(&pool.signal, 1);
        futex_wake(&pool.signal, ND__POOL_MOST);
    }
    for (int i = kept; i < ND__POOL_MOST; i++) {
        if (pool.started[i])
            pthread_join(pool.threads[i], NULL);
        pool.started[i] = false;
    }
}

/// When the process ends, or the library is unloaded and its code with it. What is computed later
/// runs on the thread that computes it.
__attribute__((destructor)) static void end_pool(void) {
    atomic_store(&pool.ended, true);
    pthread_mutex_lock(&pool.lock);
    end_workers(0);
    pthread_mutex_unlock(&pool.lock);
}

// ----------------------------------------------------------------------------------------- callers

/// As many sleepers as will be woken.
static void keep_off_this_cpu(uint32_t helpers) {
    int workers = atomic_load_explicit(&pool.workers, memory_order_relaxed), cpu = sched_getcpu();
    for (int i = 0; i < workers && (uint32_t)i < helpers; i++)
        nd__affinity_keep_off(&pool.affinity[i], cpu);
}

static void wake(uint32_t helpers) {
    uint32_t sleeping = atomic_load_explicit(&pool.sleeping, memory_order_seq_cst);
    uint32_t spinning = atomic_load_explicit(&pool.spinning, memory_order_relaxed);
    if (sleeping == 0 || helpers <= spinning)
        return;
    uint32_t steered = atomic_load_explicit(&pool.steered, memory_order_relaxed);
    if (steered > 0) {
        atomic_store_explicit(&pool.steered, steered - 1, memory_order_relaxed);
        keep_off_this_cpu(helpers - spinning);
    }
    futex_wake(&pool.signal, (int)(helpers - spinning));
}

/// Whether this job wakes sleepers at once.
static bool waking_helps(void) {
    uint32_t silent = atomic_load_explicit(&pool.silent, memory_order_relaxed);
    if (silent == 0)
        return true;
    atomic_store_explicit(&pool.silent, silent - 1, memory_order_relaxed);
    return false;
}

static void note_whether_it_helped(bool helped, bool woken) {
    if (helped) {
        if (atomic_load_explicit(&pool.fruitless, memory_order_relaxed) != 0) {
            atomic_store_explicit(&pool.fruitless, 0, memory_order_relaxed);
            atomic_store_explicit(&pool.silent, 0, memory_order_relaxed);
        }
    } else if (woken) {
        uint32_t fruitless = atomic_load_explicit(&pool.fruitless, memory_order_relaxed);
        if (fruitless < MOST_FRUITLESS)
            atomic_store_explicit(&pool.fruitless, ++fruitless, memory_order_relaxed);
        atomic_store_explicit(&pool.silent, ((uint32_t)1 << fruitless) - 1, memory_order_relaxed);
    }
}

static pool_job *take_job(void) {
    for (int i = 0; i < JOBS; i++) {
        pool_job *job = &pool.jobs[i];
        uint32_t nobody = 0;
        if (atomic_load_explicit(&job->taken, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_strong_explicit(&job->taken, &nobody, 1, memory_order_acquire,
                                                    memory_order_relaxed))
            return job;
    }
    return NULL;
}

/// Waits for the shares that workers are in the middle of.
static void wait_until_done(pool_job *job) {
    for (;;) {
        uint32_t undone = atomic_load_explicit(&job->undone, memory_order_acquire);
        if ((undone & ~CALLER_SLEEPS) == 0)
            return;
        if (!(undone & CALLER_SLEEPS)) {
            if (spin_while(&job->undone, undone))
                continue;
            if (!atomic_compare_exchange_strong_explicit(
                    &job->undone, &undone, undone | CALLER_SLEEPS, memory_order_relaxed,
                    memory_order_relaxed))
                continue;
            undone |= CALLER_SLEEPS;
        }
        futex_wait(&job->undone, undone);
    }
}

static void run_job(pool_job *job, int64_t shares, uint32_t helpers) {
    atomic_store_explicit(&job->undone, (uint32_t)shares, memory_order_relaxed);
    atomic_store_explicit(&job->cpu, sched_getcpu(), memory_order_relaxed);
    atomic_store_explicit(&job->open, (uint64_t)shares, memory_order_release);
    atomic_fetch_add_explicit(&pool.signal, 1, memory_order_seq_cst);
    bool woken = waking_helps();
    if (woken)
        wake(helpers);
    int64_t begin = woken ? 0 : now_ns(), share, mine = 0;
    inside = true;
    while (claim(job, true, &share)) {
        job->body(job->context, share);
        mine++;
        if (!woken && now_ns() - begin > LATE_WAKE_NS) {
            wake(helpers);
            woken = true;
        }
    }
    inside = false;
    if (mine > 0)
        atomic_fetch_sub_explicit(&job->undone, (uint32_t)mine, memory_order_acq_rel);
    wait_until_done(job);
    note_whether_it_helped(mine < shares, woken);
}

static void run_alone(int64_t shares, nd__pool_body body, void *context) {
    bool before = inside;
    inside = true;
    for (int64_t share = 0; share < shares; share++)
        body(context, share);
    inside = before;
}

void nd__pool_run(int64_t shares, nd__pool_body body, void *context) {
    int threads = nd__pool_threads();
    if (threads <= 1 || shares <= 1 || shares > INT32_MAX) {
        run_alone(shares, body, context);
        return;
    }
    int wanted = (int)(shares < threads ? shares : threads) - 1;
    if (atomic_load_explicit(&pool.workers, memory_order_relaxed) < wanted)
        start_workers(wanted);
    // Callers count, too: together they use no more threads than one may.
    int others = (int)atomic_fetch_add_explicit(&pool.callers, 1, memory_order_relaxed);
    int helpers = threads - 1 - others < wanted ? threads - 1 - others : wanted;
    pool_job *job = helpers > 0 ? take_job() : NULL;
    if (job) {
        job->body = body;
        job->context = context;
        run_job(job, shares, (uint32_t)helpers);
        atomic_store_explicit(&job->taken, 0, memory_order_release);
    } else {
        run_alone(shares, body, context);
    }
    atomic_fetch_sub_explicit(&pool.callers, 1, memory_order_relaxed);
}

// ---------------------------------------------------------------------------------------- settings

int nd__pool_limit(void) {
    int limit = atomic_load_explicit(&pool.limit, memory_order_relaxed);
    if (__builtin_expect(limit != 0, 1))
        return limit;
#if ND_HAVE_THREADS
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state); // files are read
    int chosen = nd__cpus_parse(secure_getenv("ND_NUM_THREADS"), ND__POOL_MOST);
    if (chosen == 0)
        chosen = nd__cpus_parse(secure_getenv("OMP_NUM_THREADS"), ND__POOL_MOST);
    if (chosen == 0)
        chosen = nd__cpus_of_process();
    if (chosen > ND__POOL_MOST)
        chosen = ND__POOL_MOST;
    pthread_setcancelstate(state, NULL);
#else
    int chosen = 1;
#endif
    // Somebody may have set it meanwhile.
    return atomic_compare_exchange_strong(&pool.limit, &limit, chosen) ? chosen : limit;
}

int nd__pool_threads(void) {
    return inside ? 1 : nd__pool_limit();
}

void nd__pool_set_limit(int threads) {
    threads = ND_HAVE_THREADS ? threads : 1;
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_mutex_lock(&pool.lock);
    atomic_store(&pool.limit, threads);
    atomic_store(&pool.refused, 0);
    end_workers(threads - 1);
    pthread_mutex_unlock(&pool.lock);
    pthread_setcancelstate(state, NULL);
}

void nd__pool_end_workers(void) {
    if (inside || atomic_load(&pool.workers) == 0)
        return;
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_mutex_lock(&pool.lock);
    end_workers(0);
    pthread_mutex_unlock(&pool.lock);
    pthread_setcancelstate(state, NULL);
}

bool nd__pool_is_deterministic(void) {
    return atomic_load_explicit(&pool.deterministic, memory_order_relaxed);
}

void nd__pool_set_deterministic(bool deterministic) {
    atomic_store(&pool.deterministic, deterministic);
}

void nd__pool_set_idle(int64_t nanoseconds) {
    atomic_store(&pool.idle_ns, nanoseconds);
    atomic_fetch_add(&pool.signal, 1);
    futex_wake(&pool.signal, ND__POOL_MOST);
}

void nd__pool_steer(int wakes) {
    atomic_store(&pool.steered, (uint32_t)wakes);
}

int nd__pool_workers(void) {
    return atomic_load(&pool.workers);
}
