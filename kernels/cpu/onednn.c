// f32 products through oneDNN's sgemm, and the threads that oneDNN would start.
//
// sgemm wants one of an operand's two strides to be 1 and the other at least the row's length; anything
// else is declined.
//
// oneDNN takes as many OpenMP threads as the calling thread may have, and they spin while they wait for each
// other. So it is told that there is one, and the threads that share a computation are the pool's. OpenMP
// keeps that number for each thread: it is put back, since the thread may be the user's. OpenMP's functions
// are looked up, not linked: oneDNN may have been built without it.
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/cpu.h"
#include <stdatomic.h>

#if ND_HAVE_ONEDNN
#include <dlfcn.h>
#include <dnnl.h>
#include <pthread.h>
#include <sys/auxv.h>

/// Its variables have oneDNN print, and write files into the folder a program was called in. Neither is for
/// the caller of a setuid program to ask.
__attribute__((constructor)) static void read_no_environment(void) {
    if (!getauxval(AT_SECURE))
        return;
    dnnl_set_verbose(0);
    dnnl_set_jit_dump(0);
    dnnl_set_jit_profiling_flags(DNNL_JIT_PROFILE_NONE);
}

static atomic_bool switched_off;

static struct {
    int (*get_max_threads)(void);
    void (*set_num_threads)(int);
} openmp;

static void find_openmp(void) {
    *(void **)&openmp.get_max_threads = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    *(void **)&openmp.set_num_threads = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
}

nd__onednn_before nd__onednn_enter(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_openmp);
    nd__onednn_before before = {.threads = 1};
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before.blocked);
    if (!openmp.get_max_threads || !openmp.set_num_threads)
        return before;
    before.threads = openmp.get_max_threads();
    if (before.threads != 1)
        openmp.set_num_threads(1);
    return before;
}

void nd__onednn_leave(const nd__onednn_before *before) {
    if (before->threads != 1)
        openmp.set_num_threads(before->threads);
    pthread_sigmask(SIG_SETMASK, &before->blocked, NULL);
}

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

bool nd__onednn_product(const nd__product *p) {
    char a_transposed, b_transposed, out_transposed;
    int64_t a_leading, b_leading, out_leading;
    if (!nd__onednn_is_used() || p->k == 0 ||
        !layout(&p->a, p->m, p->k, &a_transposed, &a_leading) ||
        !layout(&p->b, p->k, p->n, &b_transposed, &b_leading) ||
        !layout(&p->out, p->m, p->n, &out_transposed, &out_leading) || out_transposed != 'N')
        return false;
    nd__onednn_before before = nd__onednn_enter();
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
