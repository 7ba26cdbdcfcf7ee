// What cuDNN's graph interface makes of a call of attention: descriptors, and the plan that runs it.
//
// Whatever opens the library gives the functions, and either a handle or a description of a device
// that need not be there (tests/cudart/real_cudnn_test.c has plans made for such).
#ifndef ND_LIB_DEVICE_CUDA_CUDNN_PLAN_H
#define ND_LIB_DEVICE_CUDA_CUDNN_PLAN_H
#include "lib/device/cuda/library_numbers.h"
#include <stdbool.h>

/// cuDNN's functions, each of which answers a status.
typedef struct nd_dnn_backend {
    int (*create)(int kind, void **ret_made);
    int (*destroy)(void *made);
    int (*set)(void *made, int attribute, int type, int64_t count, const void *values);
    int (*get)(void *made, int attribute, int type, int64_t room, int64_t *ret_count,
               void *ret_values);
    int (*finalize)(void *made);
    int (*execute)(void *handle, void *plan, void *pack);
} nd_dnn_backend;

/// All that decides a plan. There is no padding: it is compared byte by byte.
typedef struct nd_dnn_attention {
    int64_t type;   ///< of queries, keys, values and the result: ND__DNN_F16 or ND__DNN_BF16
    int64_t causal; ///< 1: query i sees keys 0 ... i
    int64_t batches, heads;
    int64_t key_heads; ///< each of which serves as many neighbouring heads
    int64_t queries, keys, length, value_length;
    /// Strides of batches, heads and rows, whose elements lie one behind the other. The logarithms
    /// of sums, f32, are dense.
    int64_t query[3], key[3], value[3], out[3];
} nd_dnn_attention;

enum { ND__DNN_PARTS = 32 };

typedef struct nd_dnn_plan {
    void *plan; ///< NULL: none
    size_t workspace;
    bool causal;
    void *parts[ND__DNN_PARTS]; ///< owned: all that it is made of, itself included
    int count;
} nd_dnn_plan;

/// Where a plan reads and writes.
typedef struct nd_dnn_memory {
    const void *query, *key, *value;
    void *out, *log_sums;
    void *workspace; ///< NULL where it needs none
    float scale;
} nd_dnn_memory;

/// The first plan that cuDNN's heuristic names which gives the same bits every time, multiplies what
/// it is given with sums in f32, and asks for no more working memory than `most`. One of `handle` and
/// `described`, a descriptor, is NULL. A status of cuDNN's; with another than success there is
/// nothing in *ret_plan.
int nd__cudnn_plan_make(const nd_dnn_backend *backend, void *handle, void *described,
                        const nd_dnn_attention *attention, size_t most, nd_dnn_plan *ret_plan);
/// Destroys what is in it.
void nd__cudnn_plan_release(const nd_dnn_backend *backend, nd_dnn_plan *plan);
/// Queues it on the handle's stream. A status of cuDNN's.
int nd__cudnn_plan_run(const nd_dnn_backend *backend, void *handle, const nd_dnn_plan *plan,
                       const nd_dnn_memory *memory);
#endif
