// What the tests of streams on the fake runtime share.
#ifndef ND_TESTS_CUDART_STREAMS_H
#define ND_TESTS_CUDART_STREAMS_H
#include "tests/cudart/backend.h"

enum { SEEDS = 6 };

static inline double sum_of(const nd_tensor *x) {
    nd_tensor *sum = nd_sum(x, 0, NULL, false);
    double value = nd_get_item(sum);
    nd_release(sum);
    return value;
}

static inline nd_stream *stream_on(int device) {
    nd_stream *stream = nd_stream_new(cuda(device));
    assert_handle(stream);
    return stream;
}

static inline bool is_done(const nd_stream *stream) {
    bool done = false;
    assert_ok(nd_stream_query(stream, &done));
    return done;
}

static inline void assert_nothing_left_on_devices(void) {
    (void)nd_memory_trim(ND_CUDA); // what is kept (lib/device/cuda/cuda_kept.h)
    for (int i = 0; i < nd_get_device_count(ND_CUDA); i++) {
        assert_null(nd_stream_get_current(cuda(i)));
        assert_ok(nd_synchronize(cuda(i)));
    }
    assert_int_equal(statistics().live_blocks, 0);
    assert_int_equal(statistics().pending, 0);
    assert_int_equal(statistics().refused, 0);
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
}
#endif
