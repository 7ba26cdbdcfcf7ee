// The loops of CREATE. No product and sum are rounded at once here (BUILD.bazel): values are the
// same in every instruction set.
#include "kernels/cpu/isa.h"
#include "kernels/philox.h"
#include <string.h>

#define LANES ND__PHILOX_LANES
_Static_assert(LANES == ND__RANDOM_BLOCKS, "a call makes as many blocks as there are lanes");

#define FILL_ROW(T)                                                                \
    static void fill_row_##T(int64_t n, char *const *data, const int64_t *strides, \
                             const nd_op_attrs *attrs) {                           \
        T value, *out = (T *)data[0];                                              \
        memcpy(&value, attrs->f, sizeof value);                                    \
        if (strides[0] == 1)                                                       \
            for (int64_t i = 0; i < n; i++)                                        \
                out[i] = value;                                                    \
        else                                                                       \
            for (int64_t i = 0; i < n; i++)                                        \
                out[i * strides[0]] = value;                                       \
    }
FILL_ROW(uint8_t)
FILL_ROW(uint16_t)
FILL_ROW(uint32_t)
FILL_ROW(uint64_t)

static void arange(double *out, int64_t first, int64_t n, double start, double step) {
    // In parts that 32 bits count: every instruction set makes floats of those.
    for (int64_t begin = 0; begin < n; begin += INT32_MAX) {
        int32_t run = (int32_t)(n - begin < INT32_MAX ? n - begin : INT32_MAX);
        double before = (double)(first + begin);
        for (int32_t i = 0; i < run; i++)
            out[begin + i] = start + (before + (double)i) * step;
    }
}

static void arange_integers(uint64_t *out, uint64_t start, uint64_t step, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        out[i] = start + (uint64_t)i * step;
}

#define UNIFORM(name)                                                                        \
    static void uniform_##name(uint64_t seed, uint64_t stream, uint64_t first, void *out_) { \
        float *out = (float *)out_;                                                          \
        uint32_t word[4][LANES];                                                             \
        nd__philox_many(seed, stream, first, word);                                          \
        for (int lane = 0; lane < LANES; lane++) {                                           \
            out[4 * lane] = nd__uniform_##name(word[0][lane]);                               \
            out[4 * lane + 1] = nd__uniform_##name(word[1][lane]);                           \
            out[4 * lane + 2] = nd__uniform_##name(word[2][lane]);                           \
            out[4 * lane + 3] = nd__uniform_##name(word[3][lane]);                           \
        }                                                                                    \
    }
UNIFORM(f16)
UNIFORM(bf16)
UNIFORM(f32)

static void normal_f32(uint64_t seed, uint64_t stream, uint64_t first, void *out_) {
    float *out = (float *)out_;
    uint32_t word[4][LANES];
    float normal[4][LANES];
    nd__philox_many(seed, stream, first, word);
    for (int pair = 0; pair < 4; pair += 2)
        for (int lane = 0; lane < LANES; lane++)
            nd__normal_pair_f32(word[pair][lane], word[pair + 1][lane], &normal[pair][lane],
                                &normal[pair + 1][lane]);
    for (int lane = 0; lane < LANES; lane++)
        for (int k = 0; k < 4; k++)
            out[4 * lane + k] = normal[k][lane];
}

#define KEEP(T)                                                                      \
    static void keep_##T(const float *numbers, int64_t n, float limit, double scale, \
                         void *ret_factors) {                                        \
        T *factors = (T *)ret_factors;                                               \
        for (int64_t i = 0; i < n; i++)                                              \
            factors[i] = numbers[i] >= limit ? (T)scale : (T)0;                      \
    }
KEEP(float)
KEEP(double)

/// The words of 64 bits in the order of elements.
static void words(uint64_t seed, uint64_t stream, uint64_t first, void *out_) {
    uint64_t *out = (uint64_t *)out_;
    uint32_t word[4][LANES];
    nd__philox_many(seed, stream, first, word);
    for (int lane = 0; lane < LANES; lane++) {
        out[2 * lane] = (uint64_t)word[0][lane] << 32 | word[1][lane];
        out[2 * lane + 1] = (uint64_t)word[2][lane] << 32 | word[3][lane];
    }
}

/// word >> 11 as f64, by halves that every instruction set makes floats of.
static inline double upper_53(uint64_t word) {
    double high = (double)(int32_t)(uint32_t)(word >> 38),
           low = (double)(int32_t)((word >> 11) & 0x7FFFFFF);
    return high * 0x1p27 + low;
}

static void uniform_f64(uint64_t seed, uint64_t stream, uint64_t first, void *out_) {
    double *out = (double *)out_;
    uint64_t word[2 * LANES];
    words(seed, stream, first, word);
    for (int i = 0; i < 2 * LANES; i++)
        out[i] = upper_53(word[i]) * 0x1p-53;
}

static void normal_f64(uint64_t seed, uint64_t stream, uint64_t first, void *out_) {
    double *out = (double *)out_;
    uint64_t word[2 * LANES];
    double normal[2][LANES];
    words(seed, stream, first, word);
    for (int lane = 0; lane < LANES; lane++)
        nd__normal_pair((upper_53(word[2 * lane]) + 1.0) * 0x1p-53,
                        upper_53(word[2 * lane + 1]) * 0x1p-53, &normal[0][lane], &normal[1][lane]);
    for (int lane = 0; lane < LANES; lane++) {
        out[2 * lane] = normal[0][lane];
        out[2 * lane + 1] = normal[1][lane];
    }
}

static void integers(uint64_t *word, int64_t n, int64_t low, int64_t high) {
    for (int64_t i = 0; i < n; i++)
        word[i] = (uint64_t)nd__uniform_i64(word[i], low, high);
}

const nd__create_loops ND_ISA_NAME(nd__cpu_create_loops) = {
    .fill = {[1] = fill_row_uint8_t,
             [2] = fill_row_uint16_t,
             [4] = fill_row_uint32_t,
             [8] = fill_row_uint64_t},
    .arange = arange,
    .arange_integers = arange_integers,
    .uniform_f16 = uniform_f16,
    .uniform_bf16 = uniform_bf16,
    .uniform_f32 = uniform_f32,
    .normal_f32 = normal_f32,
    .uniform_f64 = uniform_f64,
    .normal_f64 = normal_f64,
    .keep = {keep_float, keep_double},
    .words = words,
    .integers = integers,
};
