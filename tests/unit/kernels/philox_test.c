// The generator against the published known-answer vectors, and how its words become elements.
#include "kernels/cpu/cpu.h"
#include "kernels/philox.h"
#include "tests/testing.h"
#include <math.h>

static void check_vector(const uint32_t counter[4], const uint32_t key[2],
                         const uint32_t expected[4]) {
    nd__philox_block block = {{counter[0], counter[1], counter[2], counter[3]}};
    block = nd__philox(block, key[0], key[1]);
    for (int i = 0; i < 4; i++)
        assert_int_equal(block.word[i], expected[i]);
}

static void test_known_answers(void **state) {
    (void)state;
    check_vector((uint32_t[]){0, 0, 0, 0}, (uint32_t[]){0, 0},
                 (uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    check_vector((uint32_t[]){0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                 (uint32_t[]){0xffffffff, 0xffffffff},
                 (uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    check_vector((uint32_t[]){0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                 (uint32_t[]){0xa4093822, 0x299f31d0},
                 (uint32_t[]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

/// One random tensor by a kernel call.
static void create(nd_op op, nd_dtype dtype, void *out, int64_t n, uint64_t seed, uint64_t stream,
                   int64_t low, int64_t high) {
    nd_kernel_call call = {.op = op, .noperands = 1, .ndim = 1, .shape = {n}};
    call.operand[0].data = out;
    call.operand[0].dtype = dtype;
    call.operand[0].strides[0] = 1;
    const int64_t attrs[] = {(int64_t)seed, (int64_t)stream, low, high};
    memcpy(call.attrs.i, attrs, sizeof attrs);
    assert_int_equal(nd__cpu_launch(&call), ND_OK);
}

static void test_element_e_is_word_e_of_the_sequence(void **state) {
    (void)state;
    enum { N = 1003 };
    float narrow[N + 1] = {0};
    double wide[N + 1] = {0};
    int64_t whole[N + 1] = {0};
    uint64_t seed = 0x123456789abcdef0u, stream = 77;
    create(ND_OP_rand, ND_F32, narrow, N, seed, stream, 0, 0);
    create(ND_OP_rand, ND_F64, wide, N, seed, stream, 0, 0);
    create(ND_OP_randint, ND_I64, whole, N, seed, stream, -5, 12);
    for (uint64_t e = 0; e < N; e++) {
        uint32_t word = nd__philox_at(seed, stream, e / 4).word[e % 4];
        nd__philox_block block = nd__philox_at(seed, stream, e / 2);
        uint64_t word64 = (uint64_t)block.word[2 * (e % 2)] << 32 | block.word[2 * (e % 2) + 1];
        assert_true(narrow[e] == (float)(word >> 8) / 16777216.0f);
        assert_true(wide[e] == (double)(word64 >> 11) / 9007199254740992.0);
        assert_int_equal(whole[e],
                         -5 + (int64_t)(uint64_t)(((unsigned __int128)word64 * 17) >> 64));
    }
    assert_true(narrow[N] == 0 && wide[N] == 0 && whole[N] == 0);
}

static void test_normals_have_the_moments_of_a_normal(void **state) {
    (void)state;
    enum { N = 400000 };
    static float narrow[N];
    static double wide[N];
    create(ND_OP_randn, ND_F32, narrow, N, 1, 2, 0, 0);
    create(ND_OP_randn, ND_F64, wide, N, 1, 2, 0, 0);
    double sums[2][4] = {{0}}, neighbours = 0;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < 4; k++) {
            sums[0][k] += pow((double)narrow[i], k + 1) / N;
            sums[1][k] += pow(wide[i], k + 1) / N;
        }
    for (int i = 0; i + 1 < N; i++)
        neighbours += wide[i] * wide[i + 1] / N;
    for (int which = 0; which < 2; which++) {
        assert_true(fabs(sums[which][0]) < 0.01);
        assert_true(fabs(sums[which][1] - 1) < 0.02);
        assert_true(fabs(sums[which][2]) < 0.03);
        assert_true(fabs(sums[which][3] - 3) < 0.1);
    }
    assert_true(fabs(neighbours) < 0.01);
}

/// Box and Muller in long doubles, of the uniforms that an element's words are.
static long double normal_of(long double u1, long double u2, bool second) {
    long double angle = 2 * acosl(-1) * u2;
    return sqrtl(-2 * logl(u1)) * (second ? sinl(angle) : cosl(angle));
}

static void check_normals(const float *narrow, const double *wide, int n, uint64_t seed) {
    for (int e = 0; e < n; e++) {
        nd__philox_block four = nd__philox_at(seed, 5, (uint64_t)e / 4);
        const uint32_t *word = four.word + (e & 2);
        long double expected =
            normal_of(((word[0] >> 8) + 1) / 0x1p24L, (word[1] >> 8) / 0x1p24L, e % 2);
        assert_true(fabsl(expected - (long double)narrow[e]) <= 6.1e-8L * fabsl(expected) + 1e-16L);
        nd__philox_block block = nd__philox_at(seed, 5, (uint64_t)e / 2);
        expected = normal_of(((nd__philox_u64(block, 0) >> 11) + 1) / 0x1p53L,
                             (nd__philox_u64(block, 1) >> 11) / 0x1p53L, e % 2);
        assert_true(fabsl(expected - (long double)wide[e]) <= 1e-15L * fabsl(expected) + 1e-18L);
    }
}

static void test_normals_are_the_same_in_every_instruction_set(void **state) {
    (void)state;
    enum { N = 70001 };
    static const char *const isas[] = {"baseline", "x86_64_v3", "x86_64_v4"};
    static float narrow[2][N];
    static double wide[2][N];
    static uint16_t half[2][N];
    for (size_t isa = 0; isa < sizeof isas / sizeof *isas; isa++) {
        if (!nd__cpu_use_isa(isas[isa]))
            continue;
        int which = isa > 0;
        create(ND_OP_randn, ND_F32, narrow[which], N, 11, 5, 0, 0);
        create(ND_OP_randn, ND_F64, wide[which], N, 11, 5, 0, 0);
        create(ND_OP_randn, ND_BF16, half[which], N, 11, 5, 0, 0);
        assert_memory_equal(narrow[0], narrow[which], sizeof narrow[0]);
        assert_memory_equal(wide[0], wide[which], sizeof wide[0]);
        assert_memory_equal(half[0], half[which], sizeof half[0]);
    }
    nd__cpu_use_isa(NULL);
    check_normals(narrow[0], wide[0], N, 11);
}

static void test_integers_cover_their_range_evenly(void **state) {
    (void)state;
    enum { N = 100000 };
    static uint8_t bytes[N];
    int counts[256] = {0};
    create(ND_OP_randint, ND_U8, bytes, N, 9, 9, 10, 20);
    for (int i = 0; i < N; i++)
        counts[bytes[i]]++;
    for (int value = 0; value < 256; value++) {
        if (value >= 10 && value < 20)
            assert_true(counts[value] > N / 10 - 500 && counts[value] < N / 10 + 500);
        else
            assert_int_equal(counts[value], 0);
    }
    // The widest range there is.
    assert_int_equal(nd__uniform_i64(0, INT64_MIN, INT64_MAX), INT64_MIN);
    assert_int_equal(nd__uniform_i64(UINT64_MAX, INT64_MIN, INT64_MAX), INT64_MAX - 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_known_answers),
        ND_TEST(test_element_e_is_word_e_of_the_sequence),
        ND_TEST(test_normals_have_the_moments_of_a_normal),
        ND_TEST(test_normals_are_the_same_in_every_instruction_set),
        ND_TEST(test_integers_cover_their_range_evenly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
