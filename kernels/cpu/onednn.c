// Products through oneDNN: of f32 by its sgemm, of bf16 by a primitive, and of 8-bit integers by its
// gemms of those, where the processor has instructions for them.
//
// Both want one of an operand's two strides to be 1 and the other at least the row's length;
// anything else is declined. The primitives are made for sizes that are told when they run, so there
// is one for each way that operands may lie.
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/cpu.h"
#include <stdatomic.h>

#if ND_HAVE_ONEDNN
#include <dnnl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/auxv.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

/// Below these the portable product is faster.
#define LEAST_F32 16384
#define LEAST_BF16 65536
#define LEAST_BYTES ((int64_t)1 << 18)
/// Of a product with crowded lines: how often each is read, and that times their distance. Less is
/// oneDNN's even so.
#define LEAST_READS 8
#define LEAST_READ_ROWS 8192
#define LEAST_READ_COLUMNS 32768
/// Elements of bf16 that are scanned together.
#define SCANNED 256

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

int64_t nd__onednn_least_product(nd_dtype dtype) {
    if (!nd__onednn_is_used())
        return INT64_MAX;
#if defined(__x86_64__)
    if (dtype == ND_BF16 && __builtin_cpu_supports("avx512bf16"))
        return LEAST_BF16;
#endif
    return dtype == ND_F32 ? LEAST_F32 : INT64_MAX;
}

int64_t nd__onednn_least_bytes(void) {
#if defined(__x86_64__)
    if (nd__onednn_is_used() && __builtin_cpu_supports("avx512vnni"))
        return LEAST_BYTES;
#endif
    return INT64_MAX;
}

/// The processor is asked once: a virtual machine answers late.
bool nd__onednn_has_tiles_of_halves(void) {
#if defined(__x86_64__)
    enum { UNKNOWN, NO, YES, AMX_BF16 = 1 << 22 };
    static _Atomic int known;
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == UNKNOWN) {
        unsigned eax, ebx, ecx, edx;
        const bool has = __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & AMX_BF16);
        answer = has ? YES : NO;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == YES;
#else
    return false;
#endif
}

/// By the loops that were chosen, which are AVX2's where oneDNN's code is: before nd__onednn_enter()
/// nothing of oneDNN's may be asked, since its first answers make what a fork waits for.
bool nd__onednn_is_crowded(const nd__product *p) {
#if defined(__x86_64__)
    if (nd__cpu_loops_now() != &nd__cpu_loops_x86_64_v3)
        return false;
#else
    return false;
#endif
    const int64_t crowded = ND__CROWDED_BYTES / (int64_t)sizeof(float);
    const int64_t rows = p->b.row_stride, columns = p->a.column_stride; // how far apart
    return (p->b.column_stride == 1 && rows % crowded == 0 && p->m >= LEAST_READS &&
            p->m * rows >= LEAST_READ_ROWS) ||
           (p->a.row_stride == 1 && columns % crowded == 0 && p->n >= LEAST_READS &&
            p->n * columns >= LEAST_READ_COLUMNS);
}

/// How the operands of a product lie, for oneDNN.
typedef struct layouts {
    char a, b; ///< 'N': rows are dense; 'T': columns are
    int64_t a_leading, b_leading, out_leading;
} layouts;

static dnnl_status_t multiply_f32(const nd__product *p, const layouts *l) {
    return dnnl_sgemm(l->a, l->b, p->m, p->n, p->k, 1.0f, (const float *)p->a.data, l->a_leading,
                      (const float *)p->b.data, l->b_leading, p->accumulate ? 1.0f : 0.0f,
                      (float *)p->out.data, l->out_leading);
}

// -------------------------------------------------------------------------------------------- bf16

/// Primitives by a's and b's layout and whether they add to what is there; NULL where oneDNN has
/// none. Made in the first computation of a kind (nd__onednn_enter), which a fork waits for.
static struct {
    dnnl_engine_t engine;
    dnnl_primitive_t multiply[2][2][2];
} bf16;

static dnnl_status_t describe(dnnl_memory_desc_t *matrix, int64_t rows, int64_t columns,
                              char transposed, int64_t leading) {
    dnnl_dims_t sizes = {rows, columns};
    dnnl_dims_t strides = {transposed == 'T' ? 1 : leading, transposed == 'T' ? leading : 1};
    return dnnl_memory_desc_init_by_strides(matrix, 2, sizes, dnnl_bf16, strides);
}

static void make_primitive(char a, char b, bool add, dnnl_primitive_t *ret_primitive) {
    const int64_t any = DNNL_RUNTIME_DIM_VAL;
    dnnl_memory_desc_t a_matrix, b_matrix, out;
    dnnl_matmul_desc_t product;
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_post_ops_t after = NULL;
    dnnl_primitive_desc_t description = NULL;
    if (describe(&a_matrix, any, any, a, any) == dnnl_success &&
        describe(&b_matrix, any, any, b, any) == dnnl_success &&
        describe(&out, any, any, 'N', any) == dnnl_success &&
        dnnl_matmul_desc_init(&product, &a_matrix, &b_matrix, NULL, &out) == dnnl_success &&
        dnnl_primitive_attr_create(&attributes) == dnnl_success &&
        dnnl_post_ops_create(&after) == dnnl_success &&
        (!add || (dnnl_post_ops_append_sum(after, 1.0f) == dnnl_success &&
                  dnnl_primitive_attr_set_post_ops(attributes, after) == dnnl_success)) &&
        dnnl_primitive_desc_create(&description, &product, attributes, bf16.engine, NULL) ==
            dnnl_success &&
        dnnl_primitive_create(ret_primitive, description) != dnnl_success)
        *ret_primitive = NULL;
    if (description)
        dnnl_primitive_desc_destroy(description);
    if (after)
        dnnl_post_ops_destroy(after);
    if (attributes)
        dnnl_primitive_attr_destroy(attributes);
}

static void make_primitives(void) {
    if (dnnl_engine_create(&bf16.engine, dnnl_cpu, 0) != dnnl_success) {
        bf16.engine = NULL;
        return;
    }
    for (int i = 0; i < 8; i++)
        make_primitive(i & 4 ? 'T' : 'N', i & 2 ? 'T' : 'N', i & 1,
                       &bf16.multiply[i >> 2][i >> 1 & 1][i & 1]);
}

/// At exit, when nobody computes any more.
__attribute__((destructor)) static void destroy_primitives(void) {
    for (int i = 0; i < 8; i++) {
        dnnl_primitive_t *primitive = &bf16.multiply[i >> 2][i >> 1 & 1][i & 1];
        if (*primitive)
            dnnl_primitive_destroy(*primitive);
        *primitive = NULL;
    }
    if (bf16.engine)
        dnnl_engine_destroy(bf16.engine);
    bf16.engine = NULL;
}

static bool any_infinity(const uint16_t *elements, int64_t count) {
    uint16_t any = 0;
    for (int64_t i = 0; i < count; i++)
        any |= (elements[i] & 0x7FFF) == 0x7F80;
    return any;
}

/// Whether an element of a is infinite. oneDNN multiplies pairs of bf16, and the last of an odd number of
/// a row's elements also by a zero: an infinity there would become NaN.
static bool has_infinity(const nd__product *p, const layouts *l) {
    int64_t lines = l->a == 'T' ? p->k : p->m, length = l->a == 'T' ? p->m : p->k;
    int64_t next = l->a_leading;
    if (next == length && length < SCANNED / 8) { // several short ones together
        const int64_t total = lines * length;
        length = total < SCANNED ? total : SCANNED;
        lines = total / length;
        next = length;
        if (any_infinity((const uint16_t *)p->a.data + lines * length, total - lines * length))
            return true;
    }
    for (int64_t line = 0; line < lines; line++)
        if (any_infinity((const uint16_t *)p->a.data + line * next, length))
            return true;
    return false;
}

static dnnl_status_t multiply_bf16(const nd__product *p, const layouts *l) {
    if (has_infinity(p, l))
        return dnnl_unimplemented;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_primitives);
    dnnl_primitive_t primitive = bf16.multiply[l->a == 'T'][l->b == 'T'][p->accumulate];
    dnnl_memory_desc_t matrices[3];
    if (!primitive || describe(&matrices[0], p->m, p->k, l->a, l->a_leading) != dnnl_success ||
        describe(&matrices[1], p->k, p->n, l->b, l->b_leading) != dnnl_success ||
        describe(&matrices[2], p->m, p->n, 'N', l->out_leading) != dnnl_success)
        return dnnl_unimplemented;
    void *const data[3] = {p->a.data, p->b.data, p->out.data};
    dnnl_exec_arg_t arguments[3] = {
        {DNNL_ARG_SRC, NULL}, {DNNL_ARG_WEIGHTS, NULL}, {DNNL_ARG_DST, NULL}};
    dnnl_stream_t stream = NULL;
    dnnl_status_t status = dnnl_stream_create(&stream, bf16.engine, dnnl_stream_default_flags);
    for (int i = 0; i < 3 && status == dnnl_success; i++)
        status = dnnl_memory_create(&arguments[i].memory, &matrices[i], bf16.engine, data[i]);
    if (status == dnnl_success)
        status = dnnl_primitive_execute(primitive, stream, 3, arguments);
    if (status == dnnl_success)
        status = dnnl_stream_wait(stream);
    for (int i = 0; i < 3; i++)
        if (arguments[i].memory)
            dnnl_memory_destroy(arguments[i].memory);
    if (stream)
        dnnl_stream_destroy(stream);
    return status;
}

// ------------------------------------------------------------------------------- integers of 8 bits

/// Whether all lines of a factor have one zero point, which is what oneDNN's gemms take.
static bool has_one_zero(const nd__bytes *bytes) {
    return !bytes->zeros || bytes->zero_stride == 0;
}

/// b of u8 as i8, which has the order of b xor 0x80, one line behind the other. The caller's; NULL when
/// there is no memory.
static int8_t *flipped(const nd__product *p, const layouts *l) {
    const int64_t lines = l->b == 'T' ? p->n : p->k, length = l->b == 'T' ? p->k : p->n;
    const uint8_t *from = (const uint8_t *)p->b.data;
    int8_t *copy = malloc((size_t)(lines * length));
    for (int64_t line = 0; copy && line < lines; line++)
        for (int64_t i = 0; i < length; i++)
            copy[line * length + i] = (int8_t)(from[line * l->b_leading + i] ^ 0x80);
    return copy;
}

static dnnl_status_t multiply_i8(const nd__product *p, const layouts *l, const int8_t *b,
                                 int64_t b_leading, int8_t b_zero) {
    static const int32_t nothing = 0;
    const uint8_t a_zero = p->a_bytes.zeros ? *p->a_bytes.zeros : 0;
    if (p->a_bytes.flip)
        return dnnl_gemm_s8s8s32(l->a, l->b, 'F', p->m, p->n, p->k, 1.0f, (const int8_t *)p->a.data,
                                 l->a_leading, (int8_t)a_zero, b, b_leading, b_zero, 0.0f,
                                 (int32_t *)p->out.data, l->out_leading, &nothing);
    return dnnl_gemm_u8s8s32(l->a, l->b, 'F', p->m, p->n, p->k, 1.0f, (const uint8_t *)p->a.data,
                             l->a_leading, a_zero, b, b_leading, b_zero, 0.0f,
                             (int32_t *)p->out.data, l->out_leading, &nothing);
}

/// Where oneDNN may not use VNNI (its variable ONEDNN_MAX_CPU_ISA) it adds pairs of products with
/// saturation to 16 bits: then the sums are not its to compute.
static dnnl_status_t multiply_bytes(const nd__product *p, const layouts *l) {
    const unsigned vnni = dnnl_cpu_isa_avx512_core_vnni;
    if (((unsigned)dnnl_get_effective_cpu_isa() & vnni) != vnni || !has_one_zero(&p->a_bytes) ||
        !has_one_zero(&p->b_bytes))
        return dnnl_unimplemented;
    const uint8_t b_zero = p->b_bytes.zeros ? *p->b_bytes.zeros : 0;
    if (p->b_bytes.flip)
        return multiply_i8(p, l, (const int8_t *)p->b.data, l->b_leading, (int8_t)b_zero);
    int8_t *copy = flipped(p, l);
    if (!copy)
        return dnnl_out_of_memory;
    const int64_t length = l->b == 'T' ? p->k : p->n;
    dnnl_status_t status = multiply_i8(p, l, copy, length, (int8_t)(b_zero ^ 0x80));
    free(copy);
    return status;
}

/// The number of the product's kind, for nd__onednn_enter().
static uint32_t number_of_kind(const nd__product *p, const layouts *l, nd_dtype dtype) {
    uint32_t kind = kind_of(p, l->a == 'T', l->b == 'T');
    if (dtype == ND_I32) // nothing is added to, and a has a sign or none
        return kind + (p->a_bytes.flip ? ND__ONEDNN_FAMILY / 2 : 0) + 3 * ND__ONEDNN_FAMILY;
    return kind + (dtype == ND_F32 ? 0 : ND__ONEDNN_FAMILY);
}

bool nd__onednn_product(const nd__product *p, nd_dtype dtype, nd__onednn_session *session) {
    layouts l;
    char out_transposed;
    if (!nd__onednn_is_used() || p->k == 0 || !layout(&p->a, p->m, p->k, &l.a, &l.a_leading) ||
        !layout(&p->b, p->k, p->n, &l.b, &l.b_leading) ||
        !layout(&p->out, p->m, p->n, &out_transposed, &l.out_leading) || out_transposed != 'N')
        return false;
    const uint32_t kind = number_of_kind(p, &l, dtype);
    if (session->open && (session->before.kind != kind || nd__onednn_is_waited_for()))
        nd__onednn_end(session);
    session->open = session->open || nd__onednn_enter(kind, &session->before);
    if (!session->open)
        return false;
    dnnl_status_t status = dtype == ND_F32   ? multiply_f32(p, &l)
                           : dtype == ND_I32 ? multiply_bytes(p, &l)
                                             : multiply_bf16(p, &l);
    return status == dnnl_success;
}

void nd__onednn_end(nd__onednn_session *session) {
    if (session->open)
        nd__onednn_leave(&session->before);
    session->open = false;
}

#else

void nd__cpu_use_onednn(bool use) {
    (void)use;
}
bool nd__onednn_is_used(void) {
    return false;
}
int64_t nd__onednn_least_product(nd_dtype dtype) {
    (void)dtype;
    return INT64_MAX;
}
int64_t nd__onednn_least_bytes(void) {
    return INT64_MAX;
}
bool nd__onednn_has_tiles_of_halves(void) {
    return false;
}
bool nd__onednn_is_crowded(const nd__product *product) {
    (void)product;
    return false;
}
bool nd__onednn_product(const nd__product *product, nd_dtype dtype, nd__onednn_session *session) {
    (void)product;
    (void)dtype;
    (void)session;
    return false;
}
void nd__onednn_watch_thread(void) {
}
void nd__onednn_end(nd__onednn_session *session) {
    (void)session;
}
#endif
