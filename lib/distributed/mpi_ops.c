// Reductions for MPI.
//
// Invariant: an operation gives the same bits whichever of its operands comes first (of NaNs the
// sign and payload aside), so that all ranks get the same result from any tree of pairs.
#if ND_HAVE_MPI
#include "lib/distributed/mpi_ops.h"
#include "kernels/half.h"

#include <stddef.h>

/// Of what dtypes the operations are that MPI has not.
enum { OF_F16, OF_BF16, OF_F32, OF_F64, OF_I8, OF_I16, OF_U8, OF_U16, OF_U32, OF_U64, OWN_DTYPES };

static MPI_Op own[OWN_DTYPES][3]; ///< by nd_collective: sum, (mean,) max, min
static bool made[OWN_DTYPES][3];

MPI_Datatype nd__mpi_ops_type(nd_dtype dtype) {
    switch (dtype) {
    case ND_I8:
        return MPI_INT8_T;
    case ND_I16:
        return MPI_INT16_T;
    case ND_I32:
        return MPI_INT32_T;
    case ND_I64:
        return MPI_INT64_T;
    case ND_U16:
    case ND_F16:
    case ND_BF16:
        return MPI_UINT16_T;
    case ND_U32:
        return MPI_UINT32_T;
    case ND_U64:
        return MPI_UINT64_T;
    case ND_F32:
        return MPI_FLOAT;
    case ND_F64:
        return MPI_DOUBLE;
    default:
        return MPI_UINT8_T;
    }
}

#define SAME(x) (x)
#define ADD(a, b) ((a) + (b))
#define LARGEST(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define SMALLEST(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define SMALLER(a, b) ((a) < (b) ? (a) : (b))

#define OPERATION(name, type, wide, load, store, COMBINE)                          \
    static void name(void *in, void *in_out, int *count, MPI_Datatype *datatype) { \
        (void)datatype;                                                            \
        const type *x = in;                                                        \
        type *y = in_out;                                                          \
        for (int i = 0; i < *count; i++) {                                         \
            wide a = load(x[i]), b = load(y[i]);                                   \
            y[i] = store(COMBINE(a, b));                                           \
        }                                                                          \
    }

OPERATION(f16_sum, uint16_t, float, nd__f16_to_f32, nd__f32_to_f16, ADD)
OPERATION(f16_max, uint16_t, float, nd__f16_to_f32, nd__f32_to_f16, LARGEST)
OPERATION(f16_min, uint16_t, float, nd__f16_to_f32, nd__f32_to_f16, SMALLEST)
OPERATION(bf16_sum, uint16_t, float, nd__bf16_to_f32, nd__f32_to_bf16, ADD)
OPERATION(bf16_max, uint16_t, float, nd__bf16_to_f32, nd__f32_to_bf16, LARGEST)
OPERATION(bf16_min, uint16_t, float, nd__bf16_to_f32, nd__f32_to_bf16, SMALLEST)
OPERATION(f32_max, float, float, SAME, SAME, LARGEST)
OPERATION(f32_min, float, float, SAME, SAME, SMALLEST)
OPERATION(f64_max, double, double, SAME, SAME, LARGEST)
OPERATION(f64_min, double, double, SAME, SAME, SMALLEST)
// Of either sign: the bits of a sum that wraps around are the same.
OPERATION(sum_of_8, uint8_t, unsigned, SAME, (uint8_t), ADD)
OPERATION(sum_of_16, uint16_t, unsigned, SAME, (uint16_t), ADD)
OPERATION(u8_max, uint8_t, uint8_t, SAME, SAME, LARGER)
OPERATION(u8_min, uint8_t, uint8_t, SAME, SAME, SMALLER)
OPERATION(u16_max, uint16_t, uint16_t, SAME, SAME, LARGER)
OPERATION(u16_min, uint16_t, uint16_t, SAME, SAME, SMALLER)
OPERATION(u32_max, uint32_t, uint32_t, SAME, SAME, LARGER)
OPERATION(u32_min, uint32_t, uint32_t, SAME, SAME, SMALLER)
OPERATION(u64_max, uint64_t, uint64_t, SAME, SAME, LARGER)
OPERATION(u64_min, uint64_t, uint64_t, SAME, SAME, SMALLER)

static MPI_User_function *const functions[OWN_DTYPES][3] = {
    [OF_F16] = {f16_sum, f16_max, f16_min}, [OF_BF16] = {bf16_sum, bf16_max, bf16_min},
    [OF_F32] = {NULL, f32_max, f32_min},    [OF_F64] = {NULL, f64_max, f64_min},
    [OF_I8] = {sum_of_8, NULL, NULL},       [OF_I16] = {sum_of_16, NULL, NULL},
    [OF_U8] = {sum_of_8, u8_max, u8_min},   [OF_U16] = {sum_of_16, u16_max, u16_min},
    [OF_U32] = {NULL, u32_max, u32_min},    [OF_U64] = {NULL, u64_max, u64_min},
};

/// OWN_DTYPES: MPI's own serve for it.
static int find(nd_dtype dtype) {
    switch (dtype) {
    case ND_F16:
        return OF_F16;
    case ND_BF16:
        return OF_BF16;
    case ND_F32:
        return OF_F32;
    case ND_F64:
        return OF_F64;
    case ND_I8:
        return OF_I8;
    case ND_I16:
        return OF_I16;
    case ND_U8:
        return OF_U8;
    case ND_U16:
        return OF_U16;
    case ND_U32:
        return OF_U32;
    case ND_U64:
        return OF_U64;
    default:
        return OWN_DTYPES;
    }
}

int nd__mpi_ops_get(nd_dtype dtype, nd_collective op, MPI_Op *ret_op) {
    int which = op == ND_COLLECTIVE_MAX ? 1 : op == ND_COLLECTIVE_MIN ? 2 : 0;
    int of = find(dtype);
    if (of == OWN_DTYPES || !functions[of][which]) {
        *ret_op = which == 0 ? MPI_SUM : which == 1 ? MPI_MAX : MPI_MIN;
        return MPI_SUCCESS;
    }
    int answer =
        made[of][which] ? MPI_SUCCESS : MPI_Op_create(functions[of][which], 1, &own[of][which]);
    if (answer == MPI_SUCCESS) {
        made[of][which] = true;
        *ret_op = own[of][which];
    }
    return answer;
}

#define DIVIDE(type, wide, load, store) \
    for (int64_t i = 0; i < count; i++) \
    ((type *)data)[i] = store(load(((type *)data)[i]) / (wide)divisor)

void nd__mpi_ops_divide(void *data, int64_t count, nd_dtype dtype, int divisor) {
    if (dtype == ND_F32)
        DIVIDE(float, float, SAME, SAME);
    else if (dtype == ND_F64)
        DIVIDE(double, double, SAME, SAME);
    else if (dtype == ND_F16)
        DIVIDE(uint16_t, float, nd__f16_to_f32, nd__f32_to_f16);
    else
        DIVIDE(uint16_t, float, nd__bf16_to_f32, nd__f32_to_bf16);
}

void nd__mpi_ops_free(void) {
    for (int of = 0; of < OWN_DTYPES; of++)
        for (int which = 0; which < 3; which++)
            if (made[of][which]) {
                MPI_Op_free(&own[of][which]);
                made[of][which] = false;
            }
}
#else
_Static_assert(1, "no MPI");
#endif
