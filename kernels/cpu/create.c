// fill, arange, eye and the random tensors.
#include "kernels/cpu/convert.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "kernels/philox.h"
#include <string.h>

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

static nd_status fill(const nd_kernel_call *call) {
    // The scalars that the loop is handed carry the element's bytes.
    nd_kernel_call filled = *call;
    nd_dtype dtype = call->operand[0].dtype;
    nd__encode(dtype, call->attrs.f[0], call->attrs.i[0], filled.attrs.f);
    static const nd__loop rows[9] = {[1] = fill_row_uint8_t,
                                     [2] = fill_row_uint16_t,
                                     [4] = fill_row_uint32_t,
                                     [8] = fill_row_uint64_t};
    return nd__cpu_elementwise(&filled, rows[nd__dtype_bytes(dtype)], 1);
}

typedef struct create_work {
    char *out;
    nd_dtype dtype;
    const nd_op_attrs *attrs;
    nd_op op;
    int64_t total;
} create_work;

static void arange_range(void *context, int64_t begin, int64_t end) {
    const create_work *work = (const create_work *)context;
    double start = work->attrs->f[0], step = work->attrs->f[1];
    uint64_t first = (uint64_t)work->attrs->i[0], stride = (uint64_t)work->attrs->i[1];
    bool exact = work->attrs->i[2] != 0;
    int64_t bytes = nd__dtype_bytes(work->dtype);
    for (int64_t i = begin; i < end; i++) {
        double value = start + (double)i * step;
        int64_t integer = exact                   ? (int64_t)(first + (uint64_t)i * stride)
                          : work->dtype == ND_U64 ? (int64_t)nd__f64_to_u64(value)
                                                  : nd__f64_to_i64(value);
        nd__encode(work->dtype, value, integer, work->out + i * bytes);
    }
}

static nd_status eye(const nd_kernel_call *call) {
    nd_dtype dtype = call->operand[0].dtype;
    int64_t n = call->attrs.i[0], bytes = nd__dtype_bytes(dtype);
    char *out = (char *)call->operand[0].data;
    if (n > 0)
        memset(out, 0, (size_t)(n * n * bytes));
    for (int64_t i = 0; i < n; i++)
        nd__encode(dtype, 1.0, 1, out + i * (n + 1) * bytes);
    return ND_OK;
}

/// Element `word` of a block of uniform f32, bits of a 16-bit float in the lowest.
static uint32_t uniform_bits(nd_dtype dtype, uint32_t word) {
    if (dtype == ND_F16)
        return nd__f32_to_f16(nd__uniform_f16(word));
    if (dtype == ND_BF16)
        return nd__f32_to_bf16(nd__uniform_bf16(word));
    return nd__f32_bits(nd__uniform_f32(word));
}
static uint32_t normal_bits(nd_dtype dtype, float value) {
    return dtype == ND_F16    ? nd__f32_to_f16(value)
           : dtype == ND_BF16 ? nd__f32_to_bf16(value)
                              : nd__f32_bits(value);
}

/// Elements of f32 and 16-bit floats of blocks [begin, end); the tensor's last block may be cut.
static void random_blocks_of_4(void *context, int64_t begin, int64_t end) {
    const create_work *work = (const create_work *)context;
    uint64_t seed = (uint64_t)work->attrs->i[0], stream = (uint64_t)work->attrs->i[1];
    int64_t bytes = nd__dtype_bytes(work->dtype);
    for (int64_t i = begin; i < end; i++) {
        nd__philox_block block = nd__philox_at(seed, stream, (uint64_t)i);
        float normal[4] = {0};
        if (work->op == ND_OP_randn)
            nd__normal_f32(block, normal);
        int64_t left = work->total - 4 * i;
        for (int word = 0; word < 4 && word < left; word++) {
            uint32_t value = work->op == ND_OP_rand ? uniform_bits(work->dtype, block.word[word])
                                                    : normal_bits(work->dtype, normal[word]);
            // little-endian: a 16-bit float's bits are the first two bytes
            memcpy(work->out + (4 * i + word) * bytes, &value, (size_t)bytes);
        }
    }
}

static void random_blocks_of_2(void *context, int64_t begin, int64_t end) {
    const create_work *work = (const create_work *)context;
    const int64_t *attrs = work->attrs->i;
    int64_t bytes = nd__dtype_bytes(work->dtype);
    for (int64_t i = begin; i < end; i++) {
        nd__philox_block block = nd__philox_at((uint64_t)attrs[0], (uint64_t)attrs[1], (uint64_t)i);
        double normal[2] = {0, 0};
        if (work->op == ND_OP_randn)
            nd__normal_f64(block, normal);
        for (int half = 0; half < 2 && 2 * i + half < work->total; half++) {
            char *element = work->out + (2 * i + half) * bytes;
            uint64_t word = nd__philox_u64(block, half);
            if (work->op == ND_OP_randint) {
                int64_t value = nd__uniform_i64(word, attrs[2], attrs[3]);
                nd__encode(work->dtype, (double)value, value, element);
            } else {
                *(double *)element = work->op == ND_OP_rand ? nd__uniform_f64(word) : normal[half];
            }
        }
    }
}

nd_status nd__cpu_create(const nd_kernel_call *call) {
    const nd_operand *out = &call->operand[0];
    create_work work = {(char *)out->data, out->dtype, &call->attrs, call->op,
                        nd__call_total(call)};
    switch (call->op) {
    case ND_OP_fill:
        return fill(call);
    case ND_OP_eye:
        return eye(call);
    case ND_OP_arange:
        nd__cpu_parallel(work.total, 4, 64, arange_range, &work);
        return ND_OK;
    case ND_OP_rand:
    case ND_OP_randn:
        if (out->dtype == ND_F32 || out->dtype == ND_F16 || out->dtype == ND_BF16) {
            nd__cpu_parallel((work.total + 3) / 4, 32, 16, random_blocks_of_4, &work);
            return ND_OK;
        }
        if (out->dtype != ND_F64)
            return ND_ERROR_UNSUPPORTED;
        // fall through
    case ND_OP_randint:
        nd__cpu_parallel((work.total + 1) / 2, 32, 16, random_blocks_of_2, &work);
        return ND_OK;
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
