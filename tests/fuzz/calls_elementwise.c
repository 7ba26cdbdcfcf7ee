// Calls of the elementwise operations, made from kernels/ops.inc: as functions, with the oracle of
// tensors.h, and into tensors that are there.
#include "tests/elementwise.h"
#include "tests/fuzz/tensors.h"
#include <string.h>

typedef nd_status (*writer)(const nd_tensor *a, const nd_tensor *b, nd_number p, nd_number q,
                            nd_tensor *out);

enum { WRITES = 16, FITS = 32 }; ///< of a step's number a

static nd_status write_to(writer write, const nd_tensor *const *in, const fuzz_step *s,
                          nd_tensor *out) {
    nd_number p = ND_NUMBER(fuzz_value(s->c)), q = ND_NUMBER(fuzz_value(s->c / 16));
    return write(in[0], in[1], p, q, out);
}

/// A tensor of the function's form, in which the same bits must stand afterwards.
static void write_fitting(fuzz_actor *me, const fuzz_step *s, const nd_tensor *const *in,
                          fuzz_function function, writer write) {
    nd_auto nd_tensor *model = function(in, s);
    nd_auto nd_tensor *plain = nd_detach(model);
    nd_tensor *made = plain ? nd_empty_like(plain) : NULL;
    nd_status status = ND_OK;
    nd_no_grad {
        status = made ? write_to(write, in, s, made) : nd_error_get_status();
    }
    fuzz_expect(me, status == ND_OK);
    if (status == ND_OK && !me->disturbed && nd_get_device(made).kind == ND_CPU) {
        size_t bytes = (size_t)nd_get_numel(made) * nd_dtype_get_size(nd_get_dtype(made));
        if (bytes && memcmp(nd_get_data(plain), nd_get_data(made), bytes) != 0)
            fuzz_die("%s has other bits in a tensor of the caller's",
                     fuzz_call_name(fuzz_step_call(s)));
    }
    fuzz_put_fresh(me, FUZZ_TENSOR, s->a, made);
}

static void elementwise(fuzz_actor *me, const fuzz_step *s, int operands, fuzz_function function,
                        writer write) {
    if (!(s->a & WRITES)) {
        fuzz_operation(me, s, operands, function);
        return;
    }
    const nd_tensor *in[2] = {fuzz_tensor(me, s->b), operands == 2 ? fuzz_tensor(me, s->c) : NULL};
    if (fuzz_is_large(in[0]) || fuzz_is_large(in[1]))
        return;
    if (s->a & FITS) {
        write_fitting(me, s, in, function, write);
        return;
    }
    nd_tensor *out = fuzz_pick_to_write(me, FUZZ_TENSOR, s->a);
    if (out || !fuzz_threaded)
        fuzz_expect(me, write_to(write, in, s, out) == ND_OK);
}

#define DEFINE(name, operands, second)                                           \
    static nd_tensor *f_##name(const nd_tensor *const *in, const fuzz_step *s) { \
        return elementwise_##name(in[0], second, ND_NUMBER(fuzz_value(s->c)),    \
                                  ND_NUMBER(fuzz_value(s->c / 16)));             \
    }                                                                            \
    static void call_##name(fuzz_actor *me, const fuzz_step *s) {                \
        elementwise(me, s, operands, f_##name, elementwise_##name##_out);        \
    }
#define DEFINE_NONE(name)
#define DEFINE_X(name) DEFINE(name, 1, NULL)
#define DEFINE_XP(name) DEFINE(name, 1, NULL)
#define DEFINE_XPQ(name) DEFINE(name, 1, NULL)
#define DEFINE_AB(name) DEFINE(name, 2, in[1])
#define ND_UNARY(name, types, expression, cost, differentiable, saves, form, ...) \
    DEFINE_##form(name)
#define ND_BINARY ND_UNARY
#define ND_COMPARE ND_UNARY
#define ND_LOGICAL ND_UNARY
#define ND_PREDICATE ND_UNARY
#include "kernels/ops.inc"

#define ENTRY_NONE(name)
#define ENTRY_X(name) ENTRY(name)
#define ENTRY_XP(name) ENTRY(name)
#define ENTRY_XPQ(name) ENTRY(name)
#define ENTRY_AB(name) ENTRY(name)

const fuzz_call fuzz_elementwise_calls[] = {
#define ND_UNARY(name, types, expression, cost, differentiable, saves, form, ...) ENTRY_##form(name)
#define ND_BINARY ND_UNARY
#define ND_COMPARE ND_UNARY
#define ND_LOGICAL ND_UNARY
#define ND_PREDICATE ND_UNARY
#include "kernels/ops.inc"
    {0},
};
