// Random products of 16-bit floats whose rows are aligned, and what they must be, in f64.
//
// What lies between rows and behind them is NaN, so that a read there shows; between the results' rows it
// must stay.
#ifndef ND_TESTS_PRODUCTS_H
#define ND_TESTS_PRODUCTS_H
#include "kernels/kernel.h"
#include "tests/elements.h"
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PRODUCT_OPERANDS = 4 }; // out, a, b, bias

typedef struct test_product {
    nd_kernel_call call; ///< its operands are `memory`
    uint16_t *memory[PRODUCT_OPERANDS];
    int64_t elements[PRODUCT_OPERANDS];
    int multiprocessors, shared_bytes; ///< of the device that it is for
    bool has_warpgroups;
} test_product;

static inline int64_t test_product_draw(uint64_t *random, int64_t bound) {
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((*random >> 33) % (uint64_t)bound);
}

static inline void test_product_free(test_product *p) {
    for (int i = 0; i < PRODUCT_OPERANDS; i++)
        free(p->memory[i]);
}

/// `rows` rows of `length` elements, `stride` apart, `entries` times; NaN between them.
static inline void test_product_fill(test_product *p, int operand, int64_t entries, int64_t rows,
                                     int64_t length, int64_t stride, uint64_t *random) {
    const int64_t count = p->elements[operand] = entries * rows * stride;
    const nd_dtype dtype = p->call.operand[0].dtype;
    void *memory = NULL;
    if (posix_memalign(&memory, 64, (size_t)count * sizeof(uint16_t) + 16) != 0)
        abort();
    p->memory[operand] = memory;
    for (int64_t i = 0; i < count; i++)
        set_element(memory, dtype, i,
                    i % stride < length ? (double)(test_product_draw(random, 401) - 200) / 128
                                        : (double)NAN);
    p->call.operand[operand].data = memory;
    p->call.operand[operand].dtype = dtype;
}

/// Sizes around those of tiles and slices, multiples of 8 where rows need it.
static inline int64_t test_product_size(uint64_t *random, bool of_packs) {
    static const int64_t around[] = {1, 8, 56, 63, 64, 65, 120, 127, 128, 129, 136, 200, 256, 264};
    int64_t size = around[test_product_draw(random, sizeof around / sizeof *around)];
    if (test_product_draw(random, 3) == 0)
        size = 1 + test_product_draw(random, 200);
    return of_packs ? (size + 7) / 8 * 8 : size;
}

static inline test_product test_product_new(nd_dtype dtype, uint64_t *random) {
    static const int multiprocessors[] = {1, 2, 4, 132};
    static const int shared[] = {72, 99, 163, 227};
    test_product p = {0};
    const bool a_along_k = test_product_draw(random, 2), b_along_k = test_product_draw(random, 2);
    const bool a_repeated = test_product_draw(random, 4) == 0;
    const int64_t m = test_product_size(random, !a_along_k);
    const int64_t n = test_product_size(random, !b_along_k);
    int64_t k = test_product_size(random, a_along_k || b_along_k);
    if (m * n < 10000 && test_product_draw(random, 3) == 0)
        k += 8 * test_product_draw(random, 60); // long enough for parts
    const int64_t entries = test_product_draw(random, 4) ? 1 : 1 + test_product_draw(random, 3);
    const int64_t a_row = (a_along_k ? k : m) + 8 * test_product_draw(random, 2);
    const int64_t b_row = (b_along_k ? k : n) + 8 * test_product_draw(random, 2);
    const int64_t out_gaps[] = {0, 3, 8}, out_row = n + out_gaps[test_product_draw(random, 3)];
    p.multiprocessors = multiprocessors[test_product_draw(random, 4)];
    p.shared_bytes = shared[test_product_draw(random, 4)] << 10;
    p.has_warpgroups = test_product_draw(random, 2);
    nd_kernel_call *call = &p.call;
    *call = (nd_kernel_call){.op = ND_OP_matmul, .noperands = 3, .ndim = 1, .shape = {entries}};
    call->operand[0].dtype = dtype;
    test_product_fill(&p, 0, entries, m, n, out_row, random);
    test_product_fill(&p, 1, a_repeated ? 1 : entries, a_along_k ? m : k, a_along_k ? k : m, a_row,
                      random);
    test_product_fill(&p, 2, entries, b_along_k ? n : k, b_along_k ? k : n, b_row, random);
    call->operand[0].strides[0] = m * out_row;
    call->operand[1].strides[0] = a_repeated ? 0 : (a_along_k ? m : k) * a_row;
    call->operand[2].strides[0] = (b_along_k ? n : k) * b_row;
    int64_t *i = call->attrs.i;
    i[0] = m, i[1] = n, i[2] = k;
    i[3] = a_along_k ? a_row : 1, i[4] = a_along_k ? 1 : a_row;
    i[5] = b_along_k ? 1 : b_row, i[6] = b_along_k ? b_row : 1;
    i[7] = out_row, i[8] = 1;
    call->attrs.f[0] = (double)test_product_draw(random, 2);
    if (call->attrs.f[0] == 0 && test_product_draw(random, 2)) {
        call->op = ND_OP_linear;
        call->noperands = 4;
        i[9] = test_product_draw(random, 2) ? 1 + ND_OP_relu : 0;
        i[10] = 1;
        test_product_fill(&p, 3, 1, 1, n, n, random);
    }
    return p;
}

/// What result [entry, row, column] must be before it is rounded, and about how much its sum may be off.
static inline double test_product_result(const test_product *p, int64_t entry, int64_t row,
                                         int64_t column, double *ret_slack) {
    const nd_kernel_call *call = &p->call;
    const int64_t *i = call->attrs.i;
    const nd_dtype dtype = call->operand[0].dtype;
    double sum = 0, size = 0;
    for (int64_t k = 0; k < i[2]; k++) {
        const double product =
            element_as_double(p->memory[1], dtype,
                              entry * call->operand[1].strides[0] + row * i[3] + k * i[4]) *
            element_as_double(p->memory[2], dtype,
                              entry * call->operand[2].strides[0] + k * i[5] + column * i[6]);
        sum += product;
        size += fabs(product);
    }
    if (call->attrs.f[0] != 0)
        sum += element_as_double(p->memory[0], dtype,
                                 entry * call->operand[0].strides[0] + row * i[7] + column);
    if (p->memory[3])
        sum += element_as_double(p->memory[3], dtype, column);
    *ret_slack = size * 0x1p-20;
    return i[9] && sum < 0 ? 0 : sum;
}

/// False, with the first difference on stderr, when `found` is not what must be in the results' memory.
static inline bool test_product_is_right(const test_product *p, const uint16_t *found) {
    const int64_t *i = p->call.attrs.i, out_row = i[7], entry_size = p->call.operand[0].strides[0];
    const nd_dtype dtype = p->call.operand[0].dtype;
    for (int64_t at = 0; at < p->elements[0]; at++) {
        const int64_t entry = at / entry_size, row = at % entry_size / out_row,
                      column = at % out_row;
        if (column >= i[1]) {
            if (found[at] == p->memory[0][at])
                continue;
            fprintf(stderr, "[%lld, %lld, %lld] lies between rows and was written\n",
                    (long long)entry, (long long)row, (long long)column);
            return false;
        }
        double slack;
        const double expected = test_product_result(p, entry, row, column, &slack);
        const double now = element_as_double(found, dtype, at);
        slack += (dtype == ND_F16 ? 0x1p-11 : 0x1p-8) * fabs(expected) * 1.001;
        if (fabs(now - expected) <= slack) // not of NaN
            continue;
        fprintf(
            stderr,
            "%lld products of [%lld, %lld] (strides %lld, %lld) and [%lld, %lld] (%lld, %lld) on "
            "%d multiprocessors with %d bytes%s: [%lld, %lld, %lld] is %g, not %g\n",
            (long long)p->call.shape[0], (long long)i[0], (long long)i[2], (long long)i[3],
            (long long)i[4], (long long)i[2], (long long)i[1], (long long)i[5], (long long)i[6],
            p->multiprocessors, p->shared_bytes, p->has_warpgroups ? " and wgmma" : "",
            (long long)entry, (long long)row, (long long)column, now, expected);
        return false;
    }
    return true;
}
#endif
