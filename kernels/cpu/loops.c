// The table of one instruction set's loops.
#include "kernels/cpu/isa.h"
#include "kernels/cpu/spectral.h"

extern const nd__loop *const ND_ISA_NAME(nd__cpu_unary)[ND_DTYPE_COUNT];
extern const nd__loop *const ND_ISA_NAME(nd__cpu_binary)[ND_DTYPE_COUNT];
extern const nd__loop ND_ISA_NAME(nd__cpu_convert)[ND_DTYPE_COUNT][ND_DTYPE_COUNT];
extern const nd__reducer *const ND_ISA_NAME(nd__cpu_reducers)[ND__FOLDS][ND_DTYPE_COUNT];
extern const nd__argreducer ND_ISA_NAME(nd__cpu_argreducers)[ND_DTYPE_COUNT][2];
extern const nd__argcolumns ND_ISA_NAME(nd__cpu_argcolumns)[ND_DTYPE_COUNT][2];
extern const nd__scan ND_ISA_NAME(nd__cpu_scans)[ND__SCANS][ND_DTYPE_COUNT];
extern const nd__softmax_loops ND_ISA_NAME(nd__cpu_softmax)[2];
extern const nd__norm_loops ND_ISA_NAME(nd__cpu_norm_loops)[2];
extern const nd__pair_loop *const ND_ISA_NAME(nd__cpu_pair_loops)[2];
extern const nd__depthwise ND_ISA_NAME(nd__cpu_depthwise_loops)[2];
extern const nd__taps_loop ND_ISA_NAME(nd__cpu_taps_loops)[2];
extern const nd__quantized_loops ND_ISA_NAME(nd__cpu_quantized_loops)[2];
extern const nd__create_loops ND_ISA_NAME(nd__cpu_create_loops);
extern const nd__pool_planes ND_ISA_NAME(nd__cpu_pool_planes)[2];
extern const nd__fft_lines_loop ND_ISA_NAME(nd__cpu_fft_lines)[2];
extern const nd__resample_loops ND_ISA_NAME(nd__cpu_resample_loops)[2];
extern const nd__factor_loops ND_ISA_NAME(nd__cpu_factor_loops)[2];
extern const nd__spectral_loops ND_ISA_NAME(nd__cpu_spectral_loops)[2];
extern const nd__sorting_loops ND_ISA_NAME(nd__cpu_sorting_loops);
extern const nd__attention_loops ND_ISA_NAME(nd__cpu_attention_loops)[2];
extern const nd__cell_loops ND_ISA_NAME(nd__cpu_cell_loops)[2];
extern const nd__matmul ND_ISA_NAME(nd__cpu_matmul)[ND_DTYPE_COUNT];
extern const nd__matmul_entries ND_ISA_NAME(nd__cpu_matmul_entries)[ND_DTYPE_COUNT];

void ND_ISA_NAME(nd__cpu_matmul_integer)(nd__product *product);
void ND_ISA_NAME(nd__cpu_stream)(void *to, const void *from, int64_t bytes);
void ND_ISA_NAME(nd__cpu_box_copy)(const nd__box *box, int64_t width, char *to, const char *from);

#define ND__TEXT_(name) #name
#define ND__TEXT(name) ND__TEXT_(name)

#if defined(__AVX512F__)
#define ND__SMALL ND__SMALL_PRODUCT
#else
#define ND__SMALL 0
#endif

// clang-format off
#define ND__LOOPS(title, folds)                            \
    {                                                      \
        .name = title,                                     \
        .unary = ND_ISA_NAME(nd__cpu_unary),               \
        .binary = ND_ISA_NAME(nd__cpu_binary),             \
        .convert = ND_ISA_NAME(nd__cpu_convert),           \
        .reducers = folds,                                 \
        .argreducers = ND_ISA_NAME(nd__cpu_argreducers),   \
        .argcolumns = ND_ISA_NAME(nd__cpu_argcolumns),     \
        .scans = ND_ISA_NAME(nd__cpu_scans),               \
        .softmax = ND_ISA_NAME(nd__cpu_softmax),           \
        .norm = ND_ISA_NAME(nd__cpu_norm_loops),           \
        .pair = ND_ISA_NAME(nd__cpu_pair_loops),           \
        .depthwise = ND_ISA_NAME(nd__cpu_depthwise_loops), \
        .taps = ND_ISA_NAME(nd__cpu_taps_loops),           \
        .quantized = ND_ISA_NAME(nd__cpu_quantized_loops), \
        .matmul = ND_ISA_NAME(nd__cpu_matmul),             \
        .matmul_entries = ND_ISA_NAME(nd__cpu_matmul_entries), \
        .matmul_integer = ND_ISA_NAME(nd__cpu_matmul_integer), \
        .attention = ND_ISA_NAME(nd__cpu_attention_loops), \
        .cell = ND_ISA_NAME(nd__cpu_cell_loops),           \
        .small_product = ND__SMALL,                        \
        .create = &ND_ISA_NAME(nd__cpu_create_loops),      \
        .pool = ND_ISA_NAME(nd__cpu_pool_planes),          \
        .resample = ND_ISA_NAME(nd__cpu_resample_loops),   \
        .factor = ND_ISA_NAME(nd__cpu_factor_loops),       \
        .spectral = ND_ISA_NAME(nd__cpu_spectral_loops),   \
        .fft_lines = ND_ISA_NAME(nd__cpu_fft_lines),       \
        .sorting = &ND_ISA_NAME(nd__cpu_sorting_loops),    \
        .stream = ND_ISA_NAME(nd__cpu_stream),             \
        .box_copy = ND_ISA_NAME(nd__cpu_box_copy),         \
    }
// clang-format on

const nd__cpu_loops ND_ISA_NAME(nd__cpu_loops) = ND__LOOPS(ND__TEXT(ND_ISA),
                                                           ND_ISA_NAME(nd__cpu_reducers));

#if defined(__AVX512F__)
extern const nd__reducer *const nd__cpu_reducers_x86_64_v4_halves[ND__FOLDS][ND_DTYPE_COUNT];
const nd__cpu_loops nd__cpu_loops_x86_64_v4_halves =
    ND__LOOPS("x86_64_v4_halves", nd__cpu_reducers_x86_64_v4_halves);
#endif
