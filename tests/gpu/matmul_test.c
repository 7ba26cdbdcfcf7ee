// Random products on CUDA beside sums in f64: of every float, of 32-bit integers and of bytes; of sizes
// around those of tiles and of many tiles; of operands that lie in any order, in rows with gaps, from any
// place on, and repeated; with a bias and an activation; captured before any like them was done.
//
// With `ND_CUBLAS=/nonexistent` the same is asked of ndarc's own kernels. `ND_MATMUL_SEED` draws others.
#include "tests/gpu/gpu.h"
#include <math.h>
#include <nd/graph.h>

#ifdef ON_FAKE_RUNTIME
enum { PROGRAMS = 40, SIZES = 14 };
#else
enum { PROGRAMS = 400, SIZES = 18 };
#endif

typedef enum order { STRAIGHT, TURNED, ORDERS } order;
typedef enum kind { MATMUL, LINEAR, LINEAR_RELU, INTEGER, KINDS } kind;

typedef struct program {
    kind kind;
    nd_dtype dtype, other; ///< the second is of b, where bytes are multiplied
    int64_t batch, m, n, k;
    order a_order, b_order;
    int64_t a_gap, b_gap; ///< elements between rows, in front of the first one too
    bool a_repeated, zero_points;
    uint64_t seed;
} program;

static uint64_t random_state = 11;
static int64_t pick(int64_t n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((random_state >> 33) % (uint64_t)n);
}

// -------------------------------------------------------------------------------------------------
// programs

static bool is_floating(nd_dtype dtype) {
    return nd_dtype_get_kind(dtype) == ND_KIND_FLOAT;
}

static int64_t random_size(void) {
    static const int64_t around[] = {1,   8,   56,  63,  64,  65,  120,  127,  128,
                                     129, 136, 200, 256, 264, 512, 1000, 1536, 2048};
    return pick(4) ? around[pick(SIZES)] : 1 + pick(200);
}

static program random_program(void) {
    static const nd_dtype dtypes[] = {ND_F16, ND_BF16, ND_F16, ND_BF16, ND_F32, ND_F64, ND_I32};
    program p = {.kind = (kind)pick(KINDS), .dtype = dtypes[pick(7)]};
    if (p.kind == INTEGER) {
        p.dtype = pick(2) ? ND_I8 : ND_U8;
        p.zero_points = pick(2);
        p.other = pick(2) ? ND_I8 : ND_U8;
    } else {
        p.other = p.dtype;
        if (p.dtype == ND_I32)
            p.kind = MATMUL;
    }
    p.m = random_size(), p.n = random_size(), p.k = random_size();
    if (p.m * p.n < 10000 && pick(3) == 0)
        p.k += 8 * pick(200); // long enough for parts
    const bool linear = p.kind == LINEAR || p.kind == LINEAR_RELU;
    p.batch = p.m * p.n * p.k > 1 << 24 || pick(3) ? 1 : 1 + pick(3);
    p.a_order = (order)pick(ORDERS);
    p.b_order = linear ? TURNED : (order)pick(ORDERS);
    static const int64_t gaps[] = {0, 0, 8, 8, 1, 16};
    p.a_gap = gaps[pick(6)], p.b_gap = gaps[pick(6)];
    p.a_repeated = !linear && pick(5) == 0;
    p.seed = (uint64_t)pick(1 << 30);
    return p;
}

static void describe(const program *p, char *text, size_t size) {
    static const char *const names[] = {"matmul", "linear", "linear and relu", "matmul_integer"};
    snprintf(
        text, size,
        "%s of %s and %s, %lld x [%lld, %lld] x [%lld, %lld], %s%s and %s, gaps %lld and %lld%s",
        names[p->kind], nd_dtype_get_name(p->dtype), nd_dtype_get_name(p->other),
        (long long)p->batch, (long long)p->m, (long long)p->k, (long long)p->k, (long long)p->n,
        p->a_order == TURNED ? "turned" : "straight", p->a_repeated ? ", repeated" : "",
        p->b_order == TURNED ? "turned" : "straight", (long long)p->a_gap, (long long)p->b_gap,
        p->zero_points ? ", zero points" : "");
}

/// [batch, rows, columns] of small numbers that 8 bits and bf16 hold exactly, on `device`: turned, a view
/// of [batch, columns, rows]; with a gap, of longer rows.
static nd_tensor *make_operand(const program *p, uint64_t stream, nd_dtype dtype, int64_t batch,
                               int64_t rows, int64_t columns, order order, int64_t gap,
                               nd_device device) {
    const int64_t height = order == TURNED ? columns : rows;
    const int64_t width = order == TURNED ? rows : columns;
    nd_auto nd_tensor *numbers = nd_randint((nd_key){p->seed, stream}, dtype == ND_U8 ? 0 : -100,
                                            100, ND_SHAPE(batch, height, width + gap), ND_I32);
    const bool is_float = is_floating(dtype);
    nd_auto nd_tensor *wide = nd_cast(numbers, ND_F64);
    nd_auto nd_tensor *scaled = is_float ? nd_mul_scalar(wide, 1.0 / 64) : nd_retain(wide);
    nd_auto nd_tensor *cast = nd_cast(scaled, dtype);
    nd_auto nd_tensor *there = nd_to(cast, device);
    nd_auto nd_tensor *rows_of = nd_slice(there, gap, width + gap, 1, 2);
    return order == TURNED ? nd_transpose(rows_of, 1, 2) : nd_retain(rows_of);
}

typedef struct operands {
    nd_tensor *a, *b, *bias, *a_zero, *b_zero;
} operands;

static operands make_operands(const program *p, nd_device device) {
    const bool linear = p->kind == LINEAR || p->kind == LINEAR_RELU;
    operands in = {.b = make_operand(p, 2, p->other, linear ? 1 : p->batch, p->k, p->n, p->b_order,
                                     p->b_gap, device)};
    nd_auto nd_tensor *a = make_operand(p, 1, p->dtype, p->a_repeated ? 1 : p->batch, p->m, p->k,
                                        p->a_order, p->a_gap, device);
    in.a = p->a_repeated ? nd_expand(a, ND_SHAPE(p->batch, p->m, p->k)) : nd_retain(a);
    if (linear) {
        nd_auto nd_tensor *row =
            make_operand(p, 3, p->dtype, 1, 1, p->n, STRAIGHT, p->b_gap, device);
        in.bias = nd_reshape(row, ND_SHAPE(p->n));
    }
    if (p->zero_points) {
        in.a_zero = make_operand(p, 4, p->dtype, 1, p->m, 1, STRAIGHT, 0, device);
        in.b_zero = make_operand(p, 5, p->other, 1, 1, p->n, STRAIGHT, 0, device);
    }
    assert_handle(in.a);
    assert_handle(in.b);
    return in;
}

static void release_operands(operands *in) {
    nd_release(in->a);
    nd_release(in->b);
    nd_release(in->bias);
    nd_release(in->a_zero);
    nd_release(in->b_zero);
}

static nd_tensor *run(const program *p, const operands *in) {
    if (p->kind == MATMUL)
        return nd_matmul(in->a, in->b);
    if (p->kind == INTEGER)
        return nd_matmul_integer(in->a, in->b, in->a_zero, in->b_zero);
    nd_auto nd_tensor *lines = nd_transpose(in->b, 1, 2);
    nd_auto nd_tensor *weight = nd_reshape(lines, ND_SHAPE(p->n, p->k));
    return p->kind == LINEAR ? nd_linear(in->a, weight, in->bias)
                             : nd_linear_activation(in->a, weight, in->bias, ND_ACTIVATION_RELU);
}

// -------------------------------------------------------------------------------------------------
// what it must be

/// x as f64, less its zero points where there are some.
static nd_tensor *number_of(const nd_tensor *x, const nd_tensor *zero) {
    nd_auto nd_tensor *wide = nd_cast(x, ND_F64);
    if (!zero)
        return nd_retain(wide);
    nd_auto nd_tensor *shift = nd_cast(zero, ND_F64);
    return nd_sub(wide, shift);
}

/// In f64, by the CPU, of operands that are there: the product and the sums of its terms' sizes.
static void expect(const program *p, nd_tensor **ret_sums, nd_tensor **ret_sizes) {
    operands in = make_operands(p, (nd_device){ND_CPU, 0});
    nd_auto nd_tensor *a = number_of(in.a, in.a_zero);
    nd_auto nd_tensor *b = number_of(in.b, in.b_zero);
    nd_auto nd_tensor *abs_a = nd_abs(a);
    nd_auto nd_tensor *abs_b = nd_abs(b);
    nd_auto nd_tensor *product = nd_matmul(a, b);
    nd_auto nd_tensor *bias = in.bias ? nd_cast(in.bias, ND_F64) : nd_scalar(0, ND_F64);
    nd_auto nd_tensor *sums = nd_add(product, bias);
    *ret_sums = p->kind == LINEAR_RELU ? nd_relu(sums) : nd_retain(sums);
    *ret_sizes = nd_matmul(abs_a, abs_b);
    assert_handle(*ret_sums);
    assert_handle(*ret_sizes);
    release_operands(&in);
}

/// A sum may be off by `slack` of its terms' sizes, and is rounded to the result's dtype.
static void assert_is(const char *what, const nd_tensor *y, const nd_tensor *sums,
                      const nd_tensor *sizes, double slack) {
    assert_int_equal(nd_get_numel(y), nd_get_numel(sums));
    const nd_dtype dtype = nd_get_dtype(y);
    const double unit = dtype == ND_F16    ? 0x1p-11
                        : dtype == ND_BF16 ? 0x1p-8
                        : dtype == ND_F32  ? 0x1p-24
                                           : 0;
    double *found = doubles_of(y), *sum = doubles_of(sums), *size = doubles_of(sizes);
    for (int64_t i = 0; i < nd_get_numel(y); i++)
        if (!(fabs(found[i] - sum[i]) <= slack * (size[i] + 1) + 1.01 * unit * fabs(sum[i])))
            fail_msg("%s: element %lld of %lld is %.9g and must be %.9g", what, (long long)i,
                     (long long)nd_get_numel(y), found[i], sum[i]);
    free(found);
    free(sum);
    free(size);
}

static double slack_of(nd_dtype dtype) {
    return !is_floating(dtype) ? 0 : dtype == ND_F64 ? 0x1p-48 : 0x1p-20;
}

/// Once as it is and, if `captured`, in a graph, of which a launch must give the same bits.
static void compare(const program *p, bool captured) {
    char text[256];
    describe(p, text, sizeof text);
    nd_auto nd_tensor *sums = NULL;
    nd_auto nd_tensor *sizes = NULL;
    expect(p, &sums, &sizes);
    operands in = make_operands(p, CUDA_DEVICE);
    nd_tensor *y = NULL;
    nd_graph *graph = NULL;
    if (captured) {
        assert_ok(nd_capture_begin(CUDA_DEVICE));
        y = run(p, &in);
        graph = nd_capture_end();
        if (!graph)
            fail_msg("%s: captured, %s", text, nd_error_get_message());
        assert_ok(nd_graph_launch(graph));
    } else {
        y = run(p, &in);
    }
    if (!y)
        fail_msg("%s: %s", text, nd_error_get_message());
    assert_is(text, y, sums, sizes, slack_of(p->dtype));
    nd_release(y);
    nd_release(graph);
    release_operands(&in);
}

// -------------------------------------------------------------------------------------------------
// tests

static bool captures(void) {
    const bool can = nd_capture_begin(CUDA_DEVICE) == ND_OK;
    if (can)
        nd_release(nd_capture_end());
    nd_error_clear();
    return can;
}

/// The first products of this process, so what a kernel wants of the device is asked for in the capture.
static void test_first_products_are_captured(void **state) {
    (void)state;
    if (!captures())
        return; // the emulated device has no graphs
    static const nd_dtype dtypes[] = {ND_F16, ND_BF16, ND_F32, ND_F64};
    for (int i = 0; i < 4; i++) {
        program p = {.kind = MATMUL, .dtype = dtypes[i], .other = dtypes[i], .batch = 1};
        p.m = p.n = SIZES > 14 ? 2048 : 264;
        p.k = 256;
        compare(&p, true);
        p.kind = LINEAR_RELU;
        p.b_order = TURNED;
        compare(&p, true);
    }
    program bytes = {.kind = INTEGER, .dtype = ND_I8, .other = ND_I8, .batch = 1};
    bytes.m = bytes.n = bytes.k = 256;
    compare(&bytes, true);
}

static void test_random_products(void **state) {
    (void)state;
    const char *seed = getenv("ND_MATMUL_SEED");
    if (seed)
        random_state = strtoull(seed, NULL, 10);
    const bool can_capture = captures();
    for (int i = 0; i < PROGRAMS; i++) {
        program p = random_program();
        compare(&p, can_capture && i % 5 == 0);
    }
}

/// f32 may lose 13 of its bits after nd_set_tf32(true), and no longer does after false.
static void test_tf32_is_a_choice(void **state) {
    (void)state;
    const bool before = nd_is_tf32();
    for (int round = 0; round < 3; round++) {
        const bool allowed = round == 1;
        nd_set_tf32(allowed);
        const int64_t n = SIZES > 14 ? 1024 : 72;
        nd_auto nd_tensor *a = nd_randn(nd_key_new(5), ND_SHAPE(n, n), ND_F32);
        nd_auto nd_tensor *b = nd_randn(nd_key_new(6), ND_SHAPE(n, n), ND_F32);
        nd_auto nd_tensor *a_there = nd_to(a, CUDA_DEVICE);
        nd_auto nd_tensor *b_there = nd_to(b, CUDA_DEVICE);
        nd_auto nd_tensor *y = nd_matmul(a_there, b_there);
        assert_handle(y);
        nd_auto nd_tensor *wide_a = nd_cast(a, ND_F64);
        nd_auto nd_tensor *wide_b = nd_cast(b, ND_F64);
        nd_auto nd_tensor *sums = nd_matmul(wide_a, wide_b);
        nd_auto nd_tensor *abs_a = nd_abs(wide_a);
        nd_auto nd_tensor *abs_b = nd_abs(wide_b);
        nd_auto nd_tensor *sizes = nd_matmul(abs_a, abs_b);
        assert_is(allowed ? "TF32 allowed" : "TF32 not allowed", y, sums, sizes,
                  allowed ? 0x1p-10 : 0x1p-20);
    }
    nd_set_tf32(before);
}

int main(void) {
    int answer = 0;
    if (!gpu_present(&answer))
        return answer;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_first_products_are_captured),
        ND_TEST(test_random_products),
        ND_TEST(test_tf32_is_a_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
