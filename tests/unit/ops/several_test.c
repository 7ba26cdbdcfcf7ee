// F44: functions with several results write all of them or none, wherever room is missing.
#include "lib/base/alloc.h"
#include "tests/unit/ops/values.h"
#include <nd/linalg.h>
#include <nd/manipulation.h>
#include <nd/nn.h>
#include <nd/pooling.h>
#include <nd/quantization.h>
#include <nd/sorting.h>

enum { MOST = 4 };

typedef struct operands {
    nd_tensor *x, *row, *square, *sequence, *weights[4], *image[3], *leaf, *sum;
} operands;

typedef nd_status (*several)(const operands *o, nd_tensor **ret);

static nd_status split(const operands *o, nd_tensor **ret) {
    return nd_split(o->x, 4, (const int64_t[]){1, 1, 1, 1}, 0, ret);
}

static nd_status split_recorded(const operands *o, nd_tensor **ret) {
    return nd_split(o->leaf, 2, (const int64_t[]){1, 2}, 0, ret);
}

static nd_status unstack(const operands *o, nd_tensor **ret) {
    return nd_unstack(o->x, 0, ret);
}

static nd_status unstack_recorded(const operands *o, nd_tensor **ret) {
    return nd_unstack(o->leaf, 0, ret);
}

static nd_status broadcast(const operands *o, nd_tensor **ret) {
    return nd_broadcast_arrays(3, (const nd_tensor *const[]){o->x, o->row, o->x}, ret);
}

static nd_status meshgrid(const operands *o, nd_tensor **ret) {
    return nd_meshgrid(3, (const nd_tensor *const[]){o->row, o->row, o->row}, ND_INDEXING_IJ, ret);
}

static nd_status topk(const operands *o, nd_tensor **ret) {
    return nd_topk(o->x, 2, 1, true, &ret[0], &ret[1]);
}

static nd_status unique(const operands *o, nd_tensor **ret) {
    return nd_unique(o->x, &ret[0], &ret[1], &ret[2], &ret[3]);
}

static nd_status quantize(const operands *o, nd_tensor **ret) {
    return nd_quantize(o->square, 8, 2, ND_F32, &ret[0], &ret[1], &ret[2]);
}

static nd_status qr(const operands *o, nd_tensor **ret) {
    return nd_qr(o->square, &ret[0], &ret[1]);
}

static nd_status svd(const operands *o, nd_tensor **ret) {
    return nd_svd(o->square, &ret[0], &ret[1], &ret[2]);
}

static nd_status eigh(const operands *o, nd_tensor **ret) {
    return nd_eigh(o->square, &ret[0], &ret[1]);
}

static nd_status slogdet(const operands *o, nd_tensor **ret) {
    return nd_slogdet(o->square, &ret[0], &ret[1]);
}

static nd_status lstm(const operands *o, nd_tensor **ret) {
    return nd_lstm(o->sequence, NULL, NULL, 4, (const nd_tensor *const *)o->weights, NULL, &ret[0],
                   &ret[1], &ret[2]);
}

static nd_status pool1d(const operands *o, nd_tensor **ret) {
    nd_max_pool1d_options options = ND_MAX_POOL1D_OPTIONS_INIT;
    options.kernel = 2;
    return nd_max_pool1d_with_indices(o->image[0], &options, &ret[0], &ret[1]);
}

static nd_status grad(const operands *o, nd_tensor **ret) {
    return nd_grad(o->sum, 2, (const nd_tensor *const[]){o->leaf, o->square}, NULL, ret);
}

static const struct {
    const char *name;
    several run;
    size_t results;
} functions[] = {
    {"split", split, 4},
    {"split, recorded", split_recorded, 2},
    {"unstack", unstack, 4},
    {"unstack, recorded", unstack_recorded, 3},
    {"broadcast", broadcast, 3},
    {"meshgrid", meshgrid, 3},
    {"topk", topk, 2},
    {"unique", unique, 4},
    {"quantize", quantize, 3},
    {"qr", qr, 2},
    {"svd", svd, 3},
    {"eigh", eigh, 2},
    {"slogdet", slogdet, 2},
    {"lstm", lstm, 3},
    {"max_pool1d", pool1d, 2},
    {"grad", grad, 2},
};

static void begin(operands *o) {
    *o = (operands){
        .x = nd_randn(nd_key_new(1), ND_SHAPE(4, 50), ND_F32),
        .row = nd_ones(ND_SHAPE(50), ND_F32),
        .square = nd_eye(4, ND_F32),
        .sequence = nd_ones(ND_SHAPE(3, 1, 2), ND_F32),
        .weights = {nd_ones(ND_SHAPE(8, 2), ND_F32), nd_ones(ND_SHAPE(8, 2), ND_F32),
                    nd_ones(ND_SHAPE(8), ND_F32), nd_ones(ND_SHAPE(8), ND_F32)},
        .image = {nd_ones(ND_SHAPE(1, 1, 8), ND_F32)},
        .leaf = nd_ones(ND_SHAPE(3, 2), ND_F32),
    };
    assert_ok(nd_set_requires_grad(o->leaf, true));
    assert_ok(nd_set_requires_grad(o->square, true));
    nd_auto nd_tensor *one = nd_sum(o->leaf, 0, NULL, false), *other = nd_trace(o->square, 0);
    o->sum = nd_mul(one, other);
}

static void end(operands *o) {
    for (int i = 0; i < 4; i++)
        nd_release(o->weights[i]);
    nd_tensor *all[] = {o->x, o->row, o->square, o->sequence, o->image[0], o->leaf, o->sum};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        nd_release(all[i]);
}

static uint64_t allocations_left;

static bool fail_at_zero(size_t bytes) {
    (void)bytes;
    if (allocations_left == 0)
        return true;
    allocations_left--;
    return false;
}

/// With room for `room` objects, or so many allocations. True when it succeeded.
static bool attempt(size_t which, const operands *o, bool capped, uint64_t room) {
    static nd_tensor *const untouched = (nd_tensor *)(uintptr_t)0x1110;
    nd_tensor *ret[MOST] = {untouched, untouched, untouched, untouched};
    nd_auto nd_manager *manager = nd_manager_new(NULL, "several");
    nd_status status = ND_OK;
    nd_with_manager(manager) {
        if (capped)
            assert_ok(nd_manager_set_cap(manager, room + 1));
        allocations_left = room;
        nd__alloc_should_fail = capped ? NULL : fail_at_zero;
        status = functions[which].run(o, ret);
        nd__alloc_should_fail = NULL;
    }
    const size_t written = status == ND_OK ? functions[which].results : 0;
    for (size_t i = 0; i < MOST; i++) {
        if ((ret[i] != untouched) != (i < written))
            fail_msg("%s, room for %d: %s, and result %zu is %p", functions[which].name, (int)room,
                     nd_status_get_name(status), i, (void *)ret[i]);
        if (i < written)
            nd_release(ret[i]);
    }
    return status == ND_OK;
}

static void test_F44_several_results_are_written_or_none(void **state) {
    (void)state;
    operands o;
    begin(&o);
    for (size_t which = 0; which < COUNT_OF(functions); which++) {
        for (int capped = 0; capped < 2; capped++) {
            uint64_t refused = 0;
            while (!attempt(which, &o, capped, refused)) {
                assert_true(nd_error_get_status() == ND_ERROR_QUOTA ||
                            nd_error_get_status() == ND_ERROR_OUT_OF_MEMORY);
                nd_error_clear();
                assert_true(++refused < 5000);
            }
            assert_true(capped || refused > 0);
            nd_error_clear();
        }
    }
    end(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F44_several_results_are_written_or_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
