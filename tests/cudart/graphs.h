// What the tests of graphs on the fake runtime share.
#ifndef ND_TESTS_CUDART_GRAPHS_H
#define ND_TESTS_CUDART_GRAPHS_H
#include "tests/cudart/backend.h"

enum { SEEDS = 6, SIZE = 1000 };

static inline double sum_of(const nd_tensor *x) {
    nd_auto nd_tensor *sum = nd_sum(x, 0, NULL, false);
    return nd_get_item(sum);
}

static inline void assert_nothing_left_on_devices(void) {
    (void)nd_memory_trim(ND_CUDA); // what is kept (lib/device/cuda/cuda_kept.h)
    for (int i = 0; i < nd_get_device_count(ND_CUDA); i++)
        assert_ok(nd_synchronize(cuda(i)));
    const cudart_statistics now = statistics();
    assert_int_equal(now.live_blocks, 0);
    assert_int_equal(now.pending, 0);
    assert_int_equal(now.captures, 0);
    assert_int_equal(now.live_graphs, 0);
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
}

/// total += (x + x) * x, captured.
static inline nd_graph *accumulating(const nd_tensor *x, nd_tensor *total) {
    nd_graph *graph = NULL;
    nd_with_capture(cuda(0), &graph) {
        nd_auto nd_tensor *twice = nd_add(x, x);
        nd_auto nd_tensor *square = nd_mul(twice, x);
        assert_ok(nd_add_(total, square));
    }
    assert_handle(graph);
    return graph;
}

/// Whether the thread's error begins with the public function that a call's text names first.
static inline bool names_the_function(const char *call) {
    const char *name = strstr(call, "nd_"), *message = nd_error_get_message();
    if (!name)
        return false;
    name += strlen("nd_");
    const size_t length = strcspn(name, "( ");
    return strncmp(message, name, length) == 0 && message[length] == ':';
}

/// By ndarc, whose sentence says which function was refused and why. `untouched`: before CUDA was
/// asked for anything.
static inline void check_refusal(const char *call, bool refused, nd_status status, bool untouched) {
    if (!refused || nd_error_get_status() != status ||
        !strstr(nd_error_get_message(), "captures a graph") || !names_the_function(call))
        fail_msg("%s: %s: %s", call, nd_status_get_name(nd_error_get_status()),
                 nd_error_get_message());
    if (!untouched)
        fail_msg("%s: CUDA was called", call);
    nd_error_clear();
}

#define assert_refused(call)                                                               \
    do {                                                                                   \
        const uint64_t calls_before = statistics().calls;                                  \
        const bool refused = (call);                                                       \
        check_refusal(#call, refused, ND_ERROR_STATE, statistics().calls == calls_before); \
    } while (0)
#endif
