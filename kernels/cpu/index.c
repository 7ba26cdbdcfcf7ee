// take, gather, scatter_add, scatter_reduce, one_hot, masked_select and nonzero.
//
// Every index is checked where it is used; one out of range stops the call, which then has written
// part of its fresh result and nothing else. Those of gather and of scatters may count from the end.
#include "kernels/cpu/bytes.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "kernels/indices.h"
#include <math.h>
#include <stdatomic.h>
#include <string.h>

typedef struct index_work {
    const nd_kernel_call *call;
    int axis; ///< threads share the iterations along it
    atomic_bool out_of_range;
} index_work;

static nd_status status_of(const index_work *work) {
    return atomic_load(&work->out_of_range) ? ND_ERROR_INVALID_ARGUMENT : ND_OK;
}

/// Indices of dense rows that are looked at and then used, while they are in the nearest cache.
#define INDICES_AT_ONCE 1024

/// Rows that take moves: their bytes, and how far apart rows lie in x.
typedef struct take_rows {
    int64_t bytes, apart;
    int64_t inner, step; ///< of rows that are not dense: elements, and the bytes between them
} take_rows;

// `count` rows of those at x, by indices that are in range.
#define TAKE_ROWS(name, row, copy)                                                    \
    static void name(char *out, const char *x, const int64_t *indices, int64_t count, \
                     take_rows rows) {                                                \
        for (int64_t i = 0; i < count; i++)                                           \
            copy(out + i * (row), x + indices[i] * rows.apart, (size_t)(row));        \
    }
TAKE_ROWS(take_rows_of_1, 1, memcpy)
TAKE_ROWS(take_rows_of_2, 2, memcpy)
TAKE_ROWS(take_rows_of_4, 4, memcpy)
TAKE_ROWS(take_rows_of_8, 8, memcpy)
TAKE_ROWS(take_rows_below_4, rows.bytes, nd__bytes_ends_2)
TAKE_ROWS(take_rows_below_8, rows.bytes, nd__bytes_ends_4)
TAKE_ROWS(take_rows_to_16, rows.bytes, nd__bytes_ends_8)
TAKE_ROWS(take_rows_to_32, rows.bytes, nd__bytes_ends_16)
TAKE_ROWS(take_rows_to_64, rows.bytes, nd__bytes_ends_32)
TAKE_ROWS(take_rows_of_any, rows.bytes, nd__bytes_copy)

// The same of rows whose elements, of so many bytes, do not lie one behind the other.
#define TAKE_STRIDED(name, size)                                                      \
    static void name(char *out, const char *x, const int64_t *indices, int64_t count, \
                     take_rows rows) {                                                \
        for (int64_t i = 0; i < count; i++)                                           \
            for (int64_t k = 0; k < rows.inner; k++)                                  \
                memcpy(out + i * rows.bytes + k * (size),                             \
                       x + indices[i] * rows.apart + k * rows.step, size);            \
    }
TAKE_STRIDED(take_strided_of_1, 1)
TAKE_STRIDED(take_strided_of_2, 2)
TAKE_STRIDED(take_strided_of_4, 4)
TAKE_STRIDED(take_strided_of_8, 8)

typedef void take_function(char *out, const char *x, const int64_t *indices, int64_t count,
                           take_rows rows);

static take_function *take_function_of(const take_rows *rows, int64_t size) {
    if (rows->inner > 1 && rows->step != size)
        return size == 8   ? take_strided_of_8
               : size == 4 ? take_strided_of_4
               : size == 2 ? take_strided_of_2
                           : take_strided_of_1;
    return rows->bytes == 4   ? take_rows_of_4
           : rows->bytes == 8 ? take_rows_of_8
           : rows->bytes == 2 ? take_rows_of_2
           : rows->bytes == 1 ? take_rows_of_1
           : rows->bytes < 4  ? take_rows_below_4
           : rows->bytes < 8  ? take_rows_below_8
           : rows->bytes > 64 ? take_rows_of_any
           : rows->bytes > 32 ? take_rows_to_64
           : rows->bytes > 16 ? take_rows_to_32
                              : take_rows_to_16;
}

static void take_range(void *context, int64_t begin, int64_t end) {
    index_work *work = (index_work *)context;
    const nd_kernel_call *call = work->call;
    const int64_t count = call->attrs.i[1], n = call->attrs.i[3];
    const int64_t size = nd__dtype_bytes(call->operand[1].dtype), outer = call->attrs.i[4] * size;
    const take_rows rows = {call->attrs.i[2] * size, call->attrs.i[5] * size, call->attrs.i[2],
                            call->attrs.i[6] * size};
    take_function *const move = take_function_of(&rows, size);
    char *out = (char *)call->operand[0].data;
    const char *x = (const char *)call->operand[1].data;
    const int64_t *indices = (const int64_t *)call->operand[2].data;
    const bool uses_all = end - begin > count; // some more than once: looked at before
    bool right = !uses_all || nd__indices_are_inside(indices, count, n);
    while (right && begin < end) {
        int64_t first = begin % count;
        int64_t run = count - first < end - begin ? count - first : end - begin;
        run = uses_all || run < INDICES_AT_ONCE ? run : INDICES_AT_ONCE;
        right = uses_all || nd__indices_are_inside(indices + first, run, n);
        if (right)
            move(out + begin * rows.bytes, x + begin / count * outer, indices + first, run, rows);
        begin += run;
    }
    if (!right)
        atomic_store(&work->out_of_range, true);
}

static nd_status take(const nd_kernel_call *call) {
    index_work work = {.call = call};
    if (call->attrs.i[2] > 0)
        nd__cpu_parallel(call->attrs.i[0] * call->attrs.i[1], call->attrs.i[2] / 4 + 4, 1,
                         take_range, &work);
    return status_of(&work);
}

/// An index that counts from the end, as one that does not. No branch: which of them do is unforeseen.
static inline int64_t wrapped(int64_t index, int64_t size) {
    return index + (size & index >> 63);
}

// What a row does for each of its indices, `at` once it is in range; the steps between elements are
// literals where they can be.
#define FOR_EACH_INDEX(index, index_step, statement)               \
    {                                                              \
        for (int64_t i = 0; i < n; i++) {                          \
            int64_t at = wrapped((index)[i * (index_step)], size); \
            if ((uint64_t)at >= (uint64_t)size)                    \
                return false;                                      \
            statement;                                             \
        }                                                          \
        return true;                                               \
    }

#define GATHER_ROW(T)                                                                              \
    static bool gather_row_##T(int64_t n, char *const *data, const int64_t *strides, int64_t size, \
                               int64_t stride) {                                                   \
        T *out = (T *)data[0];                                                                     \
        const T *x = (const T *)data[1];                                                           \
        const int64_t *index = (const int64_t *)data[2];                                           \
        int64_t out_step = strides[0], x_step = strides[1], index_step = strides[2];               \
        if (out_step == 1 && index_step == 1 && x_step == 0 && stride == 1)                        \
            FOR_EACH_INDEX(index, 1, out[i] = x[at])                                               \
        if (out_step == 1 && index_step == 1)                                                      \
            FOR_EACH_INDEX(index, 1, out[i] = x[i * x_step + at * stride])                         \
        FOR_EACH_INDEX(index, index_step, out[i * out_step] = x[i * x_step + at * stride])         \
    }
GATHER_ROW(uint8_t)
GATHER_ROW(uint16_t)
GATHER_ROW(uint32_t)
GATHER_ROW(uint64_t)

// out[index] becomes `expression` of what it was, a, and of what comes, b. W: the type in which that
// has no undefined overflow.
#define SCATTER_ROW(name, T, W, expression)                                                        \
    static inline void name##_one_##T(T *to, T from) {                                             \
        W a = (W)*to, b = (W)from;                                                                 \
        *to = (T)(expression);                                                                     \
    }                                                                                              \
    /* The whole row where one index holds for it. */                                              \
    static void name##_all_##T(int64_t n, T *out, int64_t out_step, const T *source,               \
                               int64_t step) {                                                     \
        if (out_step == 1 && step == 1)                                                            \
            for (int64_t i = 0; i < n; i++)                                                        \
                name##_one_##T(&out[i], source[i]);                                                \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++)                                                        \
                name##_one_##T(&out[i * out_step], source[i * step]);                              \
    }                                                                                              \
    static bool name##_row_##T(int64_t n, char *const *data, const int64_t *strides, int64_t size, \
                               int64_t stride) {                                                   \
        T *out = (T *)data[0];                                                                     \
        const int64_t *index = (const int64_t *)data[1];                                           \
        const T *source = (const T *)data[2];                                                      \
        int64_t out_step = strides[0], index_step = strides[1], step = strides[2];                 \
        if (index_step == 0 && out_step != 0) {                                                    \
            int64_t at = wrapped(*index, size);                                                    \
            if ((uint64_t)at >= (uint64_t)size)                                                    \
                return false;                                                                      \
            name##_all_##T(n, out + at * stride, out_step, source, step);                          \
            return true;                                                                           \
        }                                                                                          \
        if (out_step == 0 && index_step == 1 && step == 1 && stride == 1)                          \
            FOR_EACH_INDEX(index, 1, name##_one_##T(&out[at], source[i]))                          \
        FOR_EACH_INDEX(index, index_step,                                                          \
                       name##_one_##T(&out[i * out_step + at * stride], source[i * step]))         \
    }
// Sums and products that wrap have the same bits with a sign and without.
#define WRAPPING_ROWS(T, W)           \
    SCATTER_ROW(scatter, T, W, a + b) \
    SCATTER_ROW(multiply, T, W, a *b)
WRAPPING_ROWS(uint8_t, uint32_t)
WRAPPING_ROWS(uint16_t, uint32_t)
WRAPPING_ROWS(uint32_t, uint32_t)
WRAPPING_ROWS(uint64_t, uint64_t)
WRAPPING_ROWS(float, float)
WRAPPING_ROWS(double, double)

#define ORDERED_ROWS(T)                     \
    SCATTER_ROW(least, T, T, b < a ? b : a) \
    SCATTER_ROW(greatest, T, T, b > a ? b : a)
ORDERED_ROWS(uint8_t)
ORDERED_ROWS(uint16_t)
ORDERED_ROWS(uint32_t)
ORDERED_ROWS(uint64_t)
ORDERED_ROWS(int8_t)
ORDERED_ROWS(int16_t)
ORDERED_ROWS(int32_t)
ORDERED_ROWS(int64_t)
// A NaN that was there stays, and one that comes does.
SCATTER_ROW(least, float, float, b < a || isnan(b) ? b : a)
SCATTER_ROW(greatest, float, float, b > a || isnan(b) ? b : a)
SCATTER_ROW(least, double, double, b < a || isnan(b) ? b : a)
SCATTER_ROW(greatest, double, double, b > a || isnan(b) ? b : a)

typedef bool (*index_row)(int64_t n, char *const *data, const int64_t *strides, int64_t size,
                          int64_t stride);

static index_row row_of(const nd_kernel_call *call) {
    static const index_row gather[9] = {[1] = gather_row_uint8_t,
                                        [2] = gather_row_uint16_t,
                                        [4] = gather_row_uint32_t,
                                        [8] = gather_row_uint64_t};
#define WRAPPING(name)                                                  \
    {                                                                   \
        [ND_U8] = name##_row_uint8_t, [ND_I8] = name##_row_uint8_t,     \
        [ND_U16] = name##_row_uint16_t, [ND_I16] = name##_row_uint16_t, \
        [ND_U32] = name##_row_uint32_t, [ND_I32] = name##_row_uint32_t, \
        [ND_U64] = name##_row_uint64_t, [ND_I64] = name##_row_uint64_t, \
        [ND_F32] = name##_row_float, [ND_F64] = name##_row_double       \
    }
#define ORDERED(name)                                                                              \
    {                                                                                              \
        [ND_U8] = name##_row_uint8_t, [ND_I8] = name##_row_int8_t, [ND_U16] = name##_row_uint16_t, \
        [ND_I16] = name##_row_int16_t, [ND_U32] = name##_row_uint32_t,                             \
        [ND_I32] = name##_row_int32_t, [ND_U64] = name##_row_uint64_t,                             \
        [ND_I64] = name##_row_int64_t, [ND_F32] = name##_row_float, [ND_F64] = name##_row_double   \
    }
    static const index_row scatter[ND_DTYPE_COUNT] = WRAPPING(scatter);
    static const index_row reduce[ND_SCATTER_KINDS][ND_DTYPE_COUNT] = {
        [ND_SCATTER_PRODUCT] = WRAPPING(multiply),
        [ND_SCATTER_LEAST] = ORDERED(least),
        [ND_SCATTER_GREATEST] = ORDERED(greatest),
    };
    nd_dtype dtype = call->operand[0].dtype;
    if (call->op == ND_OP_gather)
        return gather[nd__dtype_bytes(dtype)];
    return call->op == ND_OP_scatter_add ? scatter[dtype] : reduce[call->attrs.i[3]][dtype];
}

/// The iterations in which the index along work->axis is in [begin, end), in row-major order.
static void indexed_rows(void *context, int64_t begin, int64_t end) {
    index_work *work = (index_work *)context;
    const nd_kernel_call *call = work->call;
    // The operand that the index value moves: gather's x, the out of others. Its own stride along
    // the indexed axis is not walked.
    int indexed = call->op == ND_OP_gather ? 1 : 0;
    int index_axis = (int)call->attrs.i[0], last = call->ndim - 1;
    int64_t strides[3][ND_MAX_DIMS], shape[ND_MAX_DIMS], position[ND_MAX_DIMS] = {0};
    int64_t row_strides[3], bytes[3], rows = 1;
    char *data[3];
    for (int i = 0; i < 3; i++) {
        const nd_operand *operand = &call->operand[i];
        memcpy(strides[i], operand->strides, sizeof strides[i]);
        if (i == indexed)
            strides[i][index_axis] = 0;
        bytes[i] = nd__dtype_bytes(operand->dtype);
        row_strides[i] = strides[i][last];
        data[i] = (char *)operand->data + begin * strides[i][work->axis] * bytes[i];
    }
    for (int axis = 0; axis <= last; axis++) {
        shape[axis] = axis == work->axis ? end - begin : call->shape[axis];
        if (axis < last)
            rows *= shape[axis];
    }
    index_row row = row_of(call);
    for (; rows > 0; rows--) {
        if (!row(shape[last], data, row_strides, call->attrs.i[1],
                 call->operand[indexed].strides[index_axis])) {
            atomic_store(&work->out_of_range, true);
            return;
        }
        for (int axis = last - 1; axis >= 0; axis--) {
            bool carry = ++position[axis] == shape[axis];
            for (int i = 0; i < 3; i++)
                data[i] += (carry ? 1 - shape[axis] : 1) * strides[i][axis] * bytes[i];
            if (!carry)
                break;
            position[axis] = 0;
        }
    }
}

// ------------------------------------------------------------------- rows that have one index each

/// Shorter rows are not worth a look at every index by each thread.
#define TARGET_ROW 64
/// Ranges of targets for each thread, as each looks at all indices.
#define TARGET_SHARES 4

/// Whether rows along the last axis go to one place each, and are long.
static bool has_row_indices(const nd_kernel_call *call) {
    const int last = call->ndim - 1;
    return call->op != ND_OP_gather && (int)call->attrs.i[0] != last &&
           call->operand[1].strides[last] == 0 && call->shape[last] >= TARGET_ROW;
}

/// Of the rows along the index's axis from data on, those that go to [begin, end). Sums of dense rows
/// are the instruction set's.
static bool scatter_line(const nd_kernel_call *call, char *const *data, int64_t begin,
                         int64_t end) {
    const int axis = (int)call->attrs.i[0], last = call->ndim - 1;
    const nd_operand *out = &call->operand[0], *source = &call->operand[2];
    const int64_t size = call->attrs.i[1], n = call->shape[last];
    const int64_t bytes = nd__dtype_bytes(out->dtype), index_step = call->operand[1].strides[axis];
    const int64_t strides[3] = {out->strides[last], 0, source->strides[last]};
    const bool sums = call->op == ND_OP_scatter_add && strides[0] == 1 && strides[2] == 1;
    const nd__loop add = nd__cpu_loops_now()->binary[out->dtype][ND_OP_add];
    const index_row row = row_of(call);
    const int64_t *index = (const int64_t *)data[1];
    for (int64_t i = 0; i < call->shape[axis]; i++, index += index_step) {
        const int64_t at = wrapped(*index, size);
        if ((uint64_t)at >= (uint64_t)size)
            return false;
        if (at < begin || at >= end)
            continue;
        char *from = data[2] + i * source->strides[axis] * bytes;
        char *to = data[0] + at * out->strides[axis] * bytes;
        if (sums)
            add(n, (char *[]){to, to, from}, (int64_t[]){1, 1, 1}, &call->attrs);
        else
            row(n, (char *[]){data[0], (char *)(uintptr_t)index, from}, strides, size,
                out->strides[axis]);
    }
    return true;
}

/// The rows that go to targets [begin, end), in row-major order: a target is written by one thread.
static void scatter_to_targets(void *context, int64_t begin, int64_t end) {
    index_work *work = (index_work *)context;
    const nd_kernel_call *call = work->call;
    const int axis = (int)call->attrs.i[0], last = call->ndim - 1;
    const int64_t lines = nd__call_total(call) / call->shape[axis] / call->shape[last];
    for (int64_t line = 0; line < lines; line++) {
        char *data[3];
        for (int k = 0; k < 3; k++) {
            const nd_operand *operand = &call->operand[k];
            int64_t rest = line, offset = 0;
            for (int other = last - 1; other >= 0; other--) {
                if (other == axis)
                    continue;
                offset += rest % call->shape[other] * operand->strides[other];
                rest /= call->shape[other];
            }
            data[k] = (char *)operand->data + offset * nd__dtype_bytes(operand->dtype);
        }
        if (!scatter_line(call, data, begin, end)) {
            atomic_store(&work->out_of_range, true);
            return;
        }
    }
}

static void scatter_rows(index_work *work, int64_t total) {
    const int64_t size = work->call->attrs.i[1], cost = 4 * total / size;
    const int64_t shares = TARGET_SHARES * nd__cpu_threads();
    if (4 * total < ND__PARALLEL_WORK)
        scatter_to_targets(work, 0, size);
    else
        nd__cpu_parallel(size, cost, (size + shares - 1) / shares, scatter_to_targets, work);
}

/// The same without axes of size 1, but for the indexed one: the last axis is what rows are made of.
static nd_kernel_call without_single_axes(const nd_kernel_call *call) {
    nd_kernel_call less = *call;
    const int indexed = (int)call->attrs.i[0];
    less.ndim = 0;
    for (int axis = 0; axis < call->ndim; axis++) {
        if (call->shape[axis] == 1 && axis != indexed)
            continue;
        if (axis == indexed)
            less.attrs.i[0] = less.ndim;
        less.shape[less.ndim] = call->shape[axis];
        for (int i = 0; i < 3; i++)
            less.operand[i].strides[less.ndim] = call->operand[i].strides[axis];
        less.ndim++;
    }
    return less;
}

static nd_status gather_or_scatter(const nd_kernel_call *given) {
    const int64_t total = nd__call_total(given);
    if (!row_of(given))
        return ND_ERROR_UNSUPPORTED;
    if (total == 0)
        return ND_OK;
    const nd_kernel_call less = without_single_axes(given), *call = &less;
    // The longest axis that is not the indexed one: along that, no two threads meet in a result.
    index_work work = {.call = call, .axis = -1};
    for (int axis = 0; axis < call->ndim; axis++)
        if ((call->op == ND_OP_gather || axis != (int)call->attrs.i[0]) &&
            (work.axis < 0 || call->shape[axis] > call->shape[work.axis]))
            work.axis = axis;
    if (work.axis == call->ndim - 1 && has_row_indices(call)) {
        scatter_rows(&work, total);
    } else if (work.axis < 0) {
        work.axis = 0;
        indexed_rows(&work, 0, call->shape[0]);
    } else {
        int64_t length = call->shape[work.axis];
        nd__cpu_parallel(length, 4 * (total / length), work.axis == call->ndim - 1 ? 16 : 1,
                         indexed_rows, &work);
    }
    return status_of(&work);
}

/// Rows of zeros are written before their ones, no more at once than stay near.
#define ONE_HOT_BYTES 16384

// Ones of rows begin ... end - 1. False: an index is out of range.
#define WRITE_ONES(T)                                                                          \
    static bool write_ones_##T(char *out, uint64_t one, const int64_t *indices, int64_t count, \
                               int64_t classes) {                                              \
        T *row = (T *)(void *)out;                                                             \
        for (int64_t i = 0; i < count; i++, row += classes) {                                  \
            if ((uint64_t)indices[i] >= (uint64_t)classes)                                     \
                return false;                                                                  \
            row[indices[i]] = (T)one;                                                          \
        }                                                                                      \
        return true;                                                                           \
    }
WRITE_ONES(uint8_t)
WRITE_ONES(uint16_t)
WRITE_ONES(uint32_t)
WRITE_ONES(uint64_t)

static void one_hot_rows(void *context, int64_t begin, int64_t end) {
    index_work *work = (index_work *)context;
    const nd_kernel_call *call = work->call;
    nd_dtype dtype = call->operand[0].dtype;
    int64_t classes = call->attrs.i[1], bytes = nd__dtype_bytes(dtype), row = classes * bytes;
    int64_t most = row < ONE_HOT_BYTES ? ONE_HOT_BYTES / row : 1;
    const int64_t *indices = (const int64_t *)call->operand[1].data;
    uint64_t one = 0; // the first bytes are the element
    nd__encode(dtype, 1.0, 1, &one);
    while (begin < end) {
        int64_t count = end - begin < most ? end - begin : most;
        char *out = (char *)call->operand[0].data + begin * row;
        memset(out, 0, (size_t)(count * row));
        if (!(bytes == 8   ? write_ones_uint64_t
              : bytes == 4 ? write_ones_uint32_t
              : bytes == 2 ? write_ones_uint16_t
                           : write_ones_uint8_t)(out, one, indices + begin, count, classes)) {
            atomic_store(&work->out_of_range, true);
            return;
        }
        begin += count;
    }
}

static nd_status one_hot(const nd_kernel_call *call) {
    index_work work = {.call = call};
    int64_t row = call->attrs.i[1] * nd__dtype_bytes(call->operand[0].dtype);
    nd__cpu_parallel(call->attrs.i[0], row / 16 + 1, 1, one_hot_rows, &work);
    return status_of(&work);
}

// Every element is written, and stays where the mask holds: no branch depends on the mask. The end of
// out says when all that are chosen are there.
#define SELECT(T)                                                                             \
    static void select_##T(char *out_, const char *x_, const uint8_t *mask, int64_t chosen) { \
        T *out = (T *)out_, *end = out + chosen;                                              \
        for (const T *x = (const T *)x_; out < end; x++, mask++) {                            \
            *out = *x;                                                                        \
            out += *mask;                                                                     \
        }                                                                                     \
    }
SELECT(uint8_t)
SELECT(uint16_t)
SELECT(uint32_t)
SELECT(uint64_t)

static nd_status masked_select(const nd_kernel_call *call) {
    int64_t bytes = nd__dtype_bytes(call->operand[0].dtype);
    (bytes == 4   ? select_uint32_t
     : bytes == 8 ? select_uint64_t
     : bytes == 2 ? select_uint16_t
                  : select_uint8_t)((char *)call->operand[0].data,
                                    (const char *)call->operand[1].data,
                                    (const uint8_t *)call->operand[2].data, call->attrs.i[1]);
    return ND_OK;
}

/// Numbers of `axes` axes for each element of a row that holds: those of the axes before the last, and
/// its own. Each element's are written, and stay where it holds; eight that do not are one look.
static inline __attribute__((always_inline)) int64_t *
nonzero_row(int64_t *out, const int64_t *end, const uint8_t *mask, int64_t length,
            const int64_t *before, const int axes) {
    for (int64_t i = 0; i < length && out < end;) {
        uint64_t eight = 1;
        int64_t stop = i + 8 <= length ? i + 8 : length;
        if (stop - i == 8)
            memcpy(&eight, mask + i, sizeof eight);
        if (eight == 0) {
            i = stop;
            continue;
        }
        for (; i < stop && out < end; i++) {
            for (int axis = 0; axis < axes - 1; axis++)
                out[axis] = before[axis];
            out[axes - 1] = i;
            out += axes * mask[i];
        }
    }
    return out;
}

static nd_status nonzero(const nd_kernel_call *call) {
    int64_t *out = (int64_t *)call->operand[0].data;
    const uint8_t *mask = (const uint8_t *)call->operand[1].data;
    const int axes = (int)call->attrs.i[2];
    const int64_t *sizes = call->attrs.i + 3, *end = out + call->attrs.i[1] * axes;
    const int64_t length = sizes[axes - 1];
    int64_t at[ND_MAX_DIMS] = {0};
    for (; out < end; mask += length) {
        out = axes == 1   ? nonzero_row(out, end, mask, length, at, 1)
              : axes == 2 ? nonzero_row(out, end, mask, length, at, 2)
              : axes == 3 ? nonzero_row(out, end, mask, length, at, 3)
                          : nonzero_row(out, end, mask, length, at, axes);
        for (int axis = axes - 2; axis >= 0 && ++at[axis] == sizes[axis]; axis--)
            at[axis] = 0;
    }
    return ND_OK;
}

nd_status nd__cpu_index(const nd_kernel_call *call) {
    switch (call->op) {
    case ND_OP_take:
        return take(call);
    case ND_OP_gather:
    case ND_OP_scatter_add:
    case ND_OP_scatter_reduce:
        return gather_or_scatter(call);
    case ND_OP_one_hot:
        return one_hot(call);
    case ND_OP_masked_select:
        return masked_select(call);
    case ND_OP_nonzero:
        return nonzero(call);
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
