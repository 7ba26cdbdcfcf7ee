// A tile of attention, forward and backward, for f32 and f64 (attention.c decides which queries and
// on which threads).
#include "kernels/cpu/exp_vectors.h"
#include "kernels/cpu/math_f32.h"
#include "kernels/cpu/softmax_vectors.h"

extern const nd__direct ND_ISA_NAME(nd__cpu_direct)[2];

/// Exponentials, each at most 1, that are added up as they are before the sum goes on in double.
#define ND__POWERS_RUN 64

/// From one key's scores to the next one's.
#define ND__LD ND__ATTENTION_QUERIES
/// Queries that are computed together, on every instruction set.
#define ND__TOGETHER 16

/// Rows and columns of what is turned round at once.
#define ND__TURNED 4

typedef struct nd__tile_keys {
    int64_t first, count;
} nd__tile_keys;

/// Columns of the tile of scores that are computed: whole vectors.
static int64_t columns_of(const nd__attention_tile *t) {
    return (t->rows + ND__TOGETHER - 1) / ND__TOGETHER * ND__TOGETHER;
}

/// Before the first of them.
static nd__tile_keys no_keys(const nd__attention_tile *t) {
    return (nd__tile_keys){t->first_key, 0};
}

/// The next keys that any of the queries sees; false: there are none.
static bool next_keys(const nd__attention_tile *t, nd__tile_keys *keys) {
    const int64_t seen = t->causal && t->row + t->rows < t->keys ? t->row + t->rows : t->keys;
    keys->first += keys->count;
    const int64_t left = seen - keys->first;
    keys->count = left < ND__ATTENTION_KEYS ? left : ND__ATTENTION_KEYS;
    return left > 0;
}

#if ND__HAVE_SIXTEEN
/// Puts e^(x - base) into each of `keys` rows, and adds up those of a column where sums are given.
static bool powers_f32(float *x, int64_t keys, int64_t columns, const float *base, float *sums) {
    for (int64_t column = 0; column < columns; column += 16) {
        const __m512 below = _mm512_loadu_ps(base + column);
        __m512 sum = _mm512_setzero_ps();
        float *at = x + column;
        for (int64_t key = 0; key < keys; key++, at += ND__LD) {
            const __m512 e = nd__exp_vectors_of(_mm512_sub_ps(_mm512_loadu_ps(at), below));
            _mm512_storeu_ps(at, e);
            sum = _mm512_add_ps(sum, e);
        }
        if (sums)
            _mm512_storeu_ps(sums + column, sum);
    }
    return true;
}
#else
#define powers_f32(x, keys, columns, base, sums) false
#endif
#define powers_f64(x, keys, columns, base, sums) false

// The order of these includes is what they mean; it must not be sorted.
// clang-format off
#include "kernels/cpu/type_f32.inc"
#define DIRECT ND_ISA_NAME(nd__cpu_direct)[0]
#include "kernels/cpu/attention.inc"
#include "kernels/cpu/attention_grad.inc"
#undef DIRECT
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_f64.inc"
#define DIRECT ND_ISA_NAME(nd__cpu_direct)[1]
#include "kernels/cpu/attention.inc"
#include "kernels/cpu/attention_grad.inc"
#undef DIRECT
#include "kernels/cpu/type_end.inc"
// clang-format on

const nd__attention_loops ND_ISA_NAME(nd__cpu_attention_loops)[2] = {
    {forward_f32, backward_f32},
    {forward_f64, backward_f64},
};
