// T2 to T6: what the smallest operations cost, ours beside libtorch's in one run.
//
//   T2  create + free a tensor of 16 floats below a manager
//   T3  add two tensors of 16 floats, nothing recorded
//   T4  a slice (view)
//   T5  add, recorded
//   T6  forward and backward of sum(p * y), 16 floats, gradient dropped
//
// Each with one thread in the process, and once more with a second one that sleeps: real programs
// have a pool or a prefetcher, and a rival's locked instructions are there in either case, so the
// rival's figure stands beside both.
//
// The works take turns, batch by batch, and the rival runs between two halves of our measurement, so
// that a neighbour who takes a third of the core for a second spoils some batches of each figure, and
// not all of one. The halves with a second thread come last: once it was there, a library may stay
// careful.
#include "bench/support/measure.h"
#include "bench/support/metrics.h"
#include "bench/support/peer.h"

#include <nd/nd.h>

#include <math.h>
#include <stdio.h>

enum { ELEMENTS = 16, REPEATS = 1001, WORKS = 5, METRICS = 2 * WORKS };
enum { LIBTORCH, INFERENCE };

typedef struct operands {
    nd_manager *manager;
    nd_tensor *x;
    nd_tensor *y;
    nd_tensor *p; ///< requires a gradient
} operands;

static bool operands_begin(operands *data);
static void operands_end(operands *data);
static bool measure_half(bench_metric *metrics);
static bool measure_with_second_thread(bench_metric *metrics);
static void copy_rivals(bench_table *table);

static bool create_free(void *data, uint64_t count);
static bool add(void *data, uint64_t count);
static bool slice(void *data, uint64_t count);
static bool recorded_add(void *data, uint64_t count);
static bool forward_backward(void *data, uint64_t count);

int main(int argc, char **argv) {
    bench_files files;
    int answer = bench_metrics_options(
        argc, argv, "T2 to T6: the cost of the smallest operations, beside libtorch.", &files);
    if (answer >= 0)
        return answer;

    bench_metric metrics[METRICS] = {
        {.work = "create + free, 16 floats", .name = "T2_ns", .ratio = 0.25},
        {.work = "add, 16 floats", .name = "T3_ns", .ratio = 0.16},
        {.work = "slice view", .name = "T4_ns", .ratio = 0.08},
        {.work = "add, recorded", .name = "T5_ns", .ratio = 0.16},
        {.work = "forward + backward of sum(p * y)", .name = "T6_ns", .ratio = 0.11},
        {.work = "create + free, second thread alive", .name = "T2_second_thread_ns"},
        {.work = "add, second thread alive", .name = "T3_second_thread_ns"},
        {.work = "slice view, second thread alive", .name = "T4_second_thread_ns"},
        {.work = "add, recorded, second thread alive", .name = "T5_second_thread_ns"},
        {.work = "forward + backward, second thread alive", .name = "T6_second_thread_ns"},
    };
    bench_peer libtorch;
    bench_table table = {
        .bench = "dispatch",
        .metrics = metrics,
        .count = METRICS,
        .rivals = {[LIBTORCH] = {"libtorch", "rival_libtorch", &libtorch, NULL},
                   [INFERENCE] = {"inference", "rival_libtorch_inference", &libtorch, NULL}}};
    for (size_t i = 0; i < METRICS; i++) {
        metrics[i].unit = "ns";
        metrics[i].ratio = metrics[i % WORKS].ratio;
        metrics[i].beside = 1u << LIBTORCH;
    }
    if (!measure_half(metrics))
        return 2;
    bench_peer_run_own(&libtorch, "libtorch_basics", "T2", "libtorch-dev");
    if (!measure_half(metrics) || !measure_with_second_thread(metrics + WORKS))
        return 2;
    copy_rivals(&table);
    return bench_table_finish(&table, &files);
}

/// Adds half of each figure. False, with the error printed, on failure.
static bool measure_half(bench_metric *metrics) {
    static const bench_work works[WORKS] = {create_free, add, slice, recorded_add,
                                            forward_backward};
    operands data;
    bool ready = operands_begin(&data);
    bench_side sides[WORKS];
    for (size_t i = 0; i < WORKS; i++)
        sides[i] = (bench_side){.work = ready ? works[i] : NULL, .data = &data};
    nd_with_manager(data.manager) bench_measure_sides(sides, WORKS, REPEATS);
    operands_end(&data);
    for (size_t i = 0; i < WORKS; i++) {
        metrics[i].ours += sides[i].ns / 2;
        ready = ready && isfinite(sides[i].ns);
    }
    if (!ready)
        fprintf(stderr, "dispatch: %s\n", nd_error_get_message());
    return ready;
}

static bool measure_with_second_thread(bench_metric *metrics) {
    bench_second_thread *second = bench_second_thread_begin();
    bool measured = second && measure_half(metrics) && measure_half(metrics);
    bench_second_thread_end(second);
    return measured;
}

/// The rivals' figures of each work, for its line with a second thread.
static void copy_rivals(bench_table *table) {
    bench_table_ask_peers(table);
    for (size_t i = 0; i < WORKS; i++)
        for (size_t k = 0; k < BENCH_RIVALS; k++)
            table->metrics[WORKS + i].rivals[k] = table->metrics[i].rivals[k];
}

static bool operands_begin(operands *data) {
    nd_key key = nd_key_new(3);
    *data = (operands){.manager = nd_manager_new(NULL, "dispatch")};
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
        nd_tensor *part = nd_slice(operands->x, 4, 12, 1, 0);
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
