// Products of square matrices on the GPU, beside cuBLAS called directly: by cuBLAS, through the library's
// dispatch, or by ndarc's own kernels where ND_CUBLAS names no library.
#include "bench/gpu/gpu.h"
#include "bench/support/measure.h"
#include "bench/support/progress.h"

#include <math.h>

typedef struct factors {
    nd_tensor *a, *b; ///< [n, n]
} factors;

static const nd_device gpu = {ND_CUDA, 0};

static bool products(void *data, uint64_t count) {
    const factors *in = data;
    const bool bytes = nd_get_dtype(in->a) == ND_I8;
    for (uint64_t i = 0; i < count; i++) {
        nd_tensor *result =
            bytes ? nd_matmul_integer(in->a, in->b, NULL, NULL) : nd_matmul(in->a, in->b);
        if (!result)
            return false;
        nd_release(result);
    }
    return nd_synchronize(gpu) == ND_OK;
}

static nd_tensor *random_factor(nd_key key, int64_t n, nd_dtype dtype) {
    return dtype == ND_I8 ? nd_randint(key, -100, 100, ND_SHAPE(n, n), dtype)
                          : nd_randn(key, ND_SHAPE(n, n), dtype);
}

bool products_measure(bench_metric *metrics, size_t *count, rival *direct) {
    static const struct {
        const char *work, *name;
        nd_dtype dtype;
        int64_t n;
        bool tf32;
    } rows[] = {
        {"product f32, 1024 x 1024", "TG_tflops_f32_1024", ND_F32, 1024, false},
        {"product f32, 4096 x 4096", "TG_tflops_f32_4096", ND_F32, 4096, false},
        {"product f32, 8192 x 8192", "TG_tflops_f32_8192", ND_F32, 8192, false},
        {"… TF32 allowed, 4096 x 4096", "TG_tflops_tf32_4096", ND_F32, 4096, true},
        {"… TF32 allowed, 8192 x 8192", "TG_tflops_tf32_8192", ND_F32, 8192, true},
        {"product bf16, 1024 x 1024", "TG_tflops_bf16_1024", ND_BF16, 1024, false},
        {"product bf16, 2048 x 2048", "TG_tflops_bf16_2048", ND_BF16, 2048, false},
        {"product bf16, 4096 x 4096", "TG_tflops_bf16_4096", ND_BF16, 4096, false},
        {"product bf16, 8192 x 8192", "TG_tflops_bf16_8192", ND_BF16, 8192, false},
        {"product f16, 4096 x 4096", "TG_tflops_f16_4096", ND_F16, 4096, false},
        {"product f16, 8192 x 8192", "TG_tflops_f16_8192", ND_F16, 8192, false},
        {"product i8, 4096 x 4096", "TG_tflops_i8_4096", ND_I8, 4096, false},
    };
    bool right = true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && right; i++) {
        bench_progress_show(rows[i].work, (double)*count / GPU_METRICS_MAX);
        const int64_t n = rival_is_fake() ? 12 : rows[i].n;
        nd_key key = nd_key_new(12);
        factors in = {.a = random_factor(nd_key_fold(key, 0), n, rows[i].dtype),
                      .b = random_factor(nd_key_fold(key, 1), n, rows[i].dtype)};
        bench_side sides[] = {
            {.work = products, .data = &in},
            {.work = rival_take_matrices(direct, rows[i].dtype, n, rows[i].tf32) ? rival_products
                                                                                 : NULL,
             .data = direct},
        };
        nd_set_tf32(rows[i].tf32);
        if (in.a && in.b)
            bench_measure_sides(sides, 2, gpu_repeats(15));
        right = in.a && in.b && isfinite(sides[0].ns);
        nd_set_tf32(false);
        nd_release(in.a);
        nd_release(in.b);
        const double operations = 2.0 * (double)n * (double)n * (double)n * 1e-3;
        metrics[(*count)++] = (bench_metric){.work = rows[i].work,
                                             .name = rows[i].name,
                                             .unit = "TFLOP/s",
                                             .ours = operations / sides[0].ns,
                                             .rivals = {[DIRECT] = operations / sides[1].ns},
                                             .ratio = 0.98,
                                             .beside = 1u << DIRECT,
                                             .at_least = true};
        nd_memory_trim(ND_CUDA); // the next sizes find the memory
    }
    return right;
}
