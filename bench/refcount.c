// T1: what a handle costs: retain + release, beside the two locked instructions that no count
// shared by threads can do without, the two calls that a library outside the program cannot do
// without, and beside libtorch. Where counts are compiled into the program one thread shall need no
// more than 1.5 ns, which is meant for a quiet Zen 5.
//
// A process with one thread and a process with two are measured one after the other: the second
// thread sleeps, but it is there.
#include "bench/refcount_inline.h"
#include "bench/support/measure.h"
#include "bench/support/metrics.h"
#include "bench/support/peer.h"

#include <nd/nd.h>

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>

enum { ELEMENTS = 16, REPEATS = 401, METRICS = 3 };
enum { LOCKED_PAIR, EMPTY_CALLS, LIBTORCH };

static void measure_with_one_thread(nd_tensor *x, bench_metric *metric);
static void measure_with_second_thread(nd_tensor *x, bench_metric *metric);
static bool two_empty_calls(void *data, uint64_t count);
static bool two_locked_instructions(void *data, uint64_t count);
static bool retain_release(void *data, uint64_t count);

int main(int argc, char **argv) {
    bench_files files;
    int answer = bench_metrics_options(
        argc, argv, "T1: retain + release of a handle, beside libtorch.", &files);
    if (answer >= 0)
        return answer;

    nd_tensor *x = nd_rand(nd_key_new(3), ND_SHAPE(ELEMENTS), ND_F32);
    if (!x) {
        fprintf(stderr, "refcount: %s\n", nd_error_get_message());
        return 2;
    }
    bench_metric metrics[METRICS] = {
        {.work = "retain + release, process with one thread", .name = "T1_single_thread_ns"},
        {.work = "retain + release, process with two threads",
         .name = "T1_ns",
         .ratio = 1.05,
         .beside = 1u << LOCKED_PAIR},
        {.work = "the same with ND_INLINE_COUNTS, one thread",
         .name = "T1_inline_single_thread_ns",
         .target = 1.5},
    };
    bench_peer libtorch;
    bench_table table = {
        .bench = "refcount",
        .metrics = metrics,
        .count = METRICS,
        .rivals = {
            [LOCKED_PAIR] = {.title = "lower bound",
                             .key = "locked_pair",
                             .what = "locked add + locked subtract of one word, in this process"},
            [EMPTY_CALLS] = {.title = "empty calls",
                             .key = "empty_calls",
                             .what = "two calls of functions that do nothing, in this process"},
            [LIBTORCH] = {.title = "libtorch", .key = "rival_libtorch", .peer = &libtorch}}};
    for (size_t i = 0; i < METRICS; i++)
        metrics[i].unit = "ns";
    measure_with_one_thread(x, &metrics[0]);
    metrics[2].ours = bench_measure_ns(retain_release_inline, x, REPEATS);
    // Last: once a second thread was there, a library may stay careful.
    measure_with_second_thread(x, &metrics[1]);
    nd_release(x);
    bench_peer_run_own(&libtorch, "libtorch_basics", "T1", "libtorch-dev");
    return bench_table_finish(&table, &files);
}

static void measure_with_one_thread(nd_tensor *x, bench_metric *metric) {
    bench_side sides[] = {{.work = retain_release, .data = x},
                          {.work = two_empty_calls, .data = x}};
    bench_measure_sides(sides, 2, REPEATS);
    metric->ours = sides[0].ns;
    metric->rivals[EMPTY_CALLS] = sides[1].ns;
}

static void measure_with_second_thread(nd_tensor *x, bench_metric *metric) {
    bench_second_thread *second = bench_second_thread_begin();
    if (!second)
        return;
    bench_side sides[] = {{.work = retain_release, .data = x}, {.work = two_locked_instructions}};
    bench_measure_sides(sides, 2, REPEATS);
    metric->ours = sides[0].ns;
    metric->rivals[LOCKED_PAIR] = sides[1].ns;
    bench_second_thread_end(second);
}

static bool two_locked_instructions(void *data, uint64_t count) {
    static _Atomic uint64_t word;
    (void)data;
    for (uint64_t i = 0; i < count; i++) {
        atomic_fetch_add_explicit(&word, (UINT64_C(1) << 32) + 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&word, 1, memory_order_acq_rel);
    }
    return true;
}

__attribute__((noinline)) static void *empty_retain(void *object) {
    __asm__ volatile("" ::: "memory");
    return object;
}

__attribute__((noinline)) static void empty_release(void *object) {
    __asm__ volatile("" : : "r"(object) : "memory");
}

static bool two_empty_calls(void *data, uint64_t count) {
    for (uint64_t i = 0; i < count; i++)
        empty_release(empty_retain(data));
    return true;
}

static bool retain_release(void *data, uint64_t count) {
    nd_tensor *x = data;
    for (uint64_t i = 0; i < count; i++) {
        nd_tensor *handle = nd_retain(x);
        nd_release(handle);
    }
    return true;
}
