// See harness.h.
#include "tests/unit/cuda_host/harness.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda.h"
#include "tests/elements.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>

typedef struct arena_block {
    struct arena_block *next;
    size_t bytes;
    _Alignas(64) char data[];
} arena_block;

static arena_block *arena;
static uint64_t random_state;
static int64_t scratch_blocks;
static int64_t compared_calls[ND_OP_COUNT];

int both_begin(void **state) {
    (void)state;
    random_state = 20;
    scratch_blocks = 0;
    return 0;
}

int both_end(void **state) {
    (void)state;
    free_values();
    if (scratch_blocks != 0)
        fprintf(stderr, "%lld scratch blocks left behind\n", (long long)scratch_blocks);
    return scratch_blocks == 0 ? 0 : -1;
}

void free_values(void) {
    while (arena) {
        arena_block *next = arena->next;
        free(arena);
        arena = next;
    }
}

static void *arena_allocate(size_t bytes) {
    // Not a byte more than asked for, so that a sanitizer sees a read behind the end.
    void *memory = NULL;
    assert_int_equal(posix_memalign(&memory, 64, sizeof(arena_block) + bytes), 0);
    arena_block *block = memory;
    block->next = arena;
    block->bytes = bytes;
    arena = block;
    return block->data;
}

size_t dtype_bytes(nd_dtype dtype) {
    static const size_t bytes[ND_DTYPE_COUNT] = {
        [ND_BOOL] = 1, [ND_U8] = 1,  [ND_I32] = 4, [ND_I64] = 8, [ND_F32] = 4,
        [ND_F64] = 8,  [ND_I8] = 1,  [ND_I16] = 2, [ND_U16] = 2, [ND_U32] = 4,
        [ND_U64] = 8,  [ND_F16] = 2, [ND_BF16] = 2};
    return bytes[dtype];
}

const char *op_name(nd_op op) {
    static const char *const names[ND_OP_COUNT] = {
        "none",
#define ND_OP(name, family, inputs, differentiable, saves) #name,
#include "kernels/ops.inc"
#undef ND_OP
    };
    return names[op];
}

const char *op_family(nd_op op) {
    static const char *const families[ND_OP_COUNT] = {
        "",
#define ND_OP(name, family, inputs, differentiable, saves) #family,
#include "kernels/ops.inc"
#undef ND_OP
    };
    return families[op];
}

// ------------------------------------------------------------------------------------------------
// values

int64_t pick(int64_t n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((random_state >> 33) % (uint64_t)n);
}

static double number_in(double low, double high) {
    return low + (high - low) * (double)pick(1 << 20) / (1 << 20);
}

static void set(nd_dtype dtype, void *data, int64_t index, double value) {
    set_element(data, dtype, index,
                is_float(dtype)      ? value
                : dtype == ND_BOOL   ? value > 0
                : is_unsigned(dtype) ? fabs(value * 3)
                                     : value * 3);
}

void *values(nd_dtype dtype, int64_t count) {
    void *data = arena_allocate((size_t)count * dtype_bytes(dtype));
    for (int64_t i = 0; i < count; i++)
        set(dtype, data, i, number_in(-3, 3));
    return data;
}

/// An integer of any number of bits, either sign, cut to the dtype.
static void set_bits(nd_dtype dtype, char *data, int64_t index) {
    uint64_t bits =
        (uint64_t)pick(1 << 22) << 44 | (uint64_t)pick(1 << 22) << 22 | (uint64_t)pick(1 << 22);
    bits >>= pick(64);
    bits = pick(2) ? bits : ~bits;
    size_t bytes = dtype_bytes(dtype);
    memcpy(data + (size_t)index * bytes, &bits, bytes); // little-endian: the lowest
}

void *special_values(nd_dtype dtype, int64_t count) {
    void *data = values(dtype, count);
    static const double special[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 1e30, -1e30, 300, -1};
    for (int64_t i = 0; i < count && dtype != ND_BOOL; i++) {
        if (pick(4) != 0)
            continue;
        if (is_float(dtype))
            set(dtype, data, i, special[pick(sizeof special / sizeof *special)]);
        else
            set_bits(dtype, data, i);
    }
    return data;
}

int64_t *indices(int64_t count, int64_t n) {
    int64_t *data = arena_allocate((size_t)count * sizeof *data);
    for (int64_t i = 0; i < count; i++)
        data[i] = pick(n);
    return data;
}

nd_operand strided(const nd_kernel_call *call, void *data, nd_dtype dtype, const int64_t *strides) {
    nd_operand operand = {.data = data, .dtype = dtype};
    for (int axis = 0; axis < call->ndim; axis++)
        operand.strides[axis] = strides[axis];
    return operand;
}

nd_operand contiguous(const nd_kernel_call *call, void *data, nd_dtype dtype) {
    int64_t strides[ND_MAX_DIMS], stride = 1;
    for (int axis = call->ndim - 1; axis >= 0; axis--) {
        strides[axis] = stride;
        stride *= call->shape[axis];
    }
    return strided(call, data, dtype, strides);
}

int64_t extent(const nd_kernel_call *call, const int64_t *strides) {
    int64_t last = 0;
    for (int axis = 0; axis < call->ndim; axis++) {
        if (call->shape[axis] == 0)
            return 0;
        last += (call->shape[axis] - 1) * strides[axis];
    }
    return last + 1;
}

// ------------------------------------------------------------------------------------------------
// the two runs

static nd_status scratch_allocate(void *context, size_t bytes, void **ret_pointer) {
    (void)context;
    *ret_pointer = malloc(bytes);
    if (!*ret_pointer)
        return ND_ERROR_OUT_OF_MEMORY;
    memset(*ret_pointer, 0xA5, bytes);
    scratch_blocks++;
    return ND_OK;
}

static void scratch_release(void *context, void *pointer) {
    (void)context;
    free(pointer);
    scratch_blocks--;
}

static nd_status copy(void *context, void *destination, const void *source, size_t bytes) {
    (void)context;
    memcpy(destination, source, bytes);
    return ND_OK;
}

nd_status run_on_cuda(const nd_kernel_call *call) {
    int32_t out_of_range = 0;
    nd_cuda_queue queue = {
        .multiprocessors = MULTIPROCESSORS,
        .shared_bytes = SHARED_BYTES,
        .out_of_range = &out_of_range,
        .allocate = scratch_allocate,
        .release = scratch_release,
        .copy = copy,
    };
    nd_status status = nd__cuda_launch(&queue, call);
    return status == ND_OK && out_of_range ? ND_ERROR_INVALID_ARGUMENT : status;
}

/// One run's own memory for one output.
typedef struct output_copy {
    void *memory;
    char *data; ///< in it, as far from alignment as the original
} output_copy;

/// The call with outputs, and inputs that lie in them, moved to fresh copies. An output without data
/// has none.
static nd_kernel_call on_copies(const nd_kernel_call *call, int outputs, const int64_t *elements,
                                output_copy *ret_copies) {
    nd_kernel_call moved = *call;
    for (int output = 0; output < outputs; output++) {
        char *original = call->operand[output].data;
        size_t bytes = (size_t)elements[output] * dtype_bytes(call->operand[output].dtype);
        size_t misaligned = (uintptr_t)original % 16;
        output_copy *made = &ret_copies[output];
        made->memory = malloc(misaligned + bytes + (bytes == 0));
        assert_non_null(made->memory);
        made->data = (char *)made->memory + misaligned;
        if (!original)
            continue;
        memcpy(made->data, original, bytes);
        for (int i = 0; i < call->noperands; i++) {
            char *data = call->operand[i].data;
            if (data >= original && data < original + bytes)
                moved.operand[i].data = made->data + (data - original);
        }
        moved.operand[output].data = made->data;
    }
    return moved;
}

static bool close_enough(double expected, double found, double tolerance) {
    if (isnan(expected) || isnan(found))
        return isnan(expected) && isnan(found);
    if (isinf(expected) || isinf(found))
        return expected == found;
    return fabs(expected - found) <= tolerance * fmax(1.0, fabs(expected));
}

void compare_values(const nd_kernel_call *call, int output, int64_t count, const void *expected,
                    const void *found, double tolerance) {
    nd_dtype dtype = call->operand[output].dtype;
    size_t bytes = dtype_bytes(dtype);
    for (int64_t i = 0; i < count; i++) {
        if (memcmp((const char *)expected + (size_t)i * bytes,
                   (const char *)found + (size_t)i * bytes, bytes) == 0)
            continue;
        double cpu = element_as_double(expected, dtype, i);
        double cuda = element_as_double(found, dtype, i);
        // Results of 16 bits are rounded once, perhaps on either side of a tie.
        double allowed = dtype == ND_F64    ? tolerance * DBL_EPSILON
                         : dtype == ND_F32  ? tolerance * (double)FLT_EPSILON
                         : dtype == ND_BF16 ? 0x1p-7
                                            : 0x1p-10;
        bool close = tolerance == 0 ? isnan(cpu) && isnan(cuda) : close_enough(cpu, cuda, allowed);
        if (!is_float(dtype) || !close)
            fail_msg("%s, dtype %d, ndim %d, output %d: element %lld of %lld differs: cpu %.17g, "
                     "cuda %.17g",
                     op_name(call->op), (int)dtype, call->ndim, output, (long long)i,
                     (long long)count, cpu, cuda);
    }
}

nd_status run_on_cpu(const nd_kernel_call *call) {
    return nd__cpu_launch(call);
}

nd_status both(const nd_kernel_call *call, int outputs, const int64_t *elements, double tolerance) {
    output_copy expected[ND_MAX_OPERANDS], found[ND_MAX_OPERANDS];
    nd_kernel_call cpu_call = on_copies(call, outputs, elements, expected);
    nd_kernel_call cuda_call = on_copies(call, outputs, elements, found);
    nd_status cpu = run_on_cpu(&cpu_call);
    nd_status cuda = run_on_cuda(&cuda_call);
    if (cpu != cuda)
        fail_msg("%s, dtype %d: cpu answers %d, cuda %d", op_name(call->op),
                 (int)call->operand[0].dtype, (int)cpu, (int)cuda);
    for (int output = 0; output < outputs; output++) {
        if (cpu == ND_OK)
            compare_values(call, output, elements[output], expected[output].data,
                           found[output].data, tolerance);
        free(expected[output].memory);
        free(found[output].memory);
    }
    if (cpu == ND_OK)
        compared_calls[call->op]++;
    return cpu;
}

void *converted(const nd_operand *operand, nd_dtype dtype, int64_t count) {
    void *data = arena_allocate((size_t)count * dtype_bytes(dtype));
    for (int64_t i = 0; i < count; i++)
        set_element(data, dtype, i, element_as_double(operand->data, operand->dtype, i));
    return data;
}

void count_compared(nd_op op) {
    compared_calls[op]++;
}

int64_t compared(nd_op op) {
    return compared_calls[op];
}
