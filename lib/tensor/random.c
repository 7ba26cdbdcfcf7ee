// Random tensors from keys. The numbers themselves are made by the kernels, from kernels/philox.h,
// so that they do not depend on the device; here are the keys and what only the host does.
#include "kernels/philox.h"
#include "lib/base/error.h"
#include "lib/tensor/create.h"
#include "lib/tensor/tensor.h"

nd_key nd_key_new(uint64_t seed) {
    return (nd_key){.seed = seed};
}

nd_key nd_key_fold(nd_key key, uint64_t data) {
    nd__philox_block block = nd__philox_at(key.seed, ~key.stream, data);
    return (nd_key){.seed = nd__philox_u64(block, 0), .stream = nd__philox_u64(block, 1)};
}

static bool check_float(const char *operation, nd_dtype dtype) {
    if (nd_dtype_get_size(dtype) != 0 && nd__dtype_is_float(dtype))
        return true;
    nd__error(ND_ERROR_DTYPE, "%s: dtype %s; it must be a float", operation,
              nd_dtype_get_name(dtype));
    return false;
}

static nd_tensor *create_random(const char *operation, nd_op op, nd_key key, int64_t low,
                                int64_t high, int ndim, const int64_t *shape, nd_dtype dtype) {
    nd_op_attrs attrs = {.i = {(int64_t)key.seed, (int64_t)key.stream, low, high}};
    return nd__create_with(operation, op, nd__create(operation, ndim, shape, dtype), &attrs);
}

nd_tensor *nd_rand(nd_key key, int ndim, const int64_t *shape, nd_dtype dtype) {
    if (!check_float("rand", dtype))
        return NULL;
    return create_random("rand", ND_OP_rand, key, 0, 0, ndim, shape, dtype);
}

nd_tensor *nd_randn(nd_key key, int ndim, const int64_t *shape, nd_dtype dtype) {
    if (!check_float("randn", dtype))
        return NULL;
    return create_random("randn", ND_OP_randn, key, 0, 0, ndim, shape, dtype);
}

/// Whether a float has that integer, which has neighbours that it has not.
static bool holds_alone(nd_dtype dtype, int64_t value) {
    static const int digits[ND_DTYPE_COUNT] = {
        [ND_F16] = 11, [ND_BF16] = 8, [ND_F32] = 24, [ND_F64] = 53};
    const uint64_t most_of_f16 = 65504;
    const uint64_t size = value < 0 ? -(uint64_t)value : (uint64_t)value;
    return size > 0 && size >> __builtin_ctzll(size) < UINT64_C(1) << digits[dtype] &&
           digits[dtype] > 0 && (dtype != ND_F16 || size <= most_of_f16);
}

nd_tensor *nd_randint(nd_key key, int64_t low, int64_t high, int ndim, const int64_t *shape,
                      nd_dtype dtype) {
    static const struct {
        int64_t low, high; ///< what the dtype holds: low <= value <= high
    } ranges[ND_DTYPE_COUNT] = {
        [ND_BOOL] = {0, 1},
        [ND_U8] = {0, UINT8_MAX},
        [ND_I32] = {INT32_MIN, INT32_MAX},
        [ND_I64] = {INT64_MIN, INT64_MAX},
        [ND_I8] = {INT8_MIN, INT8_MAX},
        [ND_I16] = {INT16_MIN, INT16_MAX},
        [ND_U16] = {0, UINT16_MAX},
        [ND_U32] = {0, UINT32_MAX},
        [ND_U64] = {0, INT64_MAX}, // the numbers given are int64
        // Every integer in between has a float.
        [ND_F32] = {-(1 << 24), 1 << 24},
        [ND_F64] = {-((int64_t)1 << 53), (int64_t)1 << 53},
        [ND_F16] = {-(1 << 11), 1 << 11},
        [ND_BF16] = {-(1 << 8), 1 << 8},
    };
    if (nd_dtype_get_size(dtype) == 0) {
        nd__error(ND_ERROR_DTYPE, "randint: there is no dtype %d", (int)dtype);
        return NULL;
    }
    const bool is_inside = low < high && low >= ranges[dtype].low && high - 1 <= ranges[dtype].high;
    if (!is_inside && !(low < high && low == high - 1 && holds_alone(dtype, low))) {
        nd__error(ND_ERROR_INVALID_ARGUMENT,
                  "randint: [%lld, %lld) is empty, or has integers that %s has not", (long long)low,
                  (long long)high, nd_dtype_get_name(dtype));
        return NULL;
    }
    return create_random("randint", ND_OP_randint, key, low, high, ndim, shape, dtype);
}

/// Fisher and Yates, from the end: element i changes places with one of the first i + 1, which word
/// i of 64 bits chooses. What the next steps ask for is fetched while these are made.
static void shuffle(nd_key key, int64_t *value, int64_t n) {
    enum { WORDS = 2 * ND__PHILOX_LANES };
    uint32_t word[4][ND__PHILOX_LANES];
    int64_t chosen[WORDS];
    for (int64_t begin = (n - 1) / WORDS * WORDS, end = n; begin >= 0;
         end = begin, begin -= WORDS) {
        nd__philox_many(key.seed, key.stream, (uint64_t)begin / 2, word);
        for (int64_t i = end - 1; i >= begin; i--) {
            int64_t lane = (i - begin) / 2, half = 2 * (i % 2);
            uint64_t whole = (uint64_t)word[half][lane] << 32 | word[half + 1][lane];
            chosen[i - begin] = (int64_t)((unsigned __int128)whole * (uint64_t)(i + 1) >> 64);
            __builtin_prefetch(&value[chosen[i - begin]], 1);
        }
        for (int64_t i = end - 1; i >= begin; i--) {
            int64_t taken = value[i];
            value[i] = value[chosen[i - begin]];
            value[chosen[i - begin]] = taken;
        }
    }
}

nd_tensor *nd_randperm(nd_key key, int64_t n) {
    nd_tensor *x = nd__tensor_result("randperm", NULL, 0, (nd_device){ND_CPU, 0}, ND_I64, 1, &n);
    if (!x)
        return NULL;
    int64_t *value = x->data;
    for (int64_t i = 0; i < n; i++)
        value[i] = i;
    if (n > 0)
        shuffle(key, value, n);
    return x;
}
