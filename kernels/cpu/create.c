// fill, arange, eye and the random tensors.
#include "kernels/cpu/convert.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include <string.h>

/// Rows so short that they are filled along the axis before, of which a nearest cache holds so many lines.
#define SHORT_ROW 4
#define MOST_LINES 512

/// As a frame's sides have them.
static void lengthen_rows(nd_kernel_call *call) {
    const int last = call->ndim - 1;
    if (last < 1 || call->shape[last] > SHORT_ROW || call->shape[last - 1] > MOST_LINES ||
        call->shape[last - 1] <= call->shape[last])
        return;
    int64_t *shape = call->shape + last - 1, *strides = call->operand[0].strides + last - 1;
    const int64_t size = shape[0], stride = strides[0];
    shape[0] = shape[1], shape[1] = size;
    strides[0] = strides[1], strides[1] = stride;
}

static nd_status fill(const nd_kernel_call *call) {
    // The scalars that the loop is handed carry the element's bytes.
    nd_kernel_call filled = *call;
    nd_dtype dtype = call->operand[0].dtype;
    nd__encode(dtype, call->attrs.f[0], call->attrs.i[0], filled.attrs.f);
    lengthen_rows(&filled);
    nd__loop loop = nd__cpu_loops_now()->create->fill[nd__dtype_bytes(dtype)];
    return nd__cpu_rows(&filled, loop, 1);
}

/// Bytes of what is made at once where the dtype is not the one that loops make.
#define BUFFER_BYTES 4096

typedef struct create_work {
    char *out;
    nd_dtype dtype;
    const nd_op_attrs *attrs;
    nd_op op;
    int64_t total;
} create_work;

/// `n` elements of `from` as elements of the tensor, from element `begin` on.
static void write_converted(const create_work *work, nd_dtype from, void *elements, int64_t begin,
                            int64_t n) {
    char *out = work->out + begin * nd__dtype_bytes(work->dtype);
    nd__cpu_loops_now()->convert[from][work->dtype](n, (char *[]){out, (char *)elements},
                                                    (int64_t[]){1, 1}, NULL);
}

static void arange_range(void *context, int64_t begin, int64_t end) {
    const create_work *work = (const create_work *)context;
    const nd__create_loops *loops = nd__cpu_loops_now()->create;
    const nd_op_attrs *attrs = work->attrs;
    if (attrs->i[2] != 0 && nd__dtype_bytes(work->dtype) == 8 && work->dtype != ND_F64) {
        uint64_t step = (uint64_t)attrs->i[1],
                 start = (uint64_t)attrs->i[0] + (uint64_t)begin * step;
        loops->arange_integers((uint64_t *)work->out + begin, start, step, end - begin);
        return;
    }
    if (work->dtype == ND_F64) {
        loops->arange((double *)work->out + begin, begin, end - begin, attrs->f[0], attrs->f[1]);
        return;
    }
    double values[BUFFER_BYTES / sizeof(double)];
    const int64_t most = (int64_t)(sizeof values / sizeof *values);
    for (; begin < end; begin += most) {
        int64_t n = end - begin < most ? end - begin : most;
        loops->arange(values, begin, n, attrs->f[0], attrs->f[1]);
        write_converted(work, ND_F64, values, begin, n);
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

/// The loop that makes a random dtype, and the dtype that it writes.
static nd__random random_loop(const create_work *work, nd_dtype *ret_made) {
    const nd__create_loops *loops = nd__cpu_loops_now()->create;
    bool normal = work->op == ND_OP_randn;
    *ret_made = work->op == ND_OP_randint ? ND_I64 : work->dtype == ND_F64 ? ND_F64 : ND_F32;
    if (work->op == ND_OP_randint)
        return loops->words;
    if (work->dtype == ND_F64)
        return normal ? loops->normal_f64 : loops->uniform_f64;
    return normal                   ? loops->normal_f32
           : work->dtype == ND_F16  ? loops->uniform_f16
           : work->dtype == ND_BF16 ? loops->uniform_bf16
                                    : loops->uniform_f32;
}

/// Integers that become another dtype than one of 64 bits go through f64, so that they saturate.
static nd_dtype as_written(const create_work *work, nd_dtype made, void *elements, int64_t n) {
    if (made != ND_I64 || work->dtype == ND_I64 || work->dtype == ND_U64)
        return made;
    char *const in_place[] = {(char *)elements, (char *)elements};
    nd__cpu_loops_now()->convert[ND_I64][ND_F64](n, in_place, (int64_t[]){1, 1}, NULL);
    return ND_F64;
}

/// ND__RANDOM_BLOCKS blocks of the generator for each index; the tensor's last may be cut.
static void random_range(void *context, int64_t begin, int64_t end) {
    const create_work *work = (const create_work *)context;
    const int64_t *attrs = work->attrs->i;
    nd_dtype made;
    nd__random loop = random_loop(work, &made);
    int64_t bytes = nd__dtype_bytes(made), most = ND__RANDOM_BLOCKS * 16 / bytes;
    for (int64_t i = begin; i < end; i++) {
        _Alignas(64) char block[ND__RANDOM_BLOCKS * 16];
        int64_t first = i * most, n = work->total - first < most ? work->total - first : most;
        bool whole = made == work->dtype && n == most;
        void *elements = whole ? work->out + first * bytes : block;
        loop((uint64_t)attrs[0], (uint64_t)attrs[1], (uint64_t)(i * ND__RANDOM_BLOCKS), elements);
        if (work->op == ND_OP_randint)
            nd__cpu_loops_now()->create->integers((uint64_t *)elements, n, attrs[2], attrs[3]);
        if (!whole)
            write_converted(work, as_written(work, made, elements, n), elements, first, n);
    }
}

static nd_status run_random(create_work *work) {
    bool narrow = work->op != ND_OP_randint && work->dtype != ND_F64;
    int64_t each = ND__RANDOM_BLOCKS * (narrow ? 4 : 2);
    int64_t cost = each * (work->op == ND_OP_randn ? 4 : 2);
    nd__cpu_parallel((work->total + each - 1) / each, cost, 1, random_range, work);
    return ND_OK;
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
        nd__cpu_parallel(work.total, 1, 64, arange_range, &work);
        return ND_OK;
    case ND_OP_rand:
    case ND_OP_randn:
        if (nd__float_index(out->dtype) < 0 && out->dtype != ND_F16 && out->dtype != ND_BF16)
            return ND_ERROR_UNSUPPORTED;
        return run_random(&work);
    case ND_OP_randint:
        return run_random(&work);
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
