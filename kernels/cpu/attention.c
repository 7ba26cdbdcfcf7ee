// attention: few queries with few keys each by itself, more in tiles of queries, which threads share.
//
// A tile sees all keys, part by part, and keeps of each query the largest score so far, the sum of the
// powers below it and the sum of values weighted with them; both sums are scaled when a larger score
// comes (Milakov, Gimelshein 2018; Dao et al. 2022). Scores exist for one tile and part at a time, in
// the thread's working memory (attention_loops.c). Tiles are cut by sizes alone, and so the bits are the
// same for any number of threads.
#include "kernels/cpu/attention.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include <math.h>
#include <stdatomic.h>

/// Keys, and products in all, up to which the sums here are quicker than operations: 1.9 us for 9.0
/// with 2,048 products on a Zen 4, but 20 for 8 with 16,384.
#define MOST_KEYS 128
#define MOST_PRODUCTS ((int64_t)1 << 12)

/// One batch: its first elements, and sizes and strides as in kernels/kernel.h.
typedef struct attended {
    const nd_kernel_call *call;
    char *data[ND_MAX_OPERANDS];
} attended;

enum { OUT, LOG_SUMS, QUERY, KEY, VALUE, MASK }; // in kernels/kernel.h's order

#define ATTENTION(T, EXP, LOG)                                                                 \
    /* The score of a key that the mask hides is -infinity. */                                 \
    static T score_##T(const attended *a, int64_t row, int64_t key) {                          \
        const int64_t *i = a->call->attrs.i;                                                   \
        const T *q = (const T *)a->data[QUERY] + row * i[4];                                   \
        const T *k = (const T *)a->data[KEY] + key * i[5];                                     \
        int64_t seen = row * i[8] + key * i[9];                                                \
        T dot = 0;                                                                             \
        for (int64_t e = 0; e < i[2]; e++)                                                     \
            dot += q[e] * k[e];                                                                \
        dot *= (T)a->call->attrs.f[0];                                                         \
        if (i[10] && key > row)                                                                \
            return -(T)INFINITY;                                                               \
        if (!a->data[MASK])                                                                    \
            return dot;                                                                        \
        if (a->call->operand[MASK].dtype == ND_BOOL)                                           \
            return ((const uint8_t *)a->data[MASK])[seen] ? dot : -(T)INFINITY;                \
        return dot + ((const T *)a->data[MASK])[seen];                                         \
    }                                                                                          \
    static void attend_row_##T(const attended *a, int64_t row) {                               \
        const int64_t *i = a->call->attrs.i;                                                   \
        T powers[MOST_KEYS], largest = -(T)INFINITY, sum = 0;                                  \
        T *out = (T *)a->data[OUT] + row * i[7];                                               \
        for (int64_t key = 0; key < i[1]; key++) {                                             \
            powers[key] = score_##T(a, row, key);                                              \
            largest = powers[key] > largest ? powers[key] : largest;                           \
        }                                                                                      \
        T base = largest == -(T)INFINITY ? 0 : largest;                                        \
        for (int64_t key = 0; key < i[1]; key++)                                               \
            sum += powers[key] = EXP(powers[key] - base);                                      \
        for (int64_t column = 0; column < i[3]; column++)                                      \
            out[column] = 0;                                                                   \
        for (int64_t key = 0; key < i[1]; key++)                                               \
            for (int64_t column = 0; column < i[3]; column++)                                  \
                out[column] += powers[key] * ((const T *)a->data[VALUE])[key * i[6] + column]; \
        for (int64_t column = 0; column < i[3]; column++)                                      \
            out[column] /= sum == 0 ? 1 : sum;                                                 \
        T log_sum = LOG(sum) + largest;                                                        \
        ((T *)a->data[LOG_SUMS])[row] = log_sum == -(T)INFINITY ? (T)INFINITY : log_sum;       \
    }

ATTENTION(float, expf, logf)
ATTENTION(double, exp, log)

static void attend_rows(const nd_kernel_call *call, int64_t batches) {
    const int64_t rows = call->attrs.i[0];
    for (int64_t batch = 0; batch < batches; batch++) {
        attended a = {.call = call};
        nd__attention_entry(call, batch, a.data);
        for (int64_t row = 0; row < rows; row++)
            if (call->operand[OUT].dtype == ND_F32)
                attend_row_float(&a, row);
            else
                attend_row_double(&a, row);
    }
}

// -------------------------------------------------------------------------------------------- tiles

typedef struct attention_work {
    const nd_kernel_call *call;
    const nd__attention_loops *loops;
    int64_t tiles; ///< of a batch entry
    atomic_bool failed;
} attention_work;

static void attend_tiles(void *context, int64_t begin, int64_t end) {
    attention_work *work = (attention_work *)context;
    const nd_kernel_call *call = work->call;
    nd__attention_tile tile = nd__attention_tile_of(call, QUERY);
    tile.room = nd__attention_room(call, call->operand[OUT].dtype);
    if (!tile.room) {
        atomic_store(&work->failed, true);
        return;
    }
    tile.out_stride = call->attrs.i[7];
    for (int64_t at = begin; at < end; at++) {
        char *data[ND_MAX_OPERANDS];
        nd__attention_entry(call, at / work->tiles, data);
        nd__attention_place(&tile, data + QUERY, call->attrs.i[0], at % work->tiles);
        tile.out = data[OUT];
        tile.log_sums = data[LOG_SUMS];
        work->loops->forward(&tile);
    }
}

nd_status nd__cpu_attention(const nd_kernel_call *call) {
    const int64_t *i = call->attrs.i;
    const int type = nd__float_index(call->operand[OUT].dtype);
    const int64_t batches = nd__call_total(call), products = i[0] * i[1] * (i[2] + i[3]);
    if (type < 0)
        return ND_ERROR_UNSUPPORTED;
    if (i[1] <= MOST_KEYS && batches * products <= MOST_PRODUCTS) {
        attend_rows(call, batches);
        return ND_OK;
    }
    if (!nd__attention_suits(call))
        return ND_ERROR_UNSUPPORTED;
    attention_work work = {.call = call,
                           .loops = &nd__cpu_loops_now()->attention[type],
                           .tiles = nd__attention_tiles(call)};
    nd__cpu_parallel(batches * work.tiles, products / work.tiles / ND__ATTENTION_SPEED, 1,
                     attend_tiles, &work);
    return atomic_load(&work.failed) ? ND_ERROR_OUT_OF_MEMORY : ND_OK;
}
