// Products of 16-bit floats by a ring of slices in shared memory (kernels/cuda/pipeline.cuh), launched on
// the fake runtime, against sums in f64: the order of a block's threads is drawn, a copy to shared memory
// destroys what was there when it begins, and comes when its thread waits for it.
//
// tests/cudart/planted/ holds mistakes in the ring that these tests must notice.
#include "kernels/cuda/cuda.h"
#include "tests/cudart/calls.h"
#include "tests/products.h"

static nd_status allocate(void *context, size_t bytes, void **ret_pointer) {
    return cudaMallocAsync(ret_pointer, bytes, context) == cudaSuccess ? ND_OK
                                                                       : ND_ERROR_OUT_OF_MEMORY;
}

static void release(void *context, void *pointer) {
    assert_cuda(cudaFreeAsync(pointer, context));
}

static nd_status multiply(const test_product *p, const nd_kernel_call *call, cudaStream_t stream) {
    const nd_cuda_queue queue = {.stream = stream,
                                 .multiprocessors = p->multiprocessors,
                                 .shared_bytes = p->shared_bytes,
                                 .has_warpgroups = p->has_warpgroups,
                                 .context = stream,
                                 .allocate = allocate,
                                 .release = release};
    return call->operand[0].dtype == ND_F16 ? nd__cuda_matmul_f16(&queue, call)
                                            : nd__cuda_matmul_bf16(&queue, call);
}

/// The product on the device; what is in its results' memory then.
static void multiply_there(const test_product *p, uint16_t *found) {
    cudaStream_t stream = stream_new();
    nd_kernel_call call = p->call;
    for (int operand = 0; operand < call.noperands; operand++) {
        const size_t bytes = (size_t)p->elements[operand] * sizeof(uint16_t);
        assert_cuda(cudaMallocAsync(&call.operand[operand].data, bytes, stream));
        assert_cuda(cudaMemcpyAsync(call.operand[operand].data, p->memory[operand], bytes,
                                    cudaMemcpyHostToDevice, stream));
    }
    assert_int_equal(multiply(p, &call, stream), ND_OK);
    assert_cuda(cudaMemcpyAsync(found, call.operand[0].data,
                                (size_t)p->elements[0] * sizeof(uint16_t), cudaMemcpyDeviceToHost,
                                stream));
    assert_cuda(cudaStreamSynchronize(stream));
    for (int operand = 0; operand < call.noperands; operand++)
        assert_cuda(cudaFreeAsync(call.operand[operand].data, stream));
    assert_cuda(cudaStreamDestroy(stream));
}

static void test_aligned_products_are_sums(void **state) {
    (void)state;
    uint64_t random = 4;
    for (int number = 0; number < 60; number++) {
        cudart_set_seed((uint64_t)number);
        test_product p = test_product_new(number % 2 ? ND_F16 : ND_BF16, &random);
        uint16_t *found = malloc((size_t)p.elements[0] * sizeof *found);
        assert_non_null(found);
        multiply_there(&p, found);
        if (!test_product_is_right(&p, found))
            fail_msg("product %d", number);
        free(found);
        test_product_free(&p);
    }
    assert_int_equal(statistics().live_blocks, 0);
}

/// Shared memory that is not granted, and a launch that fails, are told, and nothing stays of them.
static void test_refusals_are_told(void **state) {
    (void)state;
    static const char *const calls[] = {"cudaFuncSetAttribute", "cudaLaunchKernelExC"};
    uint64_t random = 9;
    cudaStream_t stream = stream_new();
    test_product p = test_product_new(ND_F16, &random);
    for (int of = 0; of < 2; of++) {
        cudart_fail(calls[of], 1, cudaErrorInvalidValue);
        assert_int_equal(multiply(&p, &p.call, stream), ND_ERROR_DEVICE);
        assert_cuda(cudaGetLastError());
    }
    test_product_free(&p);
    assert_cuda(cudaStreamSynchronize(stream));
    assert_cuda(cudaStreamDestroy(stream));
    assert_int_equal(statistics().live_blocks, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_aligned_products_are_sums),
        ND_TEST(test_refusals_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
