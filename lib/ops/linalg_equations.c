// Linear algebra: systems of equations, and what is the solution of one: inverses, negative powers, least
// squares.
#include "lib/base/error.h"
#include "lib/ops/linalg.h"
#include "lib/ops/linalg_run.h"
#include "lib/ops/operands.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"

// -------------------------------------------------------------------------------------------------
// operands

/// Of two operands with one dtype: both with one batch, b as a matrix.
typedef struct system_operands {
    nd_tensor *a, *b;
    bool column; ///< b was a vector
} system_operands;

static void release_system(system_operands *s) {
    nd_release(s->a);
    nd_release(s->b);
}

/// x with the batch `shape` in front of its matrix. NULL gives NULL.
static nd_tensor *with_batch(const nd_tensor *x, int batch, const int64_t *batch_shape) {
    if (!x)
        return NULL;
    int64_t shape[ND_MAX_DIMS];
    for (int i = 0; i < batch; i++)
        shape[i] = batch_shape[i];
    shape[batch] = x->shape[x->ndim - 2];
    shape[batch + 1] = x->shape[x->ndim - 1];
    return nd_expand(x, batch + 2, shape);
}

static nd_status check_system(const char *name, const nd_tensor *a, const nd_tensor *b,
                              bool square) {
    nd_status status = nd__linalg_check_computed(name, "a", a, square);
    if (status == ND_OK)
        status = nd__operands_check_pair(name, "a", a, "b", b);
    if (status != ND_OK)
        return status;
    if (a->dtype != b->dtype)
        return nd__error(ND_ERROR_DTYPE, "%s: a is %s and b %s", name, nd_dtype_get_name(a->dtype),
                         nd_dtype_get_name(b->dtype));
    int64_t rows = b->ndim == 0 ? -1 : b->ndim == 1 ? b->shape[0] : b->shape[b->ndim - 2];
    if (rows == a->shape[a->ndim - 2])
        return ND_OK;
    char a_text[ND__SHAPE_TEXT], b_text[ND__SHAPE_TEXT];
    return nd__error(ND_ERROR_SHAPE, "%s: shapes %s and %s do not fit: a has %lld rows", name,
                     nd__shape_text(a_text, a->ndim, a->shape),
                     nd__shape_text(b_text, b->ndim, b->shape), (long long)a->shape[a->ndim - 2]);
}

static nd_status make_system(const char *name, const nd_tensor *a, const nd_tensor *b, bool square,
                             system_operands *ret_system) {
    nd_status status = check_system(name, a, b, square);
    if (status != ND_OK)
        return status;
    int64_t shape[ND_MAX_DIMS];
    bool column = b->ndim == 1;
    int batch =
        nd__shape_broadcast(name, a->ndim - 2, a->shape, column ? 0 : b->ndim - 2, b->shape, shape);
    if (batch < 0)
        return nd_error_get_status();
    nd_auto nd_tensor *matrix = column ? nd_unsqueeze(b, 1) : nd_retain(b);
    system_operands made = {with_batch(a, batch, shape), with_batch(matrix, batch, shape), column};
    if (!made.a || !made.b) {
        release_system(&made);
        return nd_error_get_status();
    }
    *ret_system = made;
    return ND_OK;
}

/// Runs a call of two operands and releases them.
static nd_tensor *run_system(const char *name, nd__linalg_call *call, system_operands *s,
                             const nd_op_attrs *attrs) {
    const nd_tensor *inputs[] = {s->a, s->b};
    const int64_t tail[] = {s->a->shape[s->a->ndim - 1], s->b->shape[s->b->ndim - 1]};
    nd_auto nd_tensor *matrix = nd__linalg_run(name, call, inputs, 2, 2, tail, attrs);
    nd_tensor *result = s->column ? nd_squeeze(matrix, -1) : nd_retain(matrix);
    release_system(s);
    return result;
}

// -------------------------------------------------------------------------------------------------
// equations

// What a public function shares with others here is a function of its own: gcc takes a call of the
// public one's local alias for another allocation.
static nd_tensor *solve(const char *name, const nd_tensor *a, const nd_tensor *b) {
    system_operands s;
    if (make_system(name, a, b, true, &s) != ND_OK)
        return NULL;
    nd__linalg_call call = {.op = ND_OP_solve};
    return run_system(name, &call, &s, NULL);
}

nd_tensor *nd_solve(const nd_tensor *a, const nd_tensor *b) {
    ND__ERROR_NAMED("solve");
    return solve("solve", a, b);
}

nd_tensor *nd_solve_triangular(const nd_tensor *a, const nd_tensor *b, bool upper,
                               bool unit_diagonal) {
    ND__ERROR_NAMED("solve_triangular");
    system_operands s;
    if (make_system("solve_triangular", a, b, true, &s) != ND_OK)
        return NULL;
    nd__linalg_call call = {.op = ND_OP_solve_triangular, .upper = upper, .unit = unit_diagonal};
    const nd_op_attrs attrs = {.i = {upper, unit_diagonal}};
    return run_system("solve_triangular", &call, &s, &attrs);
}

static nd_tensor *inverse_of(const char *name, const nd_tensor *x) {
    if (nd__linalg_check_computed(name, "x", x, true) != ND_OK)
        return NULL;
    nd_auto nd_tensor *identity = nd__linalg_identity(x, x->shape[x->ndim - 1]);
    return identity ? solve(name, x, identity) : NULL;
}

nd_tensor *nd_inv(const nd_tensor *x) {
    ND__ERROR_NAMED("inv");
    return inverse_of("inv", x);
}

/// The identity in each place of x's batch.
/// With a history, like any other power, where x has one: gradients of 0.
static nd_tensor *identity_of(const char *name, const nd_tensor *x) {
    nd_auto nd_tensor *one = nd__linalg_identity(x, x->shape[x->ndim - 1]);
    nd_auto nd_tensor *all = nd_expand(one, x->ndim, x->shape);
    if (!nd__record_wants_history(&x, 1))
        return nd_clone(all);
    nd_auto nd_tensor *never = nd__operands_number_like(name, x, ND_BOOL, ND_NUMBER(0));
    return nd_where(never, x, all);
}

/// By squaring: as many products as the power has bits, and one more for each that is set.
static nd_tensor *power_of(const nd_tensor *x, uint64_t power) {
    nd_tensor *result = NULL;
    nd_auto nd_tensor *square = nd_retain(x);
    for (;; power >>= 1) {
        if (power & 1) {
            nd_tensor *product = result ? nd__linalg_product(result, square) : nd_retain(square);
            nd_release(result);
            result = product;
        }
        if (power <= 1 || !square || (power & 1 && !result))
            return result;
        nd_tensor *next = nd__linalg_product(square, square);
        nd_release(square);
        square = next;
        if (!square) {
            nd_release(result);
            return NULL;
        }
    }
}

nd_tensor *nd_matrix_power(const nd_tensor *x, int64_t power) {
    ND__ERROR_NAMED("matrix_power");
    const char *name = "matrix_power";
    if (nd__tensor_check_operand(name, "x", x) != ND_OK)
        return NULL;
    char text[ND__SHAPE_TEXT];
    if (x->ndim < 2 || x->shape[x->ndim - 2] != x->shape[x->ndim - 1] || x->dtype == ND_BOOL) {
        nd__error(x->dtype == ND_BOOL ? ND_ERROR_DTYPE : ND_ERROR_SHAPE,
                  "%s: x is %s of shape %s and must be numbers of [..., n, n]", name,
                  nd_dtype_get_name(x->dtype), nd__shape_text(text, x->ndim, x->shape));
        return NULL;
    }
    if (power == 0)
        return identity_of(name, x);
    if (power == 1)
        return nd_clone(x);
    if (power > 0)
        return power_of(x, (uint64_t)power);
    nd_auto nd_tensor *inverse = inverse_of(name, x);
    return inverse ? power_of(inverse, -(uint64_t)power) : NULL;
}

nd_tensor *nd_lstsq(const nd_tensor *a, const nd_tensor *b, double tolerance) {
    ND__ERROR_NAMED("lstsq");
    system_operands s;
    if (make_system("lstsq", a, b, false, &s) != ND_OK)
        return NULL;
    if (nd__linalg_check_tolerance("lstsq", tolerance) != ND_OK) {
        release_system(&s);
        return NULL;
    }
    tolerance = nd__linalg_tolerance_of(a, tolerance);
    nd__linalg_call call = {.op = ND_OP_lstsq, .tolerance = tolerance};
    const nd_op_attrs attrs = {.f = {tolerance}};
    return run_system("lstsq", &call, &s, &attrs);
}

nd_tensor *nd_pinv(const nd_tensor *x, double tolerance) {
    ND__ERROR_NAMED("pinv");
    if (nd__linalg_check_computed("pinv", "x", x, false) != ND_OK ||
        nd__linalg_check_tolerance("pinv", tolerance) != ND_OK)
        return NULL;
    tolerance = nd__linalg_tolerance_of(x, tolerance);
    nd__linalg_call call = {.op = ND_OP_pinv, .tolerance = tolerance};
    const nd_op_attrs attrs = {.f = {tolerance}};
    const int64_t tail[] = {x->shape[x->ndim - 1], x->shape[x->ndim - 2]};
    return nd__linalg_run("pinv", &call, &x, 1, 2, tail, &attrs);
}
