// Attention by blocks: a tile of scores, some queries by some keys, at a time.
//
// Invariant: no tensor has an axis of queries and one of keys that are longer than a tile, but
// those that are handed in (a mask) or asked for (its gradient). Nothing here is recorded; call it
// inside nd_no_grad.
#ifndef ND_LIB_OPS_ATTENTION_BLOCKS_H
#define ND_LIB_OPS_ATTENTION_BLOCKS_H
#include "lib/tensor/tensor.h"

/// What is attended with. Leading axes broadcast to query's.
typedef struct nd__attention {
    const nd_tensor *query; ///< [..., l, e], of f32 or f64 like key and value
    const nd_tensor *key;   ///< [..., s, e]
    const nd_tensor *value; ///< [..., s, v]
    const nd_tensor *mask;  ///< broadcasts to [..., l, s]: bool, or added to the scores; or NULL
    double scale;           ///< of the scores
    double dropout;         ///< probability
    nd_key seed;            ///< of the dropout
    bool causal;            ///< query i sees keys 0 ... i
} nd__attention;

/// The result, [..., l, v], and the logarithm of each row's sum of powers, [..., l, 1]; infinity
/// for a row that sees nothing, whose result is 0.
nd_status nd__attention_blocks_forward(const nd__attention *a, nd_tensor **ret_result,
                                       nd_tensor **ret_log_sums);
/// Gradients of query, key, value and mask, in this order, where `wanted`.
nd_status nd__attention_blocks_backward(const nd__attention *a, const nd_tensor *grad,
                                        const nd_tensor *result, const nd_tensor *log_sums,
                                        const bool *wanted, nd_tensor **ret_grads);
/// The dropout's factors of all scores, [..., l, s], as both of these use them: for a caller that
/// has a tensor of that shape anyway.
nd_tensor *nd__attention_blocks_factors(const nd__attention *a);
/// Whether query `row` + i sees key `column` + j, for so many rows and columns: [rows, columns].
nd_tensor *nd__attention_blocks_seen(const nd_tensor *like, int64_t row, int64_t rows,
                                     int64_t column, int64_t columns);
#endif
