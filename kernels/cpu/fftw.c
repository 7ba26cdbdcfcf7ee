#include "kernels/cpu/fftw.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

// -------------------------------------------------------------------------------------------------
// the library

/// The functions that are used, without the prefix of their precision. A complex number is two
/// elements behind each other.
#define FUNCTIONS(F)                                                               \
    F(void *, plan_dft_1d, (int n, void *in, void *out, int sign, unsigned flags)) \
    F(void *, plan_dft_r2c_1d, (int n, void *in, void *out, unsigned flags))       \
    F(void *, plan_dft_c2r_1d, (int n, void *in, void *out, unsigned flags))       \
    F(void, execute_dft, (const void *plan, void *in, void *out))                  \
    F(void, execute_dft_r2c, (const void *plan, void *in, void *out))              \
    F(void, execute_dft_c2r, (const void *plan, void *in, void *out))              \
    F(void, destroy_plan, (void *plan))

typedef struct functions {
#define MEMBER(result, name, arguments) result(*name) arguments;
    FUNCTIONS(MEMBER)
#undef MEMBER
} functions;

// As FFTW's interface has them.
enum { SIGN_FORWARD = -1, SIGN_BACKWARD = 1 };
#define FLAG_ESTIMATE (1U << 6)

#define NAME_F32(result, name, arguments) "fftwf_" #name,
#define NAME_F64(result, name, arguments) "fftw_" #name,
static const char *const names_f32[] = {FUNCTIONS(NAME_F32)};
static const char *const names_f64[] = {FUNCTIONS(NAME_F64)};
enum { COUNT = sizeof names_f32 / sizeof *names_f32 };
_Static_assert(sizeof(functions) == COUNT * sizeof(void *), "a table of functions alone");

nd_optional *nd__fftw_library(nd_dtype dtype) {
    static const char *const files_f32[] = {"libfftw3f.so.3", NULL};
    static const char *const files_f64[] = {"libfftw3.so.3", NULL};
    static nd_optional f32 = {.what = "FFTW",
                              .package = "libfftw3-single3",
                              .variable = "ND_FFTW",
                              .files = files_f32,
                              .count = COUNT,
                              .names = names_f32};
    static nd_optional f64 = {.what = "FFTW",
                              .package = "libfftw3-double3",
                              .variable = "ND_FFTW",
                              .files = files_f64,
                              .count = COUNT,
                              .names = names_f64};
    return dtype == ND_F32 ? &f32 : &f64;
}

static const functions *functions_of(nd_dtype dtype) {
    return nd__optional_functions(nd__fftw_library(dtype));
}

bool nd__fftw_exists(nd_dtype dtype) {
    return functions_of(dtype) != NULL;
}

// -------------------------------------------------------------------------------------------------
// plans

/// So many plans are kept, of so many elements together. For a long prime number of elements a plan
/// has 70 bytes for each.
enum { PLANS = 64, ELEMENTS = 1 << 21, LONGEST = 1 << 20 };

struct nd__fftw_plan {
    const functions *library;
    nd__fftw_kind kind;
    int n;
    bool is_kept;
    size_t running_bytes; ///< that must be free when it runs, where memory is limited
    int users;
    uint64_t last_use;
    void *plan;
};

static struct {
    pthread_mutex_t lock;
    uint64_t clock;
    int64_t elements;
    nd__fftw_plan *plans[PLANS];
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void destroy_plan(nd__fftw_plan *plan) {
    plan->library->destroy_plan(plan->plan);
    free(plan);
}

static void empty_slot(int slot) {
    cache.elements -= cache.plans[slot]->n;
    destroy_plan(cache.plans[slot]);
    cache.plans[slot] = NULL;
}

/// Also at exit. A plan that another thread is running is left to it.
__attribute__((destructor)) void nd__fftw_plan_trim(void) {
    pthread_mutex_lock(&cache.lock);
    for (int i = 0; i < PLANS; i++)
        if (cache.plans[i] && cache.plans[i]->users == 0)
            empty_slot(i);
    pthread_mutex_unlock(&cache.lock);
}

// A child must not inherit the lock, or a use, of a thread that it does not have.
static void lock_cache(void) {
    pthread_mutex_lock(&cache.lock);
}
static void unlock_cache(void) {
    pthread_mutex_unlock(&cache.lock);
}
static void begin_child(void) {
    for (int i = 0; i < PLANS; i++)
        if (cache.plans[i])
            cache.plans[i]->users = 0;
    pthread_mutex_unlock(&cache.lock);
}
// Early, so that this lock is taken last: whoever computes may hold other ones.
__attribute__((constructor(101))) static void watch_forks(void) {
    pthread_atfork(lock_cache, unlock_cache, begin_child);
}

static void *planned(const functions *library, nd__fftw_kind kind, int n, void *in, void *out) {
    switch (kind) {
    case ND__FFTW_FORWARD:
        return library->plan_dft_1d(n, in, out, SIGN_FORWARD, FLAG_ESTIMATE);
    case ND__FFTW_BACKWARD:
        return library->plan_dft_1d(n, in, out, SIGN_BACKWARD, FLAG_ESTIMATE);
    case ND__FFTW_REAL:
        return library->plan_dft_r2c_1d(n, in, out, FLAG_ESTIMATE);
    default:
        return library->plan_dft_c2r_1d(n, in, out, FLAG_ESTIMATE);
    }
}

/// Whether FFTW has a way of its own for every prime factor; others are made of longer transforms.
static bool has_small_factors(int n) {
    static const int factors[] = {2, 3, 5, 7, 11, 13};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        while (n % factors[i] == 0)
            n /= factors[i];
    return n == 1;
}

/// Blocks small enough that malloc takes no mapping of its own for each, in a list.
enum { BLOCK_BYTES = 60 << 10 };
/// What a plan takes at most, and running it: so much anyway, and so much for each element. Shorter
/// ones of small factors have what they need on the stack when they run.
enum { BYTES_ANYWAY = 1 << 20, BYTES_EACH = 32, BYTES_EACH_OTHER = 192, SHORT = 4096 };

typedef struct block {
    struct block *next;
} block;

static void free_blocks(block *first) {
    while (first) {
        block *next = first->next;
        free(first);
        first = next;
    }
}

/// FFTW stops the program when it finds no memory. So it is asked only where there is more than it
/// takes, and this much is in malloc's hands then, free for this thread: what other threads take of
/// the process meanwhile is not taken from it. All of it lies below the block that is returned, which
/// is freed last; until then malloc gives nothing back to the system. NULL: there is not so much.
static block *reserve_memory(size_t bytes) {
    block *last = NULL;
    for (size_t taken = 0; taken < bytes; taken += BLOCK_BYTES) {
        block *next = malloc(BLOCK_BYTES);
        if (!next) {
            free_blocks(last);
            return NULL;
        }
        next->next = last;
        last = next;
    }
    free_blocks(last->next);
    last->next = NULL;
    return last;
}

static nd__fftw_plan *new_plan(const functions *library, nd__fftw_kind kind, int n, void *in,
                               void *out) {
    nd__fftw_plan *made = malloc(sizeof *made);
    bool is_plain = has_small_factors(n);
    size_t bytes = (size_t)n * (is_plain ? BYTES_EACH : BYTES_EACH_OTHER) + BYTES_ANYWAY;
    block *reserve = made ? reserve_memory(bytes) : NULL;
    if (reserve) {
        *made = (nd__fftw_plan){.library = library, .kind = kind, .n = n};
        made->running_bytes = !is_plain ? bytes : n > SHORT ? BYTES_ANYWAY : 0;
        made->plan = planned(library, kind, n, in, out);
        free_blocks(reserve);
        if (made->plan)
            return made;
    }
    free(made);
    return NULL;
}

/// The slot of the plan that was not used for longest, of those that nobody uses; -1: none.
static int oldest_slot(void) {
    int oldest = -1;
    for (int i = 0; i < PLANS; i++) {
        const nd__fftw_plan *plan = cache.plans[i];
        if (plan && plan->users == 0 &&
            (oldest < 0 || plan->last_use < cache.plans[oldest]->last_use))
            oldest = i;
    }
    return oldest;
}

static int free_slot(void) {
    for (int i = 0; i < PLANS; i++)
        if (!cache.plans[i])
            return i;
    return -1;
}

/// Keeps a plan in the place of older ones, if it is not too long and those are not in use.
static void keep(nd__fftw_plan *plan) {
    if (plan->n > LONGEST)
        return;
    int slot = free_slot();
    while (slot < 0 || cache.elements + plan->n > ELEMENTS) {
        int oldest = oldest_slot();
        if (oldest < 0)
            return;
        empty_slot(oldest);
        slot = oldest;
    }
    cache.plans[slot] = plan;
    cache.elements += plan->n;
    plan->is_kept = true;
}

nd__fftw_plan *nd__fftw_plan_acquire(nd_dtype dtype, nd__fftw_kind kind, int n, void *in,
                                     void *out) {
    const functions *library = functions_of(dtype);
    nd__fftw_plan *found = NULL;
    pthread_mutex_lock(&cache.lock);
    for (int i = 0; i < PLANS && !found; i++) {
        nd__fftw_plan *plan = cache.plans[i];
        if (plan && plan->library == library && plan->kind == kind && plan->n == n)
            found = plan;
    }
    if (!found) {
        found = new_plan(library, kind, n, in, out);
        if (found)
            keep(found);
    }
    if (found) {
        found->users++;
        found->last_use = ++cache.clock;
    }
    pthread_mutex_unlock(&cache.lock);
    return found;
}

void nd__fftw_plan_release(nd__fftw_plan *plan) {
    pthread_mutex_lock(&cache.lock);
    plan->users--;
    if (!plan->is_kept)
        destroy_plan(plan);
    pthread_mutex_unlock(&cache.lock);
}

/// Whether the process may be refused memory that the machine has. Else what runs sets nothing aside:
/// that takes some 40 us, four times as long as a transform of 8,192 numbers.
static bool memory_is_limited(void) {
    struct rlimit space, data;
    return getrlimit(RLIMIT_AS, &space) != 0 || getrlimit(RLIMIT_DATA, &data) != 0 ||
           space.rlim_cur != RLIM_INFINITY || data.rlim_cur != RLIM_INFINITY;
}

bool nd__fftw_run(const nd__fftw_plan *plan, void *in, void *out) {
    bool reserves = plan->running_bytes > 0 && memory_is_limited();
    block *reserve = reserves ? reserve_memory(plan->running_bytes) : NULL;
    if (reserves && !reserve)
        return false;
    switch (plan->kind) {
    case ND__FFTW_REAL:
        plan->library->execute_dft_r2c(plan->plan, in, out);
        break;
    case ND__FFTW_HALF:
        plan->library->execute_dft_c2r(plan->plan, in, out);
        break;
    default:
        plan->library->execute_dft(plan->plan, in, out);
    }
    free_blocks(reserve);
    return true;
}
