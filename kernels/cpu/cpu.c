// Chooses the instruction set once and sends each call to its family's kernel.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/fft_lines.h"
#include "kernels/cpu/fftw.h"
#include "kernels/cpu/onednn_plan.h"
#include "kernels/cpu/scratch.h"
#include "lib/base/float_mode.h"
#include "lib/base/pool.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if ND_ISA_X86
#include <cpuid.h>
#endif

enum {
    UNARY = 1,
    PREDICATE,
    BINARY,
    COMPARE,
    LOGICAL,
    TERNARY,
    REDUCE,
    ARGREDUCE,
    SCAN,
    SORT,
    MATMUL,
    QUANTIZED,
    SOFTMAX,
    LOSS,
    NORM,
    CONV,
    POOL,
    RESAMPLE,
    ATTENTION,
    CELL,
    DROPOUT,
    INDEX,
    CREATE,
    COPY,
    LINALG,
    FFT,
    VIEW,
};
static const uint8_t family_of[ND_OP_COUNT] = {
#define ND_OP(name, family, inputs, differentiable, saves) [ND_OP_##name] = family,
#include "kernels/ops.inc"
#undef ND_OP
};

static _Atomic(const nd__cpu_loops *) loops_now;

#if ND_ISA_X86
/// Which not every compiler's __builtin_cpu_supports() knows.
static bool has_f16c(void) {
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}

/// Whether vectors of 512 bits, where there are any, are computed in halves: AMD's family 25.
static bool computes_halves(void) {
    unsigned eax, ebx, ecx, edx;
    return __builtin_cpu_is("amd") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) &&
           (eax >> 8 & 15) + (eax >> 20 & 255) == 25;
}
#endif

static bool machine_has(const nd__cpu_loops *loops) {
#if ND_ISA_X86
    if (loops == &nd__cpu_loops_x86_64_v4_halves)
        return computes_halves() && machine_has(&nd__cpu_loops_x86_64_v4);
    if (loops == &nd__cpu_loops_x86_64_v4)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma") &&
               __builtin_cpu_supports("bmi2");
    if (loops == &nd__cpu_loops_x86_64_v3)
        return has_f16c() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
#endif
    return loops == &nd__cpu_loops_baseline;
}

// Best first.
static const nd__cpu_loops *const all_loops[] = {
#if ND_ISA_X86
    &nd__cpu_loops_x86_64_v4_halves,
    &nd__cpu_loops_x86_64_v4,
    &nd__cpu_loops_x86_64_v3,
#endif
    &nd__cpu_loops_baseline,
};

bool nd__cpu_use_isa(const char *name) {
    for (size_t i = 0; i < sizeof all_loops / sizeof *all_loops; i++)
        if ((!name || strcmp(name, all_loops[i]->name) == 0) && machine_has(all_loops[i])) {
            atomic_store_explicit(&loops_now, all_loops[i], memory_order_relaxed);
            return true;
        }
    return false;
}

/// Whether the loops are those of a level of x86-64, which is written as compilers write it
/// ("x86-64-v3"), or "baseline".
static bool is_of_level(const nd__cpu_loops *loops, const char *level) {
    size_t i = 0;
    for (; level[i]; i++)
        if (loops->name[i] != (level[i] == '-' ? '_' : level[i]))
            return false;
    return !loops->name[i] || strcmp(loops->name + i, "_halves") == 0;
}

/// The best that the machine has of a level; of all: NULL.
static const nd__cpu_loops *best_of(const char *level) {
    for (size_t i = 0; i < sizeof all_loops / sizeof *all_loops; i++)
        if (machine_has(all_loops[i]) && (!level || is_of_level(all_loops[i], level)))
            return all_loops[i];
    return NULL;
}

/// Of the level that ND_CPU_ISA names; where it names none, or one that the machine has not, which is
/// said, the best of all.
static const nd__cpu_loops *first_choice(void) {
    const char *level = secure_getenv("ND_CPU_ISA");
    const nd__cpu_loops *chosen = best_of(level && *level ? level : NULL);
    if (chosen)
        return chosen;
    fprintf(stderr,
            "ndarc: ND_CPU_ISA: this machine has no \"%.40s\"; known are baseline, x86-64-v3, "
            "x86-64-v4\n",
            level);
    return best_of(NULL);
}

const nd__cpu_loops *nd__cpu_loops_now(void) {
    const nd__cpu_loops *loops = atomic_load_explicit(&loops_now, memory_order_relaxed);
    if (__builtin_expect(loops != NULL, 1))
        return loops;
    const nd__cpu_loops *none = NULL;
    atomic_compare_exchange_strong_explicit(&loops_now, &none, first_choice(), memory_order_relaxed,
                                            memory_order_relaxed);
    return atomic_load_explicit(&loops_now, memory_order_relaxed);
}

const char *nd__cpu_isa(void) {
    return nd__cpu_loops_now()->name;
}

/// Work of one element, in additions of floats. A vector holds half as many f64, and their functions
/// are longer.
static int64_t cost_of(nd_op op, nd_dtype dtype) {
    static const uint8_t costs[ND_OP_COUNT] = {
#define ND_UNARY(name, types, expression, cost, ...) [ND_OP_##name] = cost,
#define ND_PREDICATE ND_UNARY
#define ND_BINARY ND_UNARY
#include "kernels/ops.inc"
    };
    return costs[op] <= 1 ? 1 : dtype == ND_F64 ? 3 * costs[op] : costs[op];
}

/// Most rows have no loop of 16-bit floats: they go through that of f32.
static nd_status launch_halves(const nd_kernel_call *call, const nd__loop *const *table) {
    nd_dtype dtype = call->operand[call->noperands - 1].dtype;
    nd__loop loop = table[ND_F32][call->op];
    if ((dtype != ND_F16 && dtype != ND_BF16) || !loop)
        return ND_ERROR_UNSUPPORTED;
    return nd__cpu_elementwise_halves(call, loop, cost_of(call->op, ND_F32));
}

static nd_status launch_elementwise(const nd_kernel_call *call, const nd__loop *const *table) {
    nd_dtype dtype = call->operand[call->noperands - 1].dtype;
    nd__loop loop = table[dtype] ? table[dtype][call->op] : NULL;
    if (__builtin_expect(!loop, 0))
        return launch_halves(call, table);
    return nd__cpu_elementwise(call, loop, cost_of(call->op, dtype));
}

static nd_status launch_loss(const nd_kernel_call *call) {
    if (call->op == ND_OP_cross_entropy)
        return nd__cpu_cross_entropy(call);
    if (call->op == ND_OP_cross_entropy_grad)
        return ND_ERROR_UNSUPPORTED;
    bool of_pairs = call->op == ND_OP_pair_loss || call->op == ND_OP_pair_loss_grad;
    return of_pairs ? nd__cpu_pair_loss(call) : nd__cpu_nll(call);
}

static nd_status launch_softmax(const nd_kernel_call *call) {
    if (call->op == ND_OP_softmax_grad)
        return nd__cpu_softmax_grad(call);
    return call->op == ND_OP_masked_softmax ? nd__cpu_masked_softmax(call) : nd__cpu_softmax(call);
}

static nd_status launch(const nd_kernel_call *call) {
    switch (family_of[call->op]) {
    case UNARY:
    case PREDICATE:
        return launch_elementwise(call, nd__cpu_loops_now()->unary);
    case BINARY:
    case COMPARE:
    case LOGICAL:
    case TERNARY:
        return launch_elementwise(call, nd__cpu_loops_now()->binary);
    case REDUCE:
        return nd__cpu_reduce(call);
    case ARGREDUCE:
        return nd__cpu_argreduce(call);
    case SCAN:
        return nd__cpu_scan(call);
    case SORT:
        return nd__cpu_sorting(call);
    case MATMUL:
        return nd__cpu_matmul(call);
    case QUANTIZED:
        return nd__cpu_quantized(call);
    case SOFTMAX:
        return launch_softmax(call);
    case LOSS:
        return launch_loss(call);
    case NORM:
        return nd__cpu_norm(call);
    case CONV:
        return nd__cpu_conv(call, false);
    case POOL:
        return nd__cpu_pool(call);
    case RESAMPLE:
        return nd__cpu_resample(call);
    case ATTENTION:
        return call->op == ND_OP_attention ? nd__cpu_attention(call) : nd__cpu_attention_grad(call);
    case CELL:
        return nd__cpu_cell(call);
    case INDEX:
        return nd__cpu_index(call);
    case CREATE:
        return nd__cpu_create(call);
    case DROPOUT:
        return nd__cpu_dropout(call);
    case COPY:
        return call->op == ND_OP_concat ? nd__cpu_concat(call) : nd__cpu_copy(call);
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}

nd_status nd__cpu_launch(const nd_kernel_call *call) {
    nd__float_mode mode;
    nd__float_mode_begin(&mode);
    nd_status status = launch(call);
    nd__float_mode_end(&mode);
    return status;
}

nd_status nd__cpu_launch_sparing(const nd_kernel_call *call) {
    if (family_of[call->op] != CONV)
        return ND_ERROR_OUT_OF_MEMORY;
    nd__float_mode mode;
    nd__float_mode_begin(&mode);
    nd_status status = nd__cpu_conv(call, true);
    nd__float_mode_end(&mode);
    return status;
}

uint64_t nd__cpu_trim(void) {
    const uint64_t before = nd__cpu_scratch_bytes();
    nd__cpu_scratch_trim();
    nd__pool_end_workers();
    const uint64_t after = nd__cpu_scratch_bytes();
    return before > after ? before - after : 0;
}

void nd__cpu_trim_plans(void) {
    nd__fftw_plan_trim();
    nd__fft_lines_trim();
#if ND_HAVE_ONEDNN
    nd__conv_plan_trim();
#endif
}

uint64_t nd__cpu_workspace_bytes(void) {
    return nd__cpu_scratch_bytes();
}
