// Eigenvalues of symmetric matrices, one matrix at a time (spectral.h). Singular values: singular.c.
#include "kernels/cpu/spectral.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/singular.h"
#include "kernels/cpu/spectral_parts.h"

typedef struct eigen_space {
    void *a, *basis; ///< [n, row], a between guards
    void *tau, *w, *triangle;
    double *d, *e, *sweeps;
    void *packed;
    int64_t *order;
} eigen_space;

static size_t carve_eigen(const problem *p, int64_t row, char *block, eigen_space *ret_space) {
    const int64_t n = p->call->n, panel = ND__REFLECT_PANEL;
    const bool vectors = !p->call->values_only;
    const size_t line = (size_t)row * p->element, wide = sizeof(double);
    size_t offset = 0;
    eigen_space *s = ret_space;
    s->a = carved_rows(p, block, &offset, n, row);
    s->tau = carved(block, &offset, line);
    s->d = carved(block, &offset, (size_t)n * wide);
    s->e = carved(block, &offset, (size_t)n * wide);
    s->order = carved(block, &offset, (size_t)n * sizeof(int64_t));
    s->w = carved(block, &offset, (vectors ? (size_t)panel : 4) * line);
    s->basis = carved(block, &offset, vectors ? (size_t)n * line : 0);
    s->triangle = carved(block, &offset, vectors ? (size_t)(panel * panel) * p->element : 0);
    s->sweeps = carved(block, &offset, vectors ? (size_t)(ND__SWEEPS * 2 * n) * wide : 0);
    s->packed = carved(block, &offset, vectors ? (size_t)ND__PACKED_ROTATIONS(n) * p->element : 0);
    return offset;
}

static nd__linalg_result eigh(const problem *p, const void *x, void *out) {
    const int64_t n = p->call->n, row = nd__cpu_linalg_row(n, p->element);
    eigen_space s;
    char *block = nd__cpu_scratch(carve_eigen(p, row, NULL, &s));
    if (!block)
        return ND__LINALG_NO_MEMORY;
    carve_eigen(p, row, block, &s);
    spread(p, s.a, row, x, n, n);
    const int exponent = normalise(p, s.a, n * row);
    p->loops->tridiagonalise(s.a, row, n, s.d, s.e, s.tau, s.w);
    nd__rotations r = {.n = n,
                       .sides = {{s.a, row, row, s.sweeps}},
                       .packed = s.packed,
                       .apply = p->loops->rotate};
    const bool vectors = !p->call->values_only;
    if (vectors) {
        p->loops->tridiagonal_basis(s.a, row, n, s.tau, s.triangle, s.w, s.basis);
        turn(p->element, s.a, row, s.basis, row, NULL, n, n);
        clear_guards(p, s.a, n, row);
    }
    if (!p->loops->tridiagonal_values(s.d, s.e, n, p->unit, vectors ? &r : NULL))
        return ND__LINALG_NOT_CONVERGED;
    sort(s.d, n, s.order);
    for (int64_t i = 0; i < n; i++)
        put(p->element, out, i, ldexp(s.d[s.order[i]], exponent));
    if (vectors)
        turn(p->element, (char *)out + (size_t)n * p->element, n, s.a, row, s.order, n, n);
    return ND__LINALG_DONE;
}

nd__linalg_result nd__cpu_spectral(const nd__linalg_call *call, const void *x, const void *b,
                                   void *out) {
    if (call->op != ND_OP_eigh)
        return nd__singular_compute(call, x, b, out);
    const problem p = problem_of(call);
    return eigh(&p, x, out);
}
