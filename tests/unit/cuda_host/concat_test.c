// concat, of COPY: the CUDA kernel, compiled for the host, against the CPU's: the same bits, and nothing
// written beside them.
#include "tests/unit/cuda_host/harness.h"
#include "tests/unit/cuda_host/tests.h"

enum { MOST_PARTS = ND_MAX_OPERANDS - 1, ROUNDS = 400 };

/// An operand of rows in memory of its own: elements before the first row, from one row to the next (from
/// the last up, where that is below 0), and in a row.
typedef struct rows_place {
    int64_t before, stride, run;
} rows_place;

/// `place[0]` is the result's, whose run is not looked at.
static void join_rows(nd_dtype dtype, int parts, int64_t rows, const rows_place *place) {
    nd_kernel_call call = {.op = ND_OP_concat, .noperands = 1 + parts, .ndim = 1, .shape = {rows}};
    const size_t bytes = dtype_bytes(dtype);
    int64_t columns = 0;
    for (int k = 1; k <= parts; k++) {
        const rows_place *at = &place[k];
        const int64_t apart = at->stride < 0 ? -at->stride : at->stride;
        char *data = special_values(dtype, at->before + (rows - 1) * apart + at->run);
        data += (size_t)at->before * bytes;
        data += at->stride < 0 ? (size_t)((rows - 1) * apart) * bytes : 0;
        call.operand[k] = (nd_operand){data, dtype, {at->stride}};
        call.attrs.i[k - 1] = at->run;
        columns += at->run;
    }
    // Some elements behind each row, which nobody may touch.
    const int64_t stride = columns + place[0].stride, length = rows * stride + 1;
    char *out = values(dtype, place[0].before + length);
    call.operand[0] = (nd_operand){out + (size_t)place[0].before * bytes, dtype, {stride}};
    assert_int_equal(both(&call, 1, &length, 0), ND_OK);
}

/// Parts of every number and length, empty ones too, from any place on, with gaps between rows, the same
/// row again, and rows in the other order.
void test_rows_behind_each_other_agree(void **state) {
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        const int parts = 1 + (int)pick(MOST_PARTS);
        const int64_t rows = pick(3) ? 1 + pick(40) : 1, most = pick(5) ? 20 : 3000;
        rows_place place[1 + MOST_PARTS] = {{pick(9), pick(4), 0}};
        for (int k = 1; k <= parts; k++) {
            const int64_t run = pick(6) ? pick(most) : 0, stride = run + pick(4);
            place[k] = (rows_place){pick(9), pick(8) == 0 ? 0 : pick(4) ? stride : -stride, run};
        }
        join_rows((nd_dtype)(round % ND_DTYPE_COUNT), parts, rows, place);
        free_values();
    }
}

/// Where all lies at multiples of 32 bytes but for one place, which has a multiple of 1, 2, 4, 8 or 16.
void test_rows_in_units_of_every_size(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_U8, ND_BF16, ND_F32, ND_F64};
    enum { PARTS = 3, NUMBERS = 3 * (1 + PARTS) };
    for (int which = 0; which < 4; which++) {
        const int64_t bytes = (int64_t)dtype_bytes(dtypes[which]), far = 32 / bytes;
        for (int64_t unit = bytes; unit <= 32; unit *= 2)
            for (int odd = 0; odd < NUMBERS; odd++)
                for (int64_t rows = 1; rows <= 7; rows += 6) {
                    int64_t number[NUMBERS];
                    for (int i = 0; i < NUMBERS; i++)
                        number[i] = far * (1 + pick(9)) + (i == odd ? unit / bytes : 0);
                    rows_place place[1 + PARTS];
                    for (int k = 0; k <= PARTS; k++)
                        place[k] =
                            (rows_place){number[3 * k], number[3 * k + 1], number[3 * k + 2]};
                    // A part's rows are as far apart as they are long, at least.
                    for (int k = 1; k <= PARTS; k++)
                        place[k].stride += place[k].run + (far - place[k].run % far) % far;
                    join_rows(dtypes[which], PARTS, rows, place);
                }
        free_values();
    }
}
