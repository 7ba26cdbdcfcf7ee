// Products of 16-bit floats by a ring of slices in shared memory, against sums in f64.
#include "kernels/cuda/cuda.h"
#include "tests/products.h"
#include "tests/unit/cuda_host/harness.h"

static nd_status allocate(void *context, size_t bytes, void **ret_pointer) {
    (void)context;
    *ret_pointer = malloc(bytes);
    return *ret_pointer ? ND_OK : ND_ERROR_OUT_OF_MEMORY;
}

static void release(void *context, void *pointer) {
    (void)context;
    free(pointer);
}

static nd_status multiply(const test_product *p, const nd_kernel_call *call) {
    const nd_cuda_queue queue = {.multiprocessors = p->multiprocessors,
                                 .shared_bytes = p->shared_bytes,
                                 .has_warpgroups = p->has_warpgroups,
                                 .allocate = allocate,
                                 .release = release};
    return call->operand[0].dtype == ND_F16 ? nd__cuda_matmul_f16(&queue, call)
                                            : nd__cuda_matmul_bf16(&queue, call);
}

void test_aligned_products_are_sums(void **state) {
    (void)state;
    uint64_t random = 12;
    for (int number = 0; number < 160; number++) {
        test_product p = test_product_new(number % 2 ? ND_F16 : ND_BF16, &random);
        const size_t bytes = (size_t)p.elements[0] * sizeof(uint16_t);
        void *out = NULL;
        assert_int_equal(posix_memalign(&out, 64, bytes), 0);
        memcpy(out, p.memory[0], bytes);
        nd_kernel_call call = p.call;
        call.operand[0].data = out;
        assert_int_equal(multiply(&p, &call), ND_OK);
        if (!test_product_is_right(&p, out))
            fail_msg("product %d", number);
        free(out);
        test_product_free(&p);
    }
}

/// What has no aligned rows, or no room for its ring, is for another kernel.
void test_other_products_are_refused(void **state) {
    (void)state;
    uint64_t random = 1;
    test_product p;
    do // both along k, of more than a pack
        p = test_product_new(ND_F16, &random);
    while ((p.call.attrs.i[4] != 1 || p.call.attrs.i[5] != 1 || p.call.attrs.i[2] < 16) &&
           (test_product_free(&p), true));
    nd_kernel_call call = p.call;
    assert_int_equal(multiply(&p, &call), ND_OK);
    call.operand[1].data = p.memory[1] + 1; // its address
    assert_int_equal(multiply(&p, &call), ND_ERROR_UNSUPPORTED);
    call = p.call;
    call.attrs.i[6] += 4; // its rows
    assert_int_equal(multiply(&p, &call), ND_ERROR_UNSUPPORTED);
    call = p.call;
    call.operand[2].strides[0] += 4; // its entries
    assert_int_equal(multiply(&p, &call), ND_ERROR_UNSUPPORTED);
    call = p.call;
    call.attrs.i[4] = 2; // no axis of stride 1
    assert_int_equal(multiply(&p, &call), ND_ERROR_UNSUPPORTED);
    call = p.call;
    call.attrs.i[2] -= 4; // a pack that is not there as a whole
    assert_int_equal(multiply(&p, &call), ND_ERROR_UNSUPPORTED);
    call.attrs.i[2] = 0; // no sum
    assert_int_equal(multiply(&p, &call), ND_ERROR_UNSUPPORTED);
    call = p.call;
    p.shared_bytes = 48 << 10;
    assert_int_equal(multiply(&p, &call), ND_ERROR_UNSUPPORTED);
    test_product_free(&p);
}
