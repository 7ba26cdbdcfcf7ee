// Kernels that find no working memory: the ladder is walked for it, and what has another way with less
// takes that only then. Requests for working memory go through here (linked with --wrap).
#include "kernels/cpu/cpu.h"
#include "tests/unit/ops/values.h"
#include <nd/autograd.h>
#include <nd/memory.h>
#include <nd/neural.h>
#include <stdatomic.h>

void *__real_nd__cpu_scratch(size_t bytes);
void *__wrap_nd__cpu_scratch(size_t bytes);

bool __real_nd__onednn_begin_code(void);
bool __wrap_nd__onednn_begin_code(void);

static _Atomic size_t refused_from = SIZE_MAX; ///< bytes
static atomic_bool no_code;                    ///< oneDNN finds no room for code
static _Atomic int refused, asked;

void *__wrap_nd__cpu_scratch(size_t bytes) {
    if (bytes < atomic_load(&refused_from))
        return __real_nd__cpu_scratch(bytes);
    atomic_fetch_add(&refused, 1);
    return NULL;
}

bool __wrap_nd__onednn_begin_code(void) {
    if (!atomic_load(&no_code))
        return __real_nd__onednn_begin_code();
    atomic_fetch_add(&refused, 1);
    return false;
}

static bool give_nothing(const nd_memory_pressure *pressure, void *data) {
    (void)pressure, (void)data;
    atomic_fetch_add(&asked, 1);
    return false;
}

static bool give_all(const nd_memory_pressure *pressure, void *data) {
    give_nothing(pressure, data);
    atomic_store(&refused_from, SIZE_MAX);
    atomic_store(&no_code, false);
    return true;
}

/// Requests from so many bytes on are refused, until the callback ends that.
static void refuse_from(size_t bytes, bool (*give_up)(const nd_memory_pressure *, void *)) {
    nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
    callback.give_up = give_up;
    assert_ok(nd_memory_set_callback(NULL, &callback));
    atomic_store(&refused, 0);
    atomic_store(&asked, 0);
    atomic_store(&refused_from, bytes);
}

static void refuse_nothing(void) {
    atomic_store(&refused_from, SIZE_MAX);
    atomic_store(&no_code, false);
    assert_ok(nd_memory_set_callback(NULL, NULL));
}

static double greatest_difference(const nd_tensor *a, const nd_tensor *b) {
    double greatest = 0;
    for (int64_t i = 0; i < nd_get_numel(a); i++)
        greatest = fmax(greatest, fabs(at_flat(a, i) - at_flat(b, i)));
    return greatest;
}

/// oneDNN brings its operands into other layouts, in megabytes of working memory; the library's own
/// loops take less, and add in another order.
static void test_convolutions_walk_the_ladder_before_another_way(void **state) {
    (void)state;
    nd_auto nd_tensor *x = random_dense(ND_SHAPE(8, 64, 56, 56), ND_F32, -1, 1);
    nd_auto nd_tensor *weight = random_dense(ND_SHAPE(64, 64, 1, 1), ND_F32, -1, 1);
    nd_auto nd_tensor *expected = nd_conv2d(x, weight, NULL, NULL);
    nd__cpu_use_onednn(false);
    nd_auto nd_tensor *otherwise = nd_conv2d(x, weight, NULL, NULL);
    nd__cpu_use_onednn(true);
    assert_handle(expected);
    assert_handle(otherwise);
    if (greatest_difference(expected, otherwise) == 0) {
        puts("SKIPPED: no oneDNN");
        return;
    }
    const size_t megabyte = (size_t)1 << 20;
    refuse_from(megabyte, give_all);
    nd_auto nd_tensor *found = nd_conv2d(x, weight, NULL, NULL);
    refuse_nothing();
    assert_handle(found);
    assert_int_equal(atomic_load(&asked), 1);
    assert_true(greatest_difference(expected, found) == 0);
    refuse_from(megabyte, give_nothing);
    nd_auto nd_tensor *spared = nd_conv2d(x, weight, NULL, NULL);
    refuse_nothing();
    assert_handle(spared);
    assert_int_equal(atomic_load(&asked), 1);
    assert_true(atomic_load(&refused) > 1);
    assert_true(greatest_difference(expected, spared) < 1e-4);
}

/// No room for the code that oneDNN generates for sizes that are new: what is done without it is not
/// remembered.
static void test_convolutions_walk_the_ladder_for_room_for_code(void **state) {
    (void)state;
    nd_auto nd_tensor *x = random_dense(ND_SHAPE(4, 48, 40, 40), ND_F32, -1, 1);
    nd_auto nd_tensor *weight = random_dense(ND_SHAPE(32, 48, 3, 3), ND_F32, -1, 1);
    refuse_from(SIZE_MAX, give_nothing);
    atomic_store(&no_code, true);
    nd_auto nd_tensor *spared = nd_conv2d(x, weight, NULL, NULL);
    refuse_nothing();
    assert_handle(spared);
    if (atomic_load(&refused) == 0) {
        puts("SKIPPED: no oneDNN");
        return;
    }
    assert_int_equal(atomic_load(&asked), 1);
    nd_auto nd_tensor *expected = nd_conv2d(x, weight, NULL, NULL);
    assert_handle(expected);
    double difference = greatest_difference(expected, spared);
    assert_true(difference > 0);
    assert_true(difference < 1e-4);
    nd_auto nd_tensor *wider = random_dense(ND_SHAPE(4, 48, 41, 40), ND_F32, -1, 1);
    refuse_from(SIZE_MAX, give_all);
    atomic_store(&no_code, true);
    nd_auto nd_tensor *found = nd_conv2d(wider, weight, NULL, NULL);
    refuse_nothing();
    assert_handle(found);
    assert_int_equal(atomic_load(&asked), 1);
    nd_auto nd_tensor *again = nd_conv2d(wider, weight, NULL, NULL);
    assert_handle(again);
    assert_true(greatest_difference(again, found) == 0);
}

/// Of a call whose first result is not wanted, and another operand not there.
static void test_sums_alone_walk_the_ladder(void **state) {
    (void)state;
    nd_auto nd_tensor *x = random_dense(ND_SHAPE(16, 32), ND_F32, -1, 1);
    nd_auto nd_tensor *bias = nd_zeros(ND_SHAPE(32), ND_F32);
    assert_ok(nd_set_requires_grad(bias, true));
    nd_auto nd_tensor *y = nd_layer_norm(x, NULL, bias, 1e-5, 1);
    nd_auto nd_tensor *sum = nd_sum(y, 2, (const int[]){0, 1}, false);
    const nd_tensor *inputs[] = {bias};
    nd_tensor *gradient = NULL;
    refuse_from(1, give_all);
    nd_status status = nd_grad(sum, 1, inputs, NULL, &gradient);
    refuse_nothing();
    assert_ok(status);
    assert_int_equal(atomic_load(&asked), 1);
    for (int64_t i = 0; i < 32; i++)
        assert_true(at_flat(gradient, i) == 16);
    nd_release(gradient);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_convolutions_walk_the_ladder_before_another_way),
        ND_TEST(test_convolutions_walk_the_ladder_for_room_for_code),
        ND_TEST(test_sums_alone_walk_the_ladder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
