// What rules_test.c checks a row of ops.inc by.
//
// A case belongs to a row: its graph must contain a node of it.
#ifndef ND_TESTS_UNIT_AUTOGRAD_RULE_CASE_H
#define ND_TESTS_UNIT_AUTOGRAD_RULE_CASE_H
#include "lib/autograd/autograd.h"
#include <nd/autograd.h>

enum { MAX_INPUTS = 3 };

typedef struct input {
    int ndim;
    int64_t shape[ND_MAX_DIMS];
    double low, high;
} input;

typedef struct rule_case {
    nd_op op;
    nd_gradcheck_function f;
    int count;
    input inputs[MAX_INPUTS];
    nd_dtype dtype;        ///< 0: f64
    double eps, tolerance; ///< 0: 1e-6 and 1e-4
} rule_case;

#define F(name) static nd_tensor *name(size_t count, const nd_tensor *const *x, void *data)
#define UNUSED ((void)count, (void)data)
#endif
