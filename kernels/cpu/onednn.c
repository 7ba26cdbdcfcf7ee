// f32 products through oneDNN's sgemm.
//
// sgemm wants one of an operand's two strides to be 1 and the other at least the row's length;
// anything else is declined.
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/cpu.h"
#include <stdatomic.h>

#if ND_HAVE_ONEDNN
#include <dnnl.h>
#include <sys/auxv.h>

/// Its variables have oneDNN print, and write files into the folder a program was called in.
/// Neither is for the caller of a setuid program to ask.
__attribute__((constructor)) static void read_no_environment(void) {
    if (!getauxval(AT_SECURE))
        return;
    dnnl_set_verbose(0);
    dnnl_set_jit_dump(0);
    dnnl_set_jit_profiling_flags(DNNL_JIT_PROFILE_NONE);
}

static atomic_bool switched_off;

void nd__cpu_use_onednn(bool use) {
    atomic_store(&switched_off, !use);
}

bool nd__onednn_is_used(void) {
    return !atomic_load_explicit(&switched_off, memory_order_relaxed);
}

/// How sgemm is told of a rows x columns matrix. False when it cannot be.
static bool layout(const nd__matrix *m, int64_t rows, int64_t columns, char *ret_transposed,
                   int64_t *ret_leading) {
    if (m->column_stride == 1 || columns == 1) {
        *ret_transposed = 'N';
        *ret_leading = rows == 1 ? columns : m->row_stride;
        if (*ret_leading >= columns && (columns == 1 || m->column_stride == 1))
            return true;
    }
    if (m->row_stride == 1 || rows == 1) {
        *ret_transposed = 'T';
        *ret_leading = columns == 1 ? rows : m->column_stride;
        return *ret_leading >= rows;
    }
    return false;
}

/// The logarithm, up to 15.
static uint32_t size_class(int64_t size) {
    uint32_t bits = size > 1 ? 63 - (uint32_t)__builtin_clzll((uint64_t)size) : 0;
    return bits < 15 ? bits : 15;
}

/// What sgemm chooses its code by, or finer.
static uint32_t kind_of(const nd__product *p, bool a_transposed, bool b_transposed) {
    return size_class(p->m) | size_class(p->n) << 4 | size_class(p->k) << 8 |
           (uint32_t)a_transposed << 12 | (uint32_t)b_transposed << 13 |
           (uint32_t)p->accumulate << 14;
}

bool nd__onednn_product(const nd__product *p) {
    char a_transposed, b_transposed, out_transposed;
    int64_t a_leading, b_leading, out_leading;
    if (!nd__onednn_is_used() || p->k == 0 ||
        !layout(&p->a, p->m, p->k, &a_transposed, &a_leading) ||
        !layout(&p->b, p->k, p->n, &b_transposed, &b_leading) ||
        !layout(&p->out, p->m, p->n, &out_transposed, &out_leading) || out_transposed != 'N')
        return false;
    nd__onednn_before before;
    if (!nd__onednn_enter(kind_of(p, a_transposed == 'T', b_transposed == 'T'), &before))
        return false;
    dnnl_status_t status =
        dnnl_sgemm(a_transposed, b_transposed, p->m, p->n, p->k, 1.0f, (const float *)p->a.data,
                   a_leading, (const float *)p->b.data, b_leading, p->accumulate ? 1.0f : 0.0f,
                   (float *)p->out.data, out_leading);
    nd__onednn_leave(&before);
    return status == dnnl_success;
}

#else

void nd__cpu_use_onednn(bool use) {
    (void)use;
}
bool nd__onednn_is_used(void) {
    return false;
}
bool nd__onednn_product(const nd__product *product) {
    (void)product;
    return false;
}
#endif
