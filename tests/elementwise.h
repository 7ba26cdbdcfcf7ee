// The elementwise operations with public functions, from kernels/ops.inc, for tests that try every
// one of them.
#ifndef ND_TESTS_ELEMENTWISE_H
#define ND_TESTS_ELEMENTWISE_H
#include "kernels/kernel.h"
#include <nd/nd.h>

/// Dtypes that an operation takes: the names of the table's column.
typedef enum elementwise_types {
    TAKES_ANY,
    TAKES_NUMBER,
    TAKES_FLOAT,
    TAKES_INTEGER,
    TAKES_BITS,
    TAKES_BOOL
} elementwise_types;

typedef struct elementwise_row {
    const char *name;
    nd_op op;
    elementwise_types types;
    int operands;
    bool gives_bool;
    bool has_gradient;
    double domain[4]; ///< of a, then of b; where it has a gradient
    /// nd_<name> of a, and of b, p, q where it takes them.
    nd_tensor *(*run)(const nd_tensor *a, const nd_tensor *b, nd_number p, nd_number q);
    /// nd_<name>_out of the same.
    nd_status (*write)(const nd_tensor *a, const nd_tensor *b, nd_number p, nd_number q,
                       nd_tensor *out);
} elementwise_row;

static inline bool elementwise_is_float(nd_dtype dtype) {
    return dtype == ND_F64 || dtype == ND_F32 || dtype == ND_F16 || dtype == ND_BF16;
}

/// Whether operands promoted to that dtype are taken.
static inline bool elementwise_takes(const elementwise_row *row, nd_dtype dtype) {
    switch (row->types) {
    case TAKES_ANY:
        return true;
    case TAKES_NUMBER:
    case TAKES_FLOAT:
        return dtype != ND_BOOL;
    case TAKES_INTEGER:
        return dtype != ND_BOOL && !elementwise_is_float(dtype);
    case TAKES_BITS:
        return !elementwise_is_float(dtype);
    case TAKES_BOOL:
        return dtype == ND_BOOL;
    }
    return false;
}

/// dtype of the result for operands that were promoted to that dtype.
static inline nd_dtype elementwise_result(const elementwise_row *row, nd_dtype dtype) {
    if (row->gives_bool)
        return ND_BOOL;
    return row->types == TAKES_FLOAT && !elementwise_is_float(dtype) ? ND_F32 : dtype;
}

// Expansions of one row for each form of the public function.
#define ELEMENTWISE_DEFINE(name, call, write)                                                    \
    static inline nd_tensor *elementwise_##name(const nd_tensor *a, const nd_tensor *b,          \
                                                nd_number p, nd_number q) {                      \
        (void)b, (void)p, (void)q;                                                               \
        return call;                                                                             \
    }                                                                                            \
    static inline nd_status elementwise_##name##_out(const nd_tensor *a, const nd_tensor *b,     \
                                                     nd_number p, nd_number q, nd_tensor *out) { \
        (void)b, (void)p, (void)q;                                                               \
        return write;                                                                            \
    }
#define ELEMENTWISE_DEFINE_NONE(name)
#define ELEMENTWISE_DEFINE_X(name) ELEMENTWISE_DEFINE(name, nd_##name(a), nd_##name##_out(a, out))
#define ELEMENTWISE_DEFINE_XP(name) \
    ELEMENTWISE_DEFINE(name, nd_##name(a, p), nd_##name##_out(a, p, out))
#define ELEMENTWISE_DEFINE_XPQ(name) \
    ELEMENTWISE_DEFINE(name, nd_##name(a, p, q), nd_##name##_out(a, p, q, out))
#define ELEMENTWISE_DEFINE_AB(name) \
    ELEMENTWISE_DEFINE(name, nd_##name(a, b), nd_##name##_out(a, b, out))

#define ND_UNARY(name, types, expression, cost, differentiable, saves, form, ...) \
    ELEMENTWISE_DEFINE_##form(name)
#define ND_BINARY ND_UNARY
#define ND_COMPARE ND_UNARY
#define ND_LOGICAL ND_UNARY
#define ND_PREDICATE ND_UNARY
#include "kernels/ops.inc"

#define ELEMENTWISE_YES true
#define ELEMENTWISE_NO false
#define ELEMENTWISE_ZERO false
#define ELEMENTWISE_DOMAIN(...) __VA_ARGS__
#define ELEMENTWISE_ROW(name, types, operands, gives_bool, differentiable, domain) \
    {#name,                                                                        \
     ND_OP_##name,                                                                 \
     TAKES_##types,                                                                \
     operands,                                                                     \
     gives_bool,                                                                   \
     ELEMENTWISE_##differentiable,                                                 \
     {ELEMENTWISE_DOMAIN domain},                                                  \
     elementwise_##name,                                                           \
     elementwise_##name##_out},
#define ELEMENTWISE_ROW_NONE(...)
#define ELEMENTWISE_ROW_X(name, types, ...) ELEMENTWISE_ROW(name, types, 1, __VA_ARGS__)
#define ELEMENTWISE_ROW_XP(name, types, ...) ELEMENTWISE_ROW(name, types, 1, __VA_ARGS__)
#define ELEMENTWISE_ROW_XPQ(name, types, ...) ELEMENTWISE_ROW(name, types, 1, __VA_ARGS__)
#define ELEMENTWISE_ROW_AB(name, types, ...) ELEMENTWISE_ROW(name, types, 2, __VA_ARGS__)

static const elementwise_row elementwise_rows[] = {
#define ND_UNARY(name, types, expression, cost, differentiable, saves, form, domain, ...) \
    ELEMENTWISE_ROW_##form(name, types, false, differentiable, domain)
#define ND_BINARY ND_UNARY
#define ND_COMPARE(name, types, expression, cost, differentiable, saves, form, domain, ...) \
    ELEMENTWISE_ROW_##form(name, types, true, differentiable, domain)
#define ND_LOGICAL ND_COMPARE
#define ND_PREDICATE ND_COMPARE
#include "kernels/ops.inc"
};

enum { ELEMENTWISE_ROWS = sizeof elementwise_rows / sizeof *elementwise_rows };
#endif
