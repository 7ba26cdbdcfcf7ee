// What the two kernels of attention (attention.c, attention_grad.c) share: batch entries and tiles.
#ifndef ND_KERNELS_CPU_ATTENTION_H
#define ND_KERNELS_CPU_ATTENTION_H
#include "kernels/cpu/families.h"
#include "kernels/cpu/scratch.h"

/// Multiplications that take as long as one addition of floats by itself.
#define ND__ATTENTION_SPEED 16

/// Fewer queries than these leave most of a vector empty, unless it takes no longer than the calls of
/// lib/ops' operations: so many multiplications of vectors' worth of queries.
#define ND__ATTENTION_FEW 8
#define ND__ATTENTION_LITTLE ((int64_t)1 << 20)

/// Whether tiles are no slower than the operations of lib/ops.
static inline bool nd__attention_suits(const nd_kernel_call *call) {
    const int64_t *i = call->attrs.i;
    if (i[2] > ND__ATTENTION_MOST_SIZE || i[3] > ND__ATTENTION_MOST_SIZE)
        return false;
    const int64_t whole_vectors = nd__call_total(call) * 16 * i[1] * (i[2] + i[3]);
    return i[0] >= ND__ATTENTION_FEW || whole_vectors <= ND__ATTENTION_LITTLE;
}

static inline int64_t nd__attention_tiles(const nd_kernel_call *call) {
    return (call->attrs.i[0] + ND__ATTENTION_QUERIES - 1) / ND__ATTENTION_QUERIES;
}

/// The thread's working memory for a tile; NULL when there is none.
static inline void *nd__attention_room(const nd_kernel_call *call, nd_dtype dtype) {
    return nd__cpu_scratch(
        (size_t)(ND__ATTENTION_ROOM(call->attrs.i[2], call->attrs.i[3]) * nd__dtype_bytes(dtype)));
}

/// The operands' first elements of a batch entry; NULL where there are no data.
static inline void nd__attention_entry(const nd_kernel_call *call, int64_t batch,
                                       char *ret_data[ND_MAX_OPERANDS]) {
    for (int which = 0; which < call->noperands; which++) {
        const nd_operand *operand = &call->operand[which];
        int64_t rest = batch, offset = 0;
        for (int axis = call->ndim - 1; axis >= 0; axis--) {
            offset += rest % call->shape[axis] * operand->strides[axis];
            rest /= call->shape[axis];
        }
        ret_data[which] =
            operand->data ? (char *)operand->data + offset * nd__dtype_bytes(operand->dtype) : NULL;
    }
}

/// What all tiles of a call have in common. `query` is that operand's number, which key, value and
/// mask follow.
static inline nd__attention_tile nd__attention_tile_of(const nd_kernel_call *call, int query) {
    const int64_t *i = call->attrs.i;
    return (nd__attention_tile){.keys = i[1],
                                .size = i[2],
                                .value_size = i[3],
                                .query_stride = i[4],
                                .key_stride = i[5],
                                .value_stride = i[6],
                                .mask_row_stride = i[8],
                                .mask_key_stride = i[9],
                                .mask_is_bool = call->operand[query + 3].dtype == ND_BOOL,
                                .causal = i[10] != 0,
                                .scale = call->attrs.f[0]};
}

/// Moves the tile to a batch entry, whose query, key, value and mask these are, and to its `number`th
/// queries, of `rows`.
static inline void nd__attention_place(nd__attention_tile *tile, char *const *operands,
                                       int64_t rows, int64_t number) {
    tile->query = operands[0];
    tile->key = operands[1];
    tile->value = operands[2];
    tile->mask = operands[3];
    tile->row = number * ND__ATTENTION_QUERIES;
    const int64_t left = rows - tile->row;
    tile->rows = left < ND__ATTENTION_QUERIES ? left : ND__ATTENTION_QUERIES;
}
#endif
