// Attention by cuDNN, where it is found and has a plan, beside that of the CPU: results, and gradients by
// ndarc's own kernels from what cuDNN leaves for them; and who made the results.
//
// tests/cudart/planted/ holds bugs that this test must notice.
#include "tests/cudart/graphs.h"
#include <math.h>
#include <nd/autograd.h>
#include <nd/neural.h>

enum { RESULTS = 4, INPUTS = 3 }; ///< the result, and the gradients of query, key and value

/// How rows lie: behind those of the same head, or of all heads; or the last axis with gaps, of which
/// nd_attention() makes a copy.
typedef enum layout { BY_HEADS, BY_ROWS, WITH_GAPS } layout;

typedef struct sizes {
    int64_t batch, heads, key_heads, queries, keys, length, value_length;
    layout layout;
    bool by_cudnn;
} sizes;

static const sizes all_sizes[] = {
    {2, 3, 3, 64, 64, 32, 32, BY_HEADS, true},
    {2, 3, 3, 70, 50, 8, 40, BY_ROWS, true},
    {1, 4, 4, 65, 90, 64, 64, BY_ROWS, true},
    {2, 4, 2, 64, 33, 16, 16, BY_HEADS, true}, // heads that share keys
    {2, 4, 2, 80, 33, 16, 24, BY_ROWS, true},
    {3, 4, 1, 64, 20, 16, 16, BY_ROWS, true},
    {1, 1, 1, 64, 1, 8, 8, BY_HEADS, true},
    {2, 2, 2, 64, 30, 16, 16, WITH_GAPS, true},
    {2, 2, 2, 63, 64, 16, 16, BY_HEADS, false}, // few queries
    {2, 2, 2, 64, 64, 12, 12, BY_HEADS, false}, // rows that begin between multiples of 16 bytes
};
enum { ALL_SIZES = sizeof all_sizes / sizeof *all_sizes, SOME_SIZES = 1 };

/// Random, [batch, heads, rows, length], written in the order of the layout.
static nd_tensor *draw(uint64_t seed, int64_t batch, int64_t heads, int64_t rows, int64_t length,
                       layout layout, nd_dtype dtype, nd_device device) {
    const int64_t by_heads[] = {batch, heads, rows, length};
    const int64_t by_rows[] = {batch, rows, heads, length};
    const int64_t with_gaps[] = {batch, heads, length, rows};
    const int64_t *shape = layout == BY_HEADS ? by_heads : layout == BY_ROWS ? by_rows : with_gaps;
    nd_auto nd_tensor *drawn = nd_randn(nd_key_new(seed), 4, shape, ND_F64);
    nd_auto nd_tensor *narrow = nd_cast(drawn, dtype), *there = nd_to(narrow, device);
    nd_tensor *x = layout == BY_HEADS  ? nd_retain(there)
                   : layout == BY_ROWS ? nd_transpose(there, 1, 2)
                                       : nd_transpose(there, 2, 3);
    assert_ok(nd_set_requires_grad(x, true));
    return x;
}

static void draw_inputs(const sizes *s, nd_dtype dtype, nd_device device, nd_tensor **ret_inputs) {
    ret_inputs[0] = draw(1, s->batch, s->heads, s->queries, s->length, s->layout, dtype, device);
    ret_inputs[1] = draw(2, s->batch, s->key_heads, s->keys, s->length, s->layout, dtype, device);
    ret_inputs[2] =
        draw(3, s->batch, s->key_heads, s->keys, s->value_length, s->layout, dtype, device);
}

/// Attention of the inputs, and the gradients of the sum of its cubes.
static void attend(nd_tensor *const *inputs, bool causal, nd_tensor **ret_results) {
    nd_attention_options options = ND_ATTENTION_OPTIONS_INIT;
    options.causal = causal;
    ret_results[0] = nd_attention(inputs[0], inputs[1], inputs[2], NULL, &options);
    assert_handle(ret_results[0]);
    nd_auto nd_tensor *square = nd_square(ret_results[0]);
    nd_auto nd_tensor *cube = nd_mul(square, ret_results[0]);
    nd_auto nd_tensor *sum = nd_sum(cube, 0, NULL, false);
    assert_ok(nd_grad(sum, INPUTS, (const nd_tensor *const *)inputs, NULL, ret_results + 1));
}

/// The largest difference beside the largest element, or beside 1 where that is less.
static double distance(const nd_tensor *there, const nd_tensor *here) {
    nd_auto nd_tensor *near = nd_to(there, cpu), *a = nd_cast(near, ND_F64);
    nd_auto nd_tensor *b = nd_cast(here, ND_F64), *apart = nd_sub(a, b);
    nd_auto nd_tensor *off = nd_abs(apart), *size = nd_abs(b);
    nd_auto nd_tensor *most = nd_max(off, 0, NULL, false), *scale = nd_max(size, 0, NULL, false);
    assert_handle(most);
    return nd_get_item(most) / fmax(nd_get_item(scale), 1);
}

static void release_all(nd_tensor **tensors, int count) {
    for (int i = 0; i < count; i++)
        nd_release(tensors[i]);
}

/// How many pieces of work libraries have done so far.
static uint64_t library_work(void) {
    assert_ok(nd_synchronize(cuda(0)));
    return statistics().libraries;
}

static uint64_t launched(nd_graph *graph) {
    const uint64_t before = library_work();
    assert_ok(nd_graph_launch(graph));
    return library_work() - before;
}

/// Beside the CPU's of the same numbers in f64.
static void check(const sizes *s, nd_dtype dtype, bool causal, bool by_cudnn) {
    nd_tensor *there[INPUTS], *here[INPUTS], *got[RESULTS], *expected[RESULTS];
    draw_inputs(s, dtype, cuda(0), there);
    for (int i = 0; i < INPUTS; i++) {
        nd_auto nd_tensor *near = nd_to(there[i], cpu), *bare = nd_detach(near);
        here[i] = nd_cast(bare, ND_F64);
        assert_ok(nd_set_requires_grad(here[i], true));
    }
    const uint64_t before = library_work();
    nd_attention_options options = ND_ATTENTION_OPTIONS_INIT;
    options.causal = causal;
    nd_release(nd_attention(there[0], there[1], there[2], NULL, &options));
    if (library_work() - before != by_cudnn)
        fail_msg("sizes %d, dtype %d, causal %d: %d pieces of work by cuDNN", (int)(s - all_sizes),
                 (int)dtype, causal, (int)(library_work() - before));
    attend(there, causal, got);
    attend(here, causal, expected);
    const double bound = dtype == ND_F16 ? 0.01 : dtype == ND_BF16 ? 0.08 : 1e-4;
    for (int i = 0; i < RESULTS; i++)
        if (!(distance(got[i], expected[i]) <= bound))
            fail_msg("sizes %d, dtype %d, causal %d, result %d: off by %g", (int)(s - all_sizes),
                     (int)dtype, causal, i, distance(got[i], expected[i]));
    release_all(there, INPUTS);
    release_all(here, INPUTS);
    release_all(got, RESULTS);
    release_all(expected, RESULTS);
}

/// Of the first `count` sizes.
static void check_all(int count, bool with_cudnn) {
    for (int i = 0; i < count; i++)
        for (int causal = 0; causal < 2; causal++) {
            check(&all_sizes[i], ND_F16, causal, with_cudnn && all_sizes[i].by_cudnn);
            check(&all_sizes[i], ND_BF16, causal, with_cudnn && all_sizes[i].by_cudnn);
        }
    assert_nothing_left_on_devices();
}

static void test_attention_by_cudnn(void **state) {
    (void)state;
    check_all(ALL_SIZES, true);
    check_all(SOME_SIZES, true); // with plans that are there
}

/// Another dtype, a mask, dropout: ndarc's own.
static void test_what_is_not_cudnns(void **state) {
    (void)state;
    check(&all_sizes[0], ND_F32, false, false);
    check(&all_sizes[0], ND_F64, true, false);
    nd_tensor *inputs[INPUTS];
    draw_inputs(&all_sizes[0], ND_F16, cuda(0), inputs);
    nd_attention_options options = ND_ATTENTION_OPTIONS_INIT;
    nd_auto nd_tensor *seen = nd_ones(ND_SHAPE(64, 64), ND_BOOL), *mask = nd_to(seen, cuda(0));
    uint64_t before = library_work();
    nd_release(nd_attention(inputs[0], inputs[1], inputs[2], mask, &options));
    assert_int_equal(library_work(), before);
    release_all(inputs, INPUTS);
}

static int attend_without(void) {
    check_all(SOME_SIZES, false);
    return 0;
}

static int attend_with(void) {
    check_all(SOME_SIZES, true);
    return 0;
}

/// Where it is missing, old, cannot begin or refuses at any step, ndarc's own kernels serve.
static void test_attention_without_cudnn(void **state) {
    (void)state;
    static const char *const cases[][3] = {
        {"ND_CUDNN", "/nonexistent/libcudnn.so", "attend_without"},
        {"ND_CUDNN", "libm.so.6", "attend_without"},
        {"ND_CUDART_CUDNN", "1001", "attend_without"}, // no handle
        {"ND_CUDART_CUDNN", "100", "attend_without"},  // no heuristic
        {"ND_CUDART_CUDNN", "101", "attend_without"},  // no plan
        {"ND_CUDART_CUDNN", "102", "attend_without"},  // plans that want too much
        {"ND_CUDART_CUDNN", "103", "attend_without"},  // running refuses
        {"ND_CUDART_CUDNN", "105", "attend_without"},  // 9.19
        {"ND_CUDART_CUDNN", "106", "attend_without"},  // no deterministic engine
        {"ND_CUDART_CUDNN", "0", "attend_with"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_succeeds_with(cases[i][2], cases[i][0], cases[i][1]);
}

/// A plan whose working memory is not there gives way; later ones do not.
static void test_no_working_memory(void **state) {
    (void)state;
    setenv("ND_CUDART_MEMORY", "100000000", 1);
    assert_succeeds_with("attend_without", "ND_CUDART_CUDNN", "104");
    unsetenv("ND_CUDART_MEMORY");
}

/// Plans are kept to a number; sizes that come later are ndarc's own, and those with a plan stay
/// cuDNN's.
static int use_up_plans(void) {
    sizes s = all_sizes[0];
    int by_cudnn = 0;
    for (int i = 0; i < 150; i++) {
        nd_tensor *inputs[INPUTS];
        s.keys = 1 + i;
        draw_inputs(&s, ND_F16, cuda(0), inputs);
        const uint64_t before = library_work();
        nd_release(nd_attention(inputs[0], inputs[1], inputs[2], NULL, NULL));
        by_cudnn += (int)(library_work() - before);
        release_all(inputs, INPUTS);
    }
    s.keys = 1;
    check(&s, ND_F16, false, true);
    s.keys = 150;
    check(&s, ND_F16, false, false);
    assert_int_equal(by_cudnn, 128);
    return 0;
}

static void test_plans_are_bounded(void **state) {
    (void)state;
    assert_succeeds("use_up_plans");
}

/// In a graph: cuDNN's bits, which are those of the eager call; sizes without a plan are ndarc's own.
static void test_attention_is_captured(void **state) {
    (void)state;
    nd_tensor *inputs[INPUTS], *got[RESULTS] = {NULL}, *eager[RESULTS] = {NULL};
    nd_graph *graph = NULL;
    draw_inputs(&all_sizes[1], ND_BF16, cuda(0), inputs);
    attend(inputs, true, eager); // the plan is made outside
    nd_with_capture(cuda(0), &graph) attend(inputs, true, got);
    assert_handle(graph);
    assert_int_equal(launched(graph), 1);
    for (int i = 0; i < RESULTS; i++) {
        nd_auto nd_tensor *near = nd_to(eager[i], cpu);
        assert_true(distance(got[i], near) == 0);
    }
    release_all(inputs, INPUTS);
    release_all(got, RESULTS);
    release_all(eager, RESULTS);
    nd_release(nd_steal(&graph));
    sizes fresh = all_sizes[0];
    fresh.keys = 200;
    draw_inputs(&fresh, ND_BF16, cuda(0), inputs);
    nd_with_capture(cuda(0), &graph) got[0] =
        nd_attention(inputs[0], inputs[1], inputs[2], NULL, NULL);
    assert_handle(graph);
    assert_int_equal(launched(graph), 0);
    nd_release(got[0]);
    nd_release(graph);
    release_all(inputs, INPUTS);
    check(&fresh, ND_BF16, false, true);
    assert_nothing_left_on_devices();
}

int main(int argc, char **argv) {
    static const role roles[] = {{"attend_without", attend_without},
                                 {"attend_with", attend_with},
                                 {"use_up_plans", use_up_plans},
                                 {NULL, NULL}};
    int status;
    if (role_asked(roles, argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_attention_by_cudnn),      ND_TEST(test_what_is_not_cudnns),
        ND_TEST(test_attention_without_cudnn), ND_TEST(test_no_working_memory),
        ND_TEST(test_plans_are_bounded),       ND_TEST(test_attention_is_captured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
