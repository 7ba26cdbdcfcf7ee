// Remainders and floored quotients against C's fmod() and 128-bit integers, bit for bit, in every
// instruction set that the machine has: of operands whose quotients are next to a whole number, as
// large as the dtype allows, or none.
#include "kernels/cpu/cpu.h"
#include "tests/testing.h"
#include <math.h>
#include <string.h>

enum { N = 1000, ROUNDS = 60 };

static const char *const isas[] = {"baseline", "x86_64_v3", "x86_64_v4"};

static uint64_t random_word(void) {
    static uint64_t state = UINT64_C(0x9E3779B97F4A7C15);
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static void run(nd_op op, nd_dtype dtype, void *out, void *a, void *b) {
    nd_kernel_call call = {.op = op, .noperands = 3, .ndim = 1, .shape = {N}};
    void *data[] = {out, a, b};
    for (int i = 0; i < 3; i++)
        call.operand[i] = (nd_operand){.data = data[i], .dtype = dtype, .strides = {1}};
    assert_int_equal(nd__cpu_launch(&call), ND_OK);
}

/// Calls `check` for every instruction set and both operations.
static void in_every_set(void (*check)(nd_op op)) {
    for (size_t isa = 0; isa < sizeof isas / sizeof *isas; isa++) {
        if (!nd__cpu_use_isa(isas[isa]))
            continue;
        check(ND_OP_remainder);
        check(ND_OP_floor_divide);
    }
    nd__cpu_use_isa(NULL);
}

static const double special[] = {0.0, -0.0, 1.0,   -1.0,    (double)INFINITY, -(double)INFINITY,
                                 2.0, 3.0,  0.1,   -2.5,    (double)NAN,      1e15,
                                 1e5, -7.0, 1e300, -1e-310, 5e-324,           9007199254740993.0};

// kind 0: any bits; 1: quotients up to 1000; 2: multiples and their neighbours; 3: special values
// that leave a block's quotients small; 4: all special values.
#define FLOAT_CHECK(T, dtype, bits, FMOD, FLOOR, COPYSIGN, NEXT)                           \
    static T expected_##dtype(nd_op op, T a, T b) {                                        \
        T rest = FMOD(a, b), quotient = (a - rest) / b;                                    \
        bool apart = rest != (T)0 && (rest < (T)0) != (b < (T)0);                          \
        if (op == ND_OP_remainder)                                                         \
            return rest == (T)0 ? COPYSIGN((T)0, b) : apart ? rest + b : rest;             \
        if (b == (T)0)                                                                     \
            return a / b;                                                                  \
        quotient = apart ? quotient - (T)1 : quotient;                                     \
        if (quotient == (T)0)                                                              \
            return COPYSIGN((T)0, a / b);                                                  \
        T whole = FLOOR(quotient);                                                         \
        return quotient - whole > (T)0.5 ? whole + (T)1 : whole;                           \
    }                                                                                      \
    static void operands_##dtype(int kind, T *ret_a, T *ret_b) {                           \
        bits word_a = (bits)random_word(), word_b = (bits)random_word();                   \
        double part = (double)(int32_t)random_word() * 0x1p-31;                            \
        memcpy(ret_a, &word_a, sizeof word_a);                                             \
        memcpy(ret_b, &word_b, sizeof word_b);                                             \
        if (kind == 1 || kind == 2)                                                        \
            *ret_b = (T)((double)(int32_t)random_word() * 1e-8);                           \
        if (kind == 1)                                                                     \
            *ret_a = (T)(part * 1000.0 * (double)*ret_b);                                  \
        if (kind == 2)                                                                     \
            *ret_a = *ret_b * (T)(int)(part * 100000.0);                                   \
        if (kind == 2 && random_word() % 2)                                                \
            *ret_a = NEXT(*ret_a, random_word() % 2 ? (T)INFINITY : -(T)INFINITY);         \
        size_t most = kind == 3 ? 11 : sizeof special / sizeof *special;                   \
        if (kind >= 3) {                                                                   \
            *ret_a = (T)special[random_word() % most];                                     \
            *ret_b = (T)special[random_word() % most];                                     \
        }                                                                                  \
    }                                                                                      \
    static void check_##dtype(nd_op op) {                                                  \
        static T a[N], b[N], out[N];                                                       \
        for (int round = 0; round < ROUNDS; round++) {                                     \
            for (int i = 0; i < N; i++)                                                    \
                operands_##dtype(round % 5, &a[i], &b[i]);                                 \
            run(op, dtype, out, a, b);                                                     \
            for (int i = 0; i < N; i++) {                                                  \
                T expected = expected_##dtype(op, a[i], b[i]);                             \
                if (memcmp(&expected, &out[i], sizeof expected) != 0 &&                    \
                    (expected == expected || out[i] == out[i]))                            \
                    fail_msg("%s: operation %d of %a and %a is %a, not %a", nd__cpu_isa(), \
                             (int)op, (double)a[i], (double)b[i], (double)out[i],          \
                             (double)expected);                                            \
            }                                                                              \
        }                                                                                  \
    }
FLOAT_CHECK(float, ND_F32, uint32_t, fmodf, floorf, copysignf, nextafterf)
FLOAT_CHECK(double, ND_F64, uint64_t, fmod, floor, copysign, nextafter)

static void test_floats_have_the_remainder_of_fmod(void **state) {
    (void)state;
    in_every_set(check_ND_F32);
    in_every_set(check_ND_F64);
}

// Numbers of every length, 0 and -1 among them and the smallest one; in a third of the rounds none
// is above 2^50.
#define INTEGER_CHECK(T, dtype)                                                                   \
    static T number_##dtype(int round) {                                                          \
        uint64_t word = random_word() >> (random_word() % 64);                                    \
        if (random_word() % 20 == 0)                                                              \
            return (T)(random_word() % 3 - 1);                                                    \
        if (random_word() % 40 == 0 && round % 3)                                                 \
            return (T)((uint64_t)1 << (8 * sizeof(T) - 1));                                       \
        word = round % 3 == 0 && sizeof(T) == 8 ? word >> 14 : word;                              \
        bool negative = random_word() % 2 && (round % 3 || (T)-1 < (T)1);                         \
        return (T)(negative ? 0 - word : word);                                                   \
    }                                                                                             \
    static void check_##dtype(nd_op op) {                                                         \
        static T a[N], b[N], out[N];                                                              \
        for (int round = 0; round < ROUNDS; round++) {                                            \
            for (int i = 0; i < N; i++) {                                                         \
                a[i] = number_##dtype(round);                                                     \
                b[i] = number_##dtype(round);                                                     \
            }                                                                                     \
            run(op, dtype, out, a, b);                                                            \
            for (int i = 0; i < N; i++) {                                                         \
                __int128 quotient = 0, rest = 0;                                                  \
                if (b[i] != 0) {                                                                  \
                    quotient = (__int128)a[i] / b[i];                                             \
                    rest = (__int128)a[i] % b[i];                                                 \
                }                                                                                 \
                if (rest != 0 && (rest < 0) != ((__int128)b[i] < 0)) {                            \
                    quotient--;                                                                   \
                    rest += b[i];                                                                 \
                }                                                                                 \
                if (out[i] != (T)(op == ND_OP_remainder ? rest : quotient))                       \
                    fail_msg("%s: operation %d of %lld and %lld is %lld", nd__cpu_isa(), (int)op, \
                             (long long)a[i], (long long)b[i], (long long)out[i]);                \
            }                                                                                     \
        }                                                                                         \
    }
INTEGER_CHECK(uint8_t, ND_U8)
INTEGER_CHECK(int8_t, ND_I8)
INTEGER_CHECK(uint16_t, ND_U16)
INTEGER_CHECK(int16_t, ND_I16)
INTEGER_CHECK(uint32_t, ND_U32)
INTEGER_CHECK(int32_t, ND_I32)
INTEGER_CHECK(uint64_t, ND_U64)
INTEGER_CHECK(int64_t, ND_I64)

static void test_integers_are_divided_exactly(void **state) {
    (void)state;
    in_every_set(check_ND_U8);
    in_every_set(check_ND_I8);
    in_every_set(check_ND_U16);
    in_every_set(check_ND_I16);
    in_every_set(check_ND_U32);
    in_every_set(check_ND_I32);
    in_every_set(check_ND_U64);
    in_every_set(check_ND_I64);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_floats_have_the_remainder_of_fmod),
        ND_TEST(test_integers_are_divided_exactly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
