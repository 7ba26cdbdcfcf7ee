// The functions of floats against the math library's long doubles, in every instruction set that
// this machine has: errors in ulps over dense and random operands of every size, and what they give
// at the ends: zeros, infinities, NaN, subnormal numbers, the last numbers before overflow.
#include "tests/unit/kernels/ulps.h"

enum { N = 4096, ROUNDS = 4 };

static uint64_t state = UINT64_C(0x9E3779B97F4A7C15);
static uint64_t random_bits(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}
static double random_unit(void) {
    return (double)(random_bits() >> 11) * 0x1p-53;
}
static double with_random_sign(double x) {
    return random_bits() & 1 ? x : -x;
}

static const double specials[] = {
    0.0, INFINITY, NAN, 1.0, 0.5, 2.0, 3.0, 4.0, 5.0, 0.25, 1.5, 2.5, 1e-45, 1e-40, 1e-38, 1.2e-38,
    5e-324, 1e-310, 2.3e-308, 709.0, 709.782, 709.79, 710.0, 710.4758, 710.476, 745.13, 745.14,
    708.4, 88.0, 88.72, 88.73, 89.4, 89.5, 103.9, 103.98, 87.3, 3.4e38, 1.7e308, 1e30, 1e300,
    16777215., 16777216., 16777217., 0x1p52, 0x1p53, 9007199254740993., 50., 0.99999994, 1.0000001,
    131072.0, 131073.0, 524288.0, 524289.0, 1e22, 0.7853981633974483, 1.5707963267948966,
    3.141592653589793, 6.283185307179586,
    // where tan of f64 is off by 2.56
    0x1.76be6cee0b508p+17, -0x1.18c7a9c45f7b6p+9};

enum { SMALL, UNIT, HUNDREDS, THOUSANDS, ANY_EXPONENT, AROUND_ONE, ANGLES, SPECIAL, KINDS };

/// A value of a kind, as the dtype holds it.
static double value_of(int kind, nd_dtype dtype) {
    bool f32 = dtype == ND_F32;
    double x = 0;
    switch (kind) {
    case SMALL:
        x = with_random_sign(4 * random_unit());
        break;
    case UNIT:
        x = with_random_sign(random_unit());
        break;
    case HUNDREDS:
        x = with_random_sign(100 * random_unit());
        break;
    case THOUSANDS:
        x = with_random_sign(800 * random_unit());
        break;
    case ANY_EXPONENT: {
        int exponent = (int)(random_bits() % (f32 ? 277 : 2098)) - (f32 ? 149 : 1074);
        x = with_random_sign(ldexp(1 + random_unit(), exponent));
        break;
    }
    case AROUND_ONE:
        x = with_random_sign(1 +
                             with_random_sign(ldexp(random_unit(), -(int)(random_bits() % 40))));
        break;
    case ANGLES: { // next to multiples of pi / 2
        double n = (double)(random_bits() >> (random_bits() % 2 ? 52 : 40));
        x = with_random_sign(n * 1.5707963267948966);
        break;
    }
    default:
        x = with_random_sign(specials[random_bits() % COUNT_OF(specials)]);
    }
    return f32 ? (double)(float)x : x;
}

static double get(const void *data, nd_dtype dtype, int64_t i) {
    return dtype == ND_F32 ? (double)((const float *)data)[i] : ((const double *)data)[i];
}
static void set(void *data, nd_dtype dtype, int64_t i, double value) {
    if (dtype == ND_F32)
        ((float *)data)[i] = (float)value;
    else
        ((double *)data)[i] = value;
}

static void check_promise(const promise *promise, nd_dtype dtype, int a_kind, int b_kind) {
    static double a[N], b[N], out[N];
    for (int64_t i = 0; i < N; i++) {
        double value = value_of(a_kind, dtype);
        bool inside = !(value < promise->low || value > promise->high);
        set(a, dtype, i, inside ? value : 0.5);
        set(b, dtype, i, value_of(b_kind, dtype));
    }
    run_dense(promise->op, dtype, N, out, a, promise->two ? b : NULL);
    for (int64_t i = 0; i < N; i++) {
        double x = get(a, dtype, i), y = get(b, dtype, i), result = get(out, dtype, i);
        long double exact = promise->one ? promise->one(x) : promise->two(x, y);
        double error = ulps_between(result, exact, dtype);
        if (!(error <= bound_of(promise, dtype)))
            fail_msg("%s of %s: (%a, %a) gives %a, not %La: %g ulps (%s)", promise->name,
                     dtype == ND_F32 ? "f32" : "f64", x, y, result, exact, error, nd__cpu_isa());
    }
}

static void every_promise(void) {
    for (size_t p = 0; p < COUNT_OF(promises); p++)
        for (int round = 0; round < ROUNDS; round++)
            for (int kind = 0; kind < KINDS; kind++) {
                int other = kind == SPECIAL ? SPECIAL : (int)(random_bits() % SPECIAL);
                check_promise(&promises[p], ND_F32, kind, other);
                check_promise(&promises[p], ND_F64, kind, other);
            }
}

static void test_errors(void **unused) {
    (void)unused;
    on_each_isa(every_promise);
}

/// Powers by products and roots: as those of the math library, and its limits.
static void powers_by_products(void) {
    static const double powers[] = {2, 3, 0.5, -0.5, -1, -2, 1, 0, 4, -3, 2.3, INFINITY};
    static double a[N], out[N];
    for (int d = 0; d < 2; d++)
        for (size_t p = 0; p < COUNT_OF(powers); p++)
            for (int kind = 0; kind < KINDS; kind++) {
                nd_dtype dtype = d ? ND_F64 : ND_F32;
                for (int64_t i = 0; i < N; i++)
                    set(a, dtype, i, value_of(kind, dtype));
                nd_kernel_call call = {
                    .op = ND_OP_pow_scalar, .noperands = 2, .ndim = 1, .shape = {N}};
                call.operand[0] = (nd_operand){.data = out, .dtype = dtype, .strides = {1}};
                call.operand[1] = (nd_operand){.data = a, .dtype = dtype, .strides = {1}};
                call.attrs.f[0] = powers[p];
                assert_int_equal(nd__cpu_launch(&call), ND_OK);
                for (int64_t i = 0; i < N; i++) {
                    double power = d ? powers[p] : (double)(float)powers[p];
                    double x = get(a, dtype, i), result = get(out, dtype, i);
                    double error = ulps_between(result, powl(x, power), dtype);
                    if (!(error <= 2))
                        fail_msg("pow(%a, %g) of %s gives %a: %g ulps", x, power, d ? "f64" : "f32",
                                 result, error);
                }
            }
}

static void test_powers_by_products(void **unused) {
    (void)unused;
    on_each_isa(powers_by_products);
}

/// A function that computes a block of ordinary numbers in fewer steps gives each the bits that it has
/// beside a number that is none of them.
static void bits_beside_any(void) {
    static double x[N], alone[N], beside[N];
    for (size_t p = 0; p < COUNT_OF(promises); p++)
        for (int d = 0; d < 2 && promises[p].one; d++)
            for (int kind = 0; kind <= 2 * THOUSANDS + 1; kind++) { // half of them without signs
                const nd_dtype dtype = d ? ND_F64 : ND_F32;
                for (int64_t i = 0; i < N; i++) {
                    double value = fmin(fmax(value_of(kind / 2, dtype), -708), 708);
                    set(x, dtype, i, kind % 2 ? fabs(value) : value);
                }
                run_dense(promises[p].op, dtype, N, alone, x, NULL);
                for (int64_t i = 0; i < N; i += 50)
                    set(x, dtype, i, i % 100 ? INFINITY : NAN);
                run_dense(promises[p].op, dtype, N, beside, x, NULL);
                for (int64_t i = 0; i < N; i++) {
                    double a = get(alone, dtype, i), b = get(beside, dtype, i);
                    if (i % 50 && a == a && memcmp(&a, &b, sizeof a) != 0)
                        fail_msg("%s of %a: %a, and %a beside infinity", promises[p].name,
                                 get(x, dtype, i), a, b);
                }
            }
}

static void test_bits_do_not_depend_on_neighbours(void **unused) {
    (void)unused;
    on_each_isa(bits_beside_any);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_errors),
        ND_TEST(test_powers_by_products),
        ND_TEST(test_bits_do_not_depend_on_neighbours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
