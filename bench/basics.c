// T1 to T6: what the smallest operations cost, ours beside libtorch's in one run.
//
//   T1  retain + release of a handle, with one thread in the process and with two
//   T2  create + free a tensor of 16 floats below a manager
//   T3  add two tensors of 16 floats, nothing recorded
//   T4  a slice (view)
//   T5  add, recorded
//   T6  forward and backward of sum(p * y), 16 floats, gradient dropped
#include "bench/support/measure.h"
#include "bench/support/metrics.h"
#include "bench/support/paths.h"
#include "bench/support/peer.h"

#include <nd/nd.h>

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { ELEMENTS = 16, REPEATS = 401, METRICS = 7 };

typedef struct operands {
    nd_manager *manager;
    nd_tensor *x;
    nd_tensor *y;
    nd_tensor *p; ///< requires a gradient
} operands;

static bool operands_begin(operands *data);
static void operands_end(operands *data);
static void measure_all(operands *data, bench_metric *metrics);
static void measure_with_second_thread(operands *data, bench_metric *metric);
static void run_rival(bench_peer *peer);

static bool retain_release(void *data, uint64_t count);
static bool two_locked_instructions(void *data, uint64_t count);
static bool create_free(void *data, uint64_t count);
static bool add(void *data, uint64_t count);
static bool slice(void *data, uint64_t count);
static bool recorded_add(void *data, uint64_t count);
static bool forward_backward(void *data, uint64_t count);

int main(int argc, char **argv) {
    const char *json = NULL;
    int answer = bench_metrics_options(
        argc, argv, "T1 to T6: the cost of the smallest operations, beside libtorch.", &json);
    if (answer >= 0)
        return answer;

    operands data;
    bench_metric metrics[METRICS] = {{0}};
    bench_peer peer;
    bool ready = operands_begin(&data);
    if (ready)
        nd_with_manager(data.manager) measure_all(&data, metrics);
    operands_end(&data);
    if (!ready || !isfinite(metrics[METRICS - 1].ours)) {
        fprintf(stderr, "basics: %s\n", nd_error_message());
        return 2;
    }
    run_rival(&peer);
    for (size_t i = 0; i < METRICS; i++)
        metrics[i].theirs =
            metrics[i].rival ? bench_peer_number(&peer, metrics[i].rival) : (double)NAN;
    bench_metrics_print("basics", metrics, METRICS, "libtorch", &peer);
    return bench_metrics_write(json, "basics", metrics, METRICS) ? 0 : 2;
}

static void measure_all(operands *data, bench_metric *metrics) {
    static const struct {
        const char *work;
        const char *name;
        const char *rival;
        const char *ratio;
        bench_work function;
        double target;
    } rows[METRICS] = {
        {"retain + release, one thread", "T1_ns", "T1_rival_ns", "T1_ratio", retain_release, 1.5},
        {"retain + release, two threads", "T1_threads_ns", NULL, NULL, NULL, 0},
        {"create + free, 16 floats", "T2_ns", "T2_rival_ns", "T2_ratio", create_free, 60},
        {"add, 16 floats", "T3_ns", "T3_rival_ns", "T3_ratio", add, 90},
        {"slice view", "T4_ns", "T4_rival_ns", "T4_ratio", slice, 50},
        {"add, recorded", "T5_ns", "T5_rival_ns", "T5_ratio", recorded_add, 180},
        {"forward + backward of sum(p * y)", "T6_ns", "T6_rival_ns", "T6_ratio", forward_backward,
         1200},
    };
    for (size_t i = 0; i < METRICS; i++) {
        metrics[i] = (bench_metric){.work = rows[i].work,
                                    .name = rows[i].name,
                                    .rival = rows[i].rival,
                                    .ratio = rows[i].ratio,
                                    .unit = "ns",
                                    .ours = NAN,
                                    .target = rows[i].target};
        if (rows[i].function)
            metrics[i].ours = bench_measure_ns(rows[i].function, data, REPEATS);
    }
    // Last: once a second thread was there, a library may stay careful.
    measure_with_second_thread(data, &metrics[1]);
}

static bool operands_begin(operands *data) {
    nd_key key = nd_key_new(3);
    *data = (operands){.manager = nd_manager_new(NULL, "basics")};
    nd_with_manager(data->manager) {
        data->x = nd_rand(nd_key_fold(key, 0), ND_SHAPE(ELEMENTS), ND_F32);
        data->y = nd_rand(nd_key_fold(key, 1), ND_SHAPE(ELEMENTS), ND_F32);
        data->p = nd_rand(nd_key_fold(key, 2), ND_SHAPE(ELEMENTS), ND_F32);
    }
    return data->x && data->y && data->p && nd_set_requires_grad(data->p, true) == ND_OK;
}

static void operands_end(operands *data) {
    nd_release(data->x);
    nd_release(data->y);
    nd_release(data->p);
    nd_release(data->manager);
}

typedef struct waiter {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool done;
} waiter;

static void *wait_until_done(void *data) {
    waiter *waiter = data;
    pthread_mutex_lock(&waiter->mutex);
    while (!waiter->done)
        pthread_cond_wait(&waiter->changed, &waiter->mutex);
    pthread_mutex_unlock(&waiter->mutex);
    return NULL;
}

/// The process has a second thread, which sleeps. The target is what two locked instructions cost.
static void measure_with_second_thread(operands *data, bench_metric *metric) {
    waiter waiter = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    pthread_t thread;
    if (pthread_create(&thread, NULL, wait_until_done, &waiter) != 0)
        return;
    metric->target = 1.05 * bench_measure_ns(two_locked_instructions, NULL, REPEATS);
    metric->ours = bench_measure_ns(retain_release, data, REPEATS);
    pthread_mutex_lock(&waiter.mutex);
    waiter.done = true;
    pthread_cond_signal(&waiter.changed);
    pthread_mutex_unlock(&waiter.mutex);
    pthread_join(thread, NULL);
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

static bool retain_release(void *data, uint64_t count) {
    const operands *operands = data;
    for (uint64_t i = 0; i < count; i++) {
        nd_tensor *handle = nd_retain(operands->x);
        nd_release(handle);
    }
    return true;
}

static bool create_free(void *data, uint64_t count) {
    (void)data;
    for (uint64_t i = 0; i < count; i++) {
        nd_tensor *tensor = nd_empty(ND_SHAPE(ELEMENTS), ND_F32);
        if (!tensor)
            return false;
        nd_release(tensor);
    }
    return true;
}

static bool add(void *data, uint64_t count) {
    const operands *operands = data;
    for (uint64_t i = 0; i < count; i++) {
        nd_tensor *sum = nd_add(operands->x, operands->y);
        if (!sum)
            return false;
        nd_release(sum);
    }
    return true;
}

static bool slice(void *data, uint64_t count) {
    const operands *operands = data;
    for (uint64_t i = 0; i < count; i++) {
        nd_tensor *part = nd_slice(operands->x, 0, 4, 12, 1);
        if (!part)
            return false;
        nd_release(part);
    }
    return true;
}

static bool recorded_add(void *data, uint64_t count) {
    const operands *operands = data;
    for (uint64_t i = 0; i < count; i++) {
        nd_tensor *sum = nd_add(operands->p, operands->y);
        if (!sum)
            return false;
        nd_release(sum);
    }
    return true;
}

static bool forward_backward(void *data, uint64_t count) {
    const operands *operands = data;
    for (uint64_t i = 0; i < count; i++) {
        nd_auto nd_tensor *product = nd_mul(operands->p, operands->y);
        nd_auto nd_tensor *sum = nd_sum(product, 0, NULL, false);
        if (nd_backward(sum, NULL) != ND_OK || nd_zero_grad(operands->p) != ND_OK)
            return false;
    }
    return true;
}

static void run_rival(bench_peer *peer) {
    char program[4096];
    if (!bench_find_file("bench/peers/libtorch_basics", program, sizeof program)) {
        *peer = (bench_peer){.skipped = "it was not installed when this was built (libtorch-dev)"};
        return;
    }
    const char *const arguments[] = {program, NULL};
    bench_peer_run(peer, arguments);
}
