// Lengths, their factors and their roots, which are kept.
#include "kernels/cpu/fft_lines.h"
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { MOST_FACTORS = 8, SHORT = 1, LONG };

typedef struct length {
    int factors[MOST_FACTORS], factor_count;
    char roots[] __attribute__((aligned(8))); ///< as nd__fft_lines.pass_roots has them
} length;

/// By dtype and length, made when they are first asked for: 1.5 MiB together at most.
static struct {
    pthread_mutex_t lock;
    int64_t users;
    length *lengths[2][ND__FFT_MOST_PLACES + 1];
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

// A child must not inherit the lock, or a use, of a thread that it does not have.
static void lock_cache(void) {
    pthread_mutex_lock(&cache.lock);
}
static void unlock_cache(void) {
    pthread_mutex_unlock(&cache.lock);
}
static void begin_child(void) {
    cache.users = 0;
    pthread_mutex_unlock(&cache.lock);
}
// Early, as in fftw.c.
__attribute__((constructor(101))) static void watch_forks(void) {
    pthread_atfork(lock_cache, unlock_cache, begin_child);
}

/// Also at exit.
__attribute__((destructor)) void nd__fft_lines_trim(void) {
    pthread_mutex_lock(&cache.lock);
    for (int64_t n = 0; n <= ND__FFT_MOST_PLACES && cache.users == 0; n++)
        for (int wide = 0; wide < 2; wide++) {
            free(cache.lengths[wide][n]);
            cache.lengths[wide][n] = NULL;
        }
    pthread_mutex_unlock(&cache.lock);
}

/// exp(-2 pi i j / n): of an angle within an eighth of the circle, so that it is as exact as it is
/// rounded, and what is 0, 1 or 1 / sqrt(2) is so exactly on all sides.
static void find_root(int64_t j, int64_t n, double *ret_re, double *ret_im) {
    int64_t quarter = 4 * j / n, within = 4 * j - quarter * n; // 4 n-ths of the circle
    bool behind = 2 * within > n;
    if (behind)
        within = n - within;
    const long double half_pi = 1.57079632679489661923132169163975144L;
    long double angle = half_pi * (long double)within / (long double)n;
    double c = (double)cosl(angle), s = (double)sinl(angle);
    double re = behind ? s : c, im = behind ? c : s;
    const double turned[][2] = {{re, -im}, {-im, -re}, {-re, im}, {im, re}};
    *ret_re = turned[quarter][0];
    *ret_im = turned[quarter][1];
}

/// The factors of n, the longest ways first; those of two are joined. How many; 0 for 1.
static int find_factors(int64_t n, int *ret_factors) {
    static const int ways[] = {8, 4, 2, 3, 5};
    int count = 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (; n % ways[i] == 0; n /= ways[i])
            ret_factors[count++] = ways[i];
    for (int p = 7; n > 1; p += 2)
        for (; n % p == 0; n /= p)
            ret_factors[count++] = p;
    return count;
}

static void set_number(void *numbers, nd_dtype dtype, int64_t i, double value) {
    if (dtype == ND_F32)
        ((float *)numbers)[i] = (float)value;
    else
        ((double *)numbers)[i] = value;
}

static length *new_length(nd_dtype dtype, int64_t n) {
    size_t numbers = 4 * (size_t)n;
    length *made =
        malloc(sizeof *made + numbers * (dtype == ND_F32 ? sizeof(float) : sizeof(double)));
    if (!made)
        return NULL;
    made->factor_count = find_factors(n, made->factors);
    int64_t r = n > 1 ? made->factors[0] : 1, m = n / r;
    for (int64_t j = 0; j < n; j++) {
        double re, im;
        find_root(j, n, &re, &im);
        set_number(made->roots, dtype, 2 * j, re);
        set_number(made->roots, dtype, 2 * j + 1, im);
    }
    for (int64_t i = 0; i < (r - 1) * m; i++) {
        int64_t k = i / m + 1, p = i % m, at = 2 * (n + (k - 1) * m) + p;
        double re, im;
        find_root(k * p, n, &re, &im);
        set_number(made->roots, dtype, at, re);
        set_number(made->roots, dtype, at + m, im);
    }
    return made;
}

static const length *find_length(nd_dtype dtype, int64_t n) {
    length **found = &cache.lengths[dtype == ND_F64][n];
    if (!*found)
        *found = new_length(dtype, n);
    return *found;
}

bool nd__fft_is_short(int64_t n) {
    static _Atomic uint8_t known[ND__FFT_MOST_PLACES + 1]; // SHORT or LONG
    if (n > ND__FFT_MOST_PLACES)
        return false;
    uint8_t is = atomic_load_explicit(&known[n], memory_order_relaxed);
    if (!is) {
        int factors[MOST_FACTORS], count = find_factors(n, factors);
        is = count == 0 || factors[count - 1] <= ND__FFT_MOST_PRIME ? SHORT : LONG;
        atomic_store_explicit(&known[n], is, memory_order_relaxed);
    }
    return is == SHORT;
}

bool nd__fft_lines_begin(nd__fft_lines *lines, const nd__fft_call *call) {
    int64_t n = call->n, places = call->op != ND_OP_fft && n % 2 == 0 ? n / 2 : n;
    pthread_mutex_lock(&cache.lock);
    const length *whole = find_length(call->dtype, n);
    const length *pairs = whole ? find_length(call->dtype, places) : NULL;
    cache.users += pairs != NULL;
    pthread_mutex_unlock(&cache.lock);
    if (!pairs)
        return false;
    int last = pairs->factor_count ? pairs->factors[pairs->factor_count - 1] : 1;
    *lines = (nd__fft_lines){.call = call,
                             .roots = whole->roots,
                             .pass_roots = pairs->roots,
                             .factors = pairs->factors,
                             .factor_count = pairs->factor_count,
                             .has_other_factors = last > 5 && last != 8,
                             .is_prime = n == last && last > 5 && n % 2};
    return true;
}

void nd__fft_lines_end(void) {
    pthread_mutex_lock(&cache.lock);
    cache.users--;
    pthread_mutex_unlock(&cache.lock);
}

size_t nd__fft_lines_room(int64_t n) {
    return 3 * ((size_t)n + 1) * 2 * 64;
}
