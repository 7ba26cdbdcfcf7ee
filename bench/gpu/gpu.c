// What the GPU is there for: bytes and operations a second beside what CUDA and cuBLAS reach when
// they are called directly, what memory costs, and steps of training beside PyTorch's, eager and
// compiled.
//
//   TG_gbps_…    elementwise work, reductions, softmax and layer norm on 64 M floats, in GB/s of
//                operands and result, beside a copy in the device's memory
//   TG_tflops_…  products n x n, beside cuBLAS; by ndarc's own kernels where ND_CUBLAS names no library
//   TG_ns_…      taking memory from the pool and giving it back; releasing what queued work uses
//   TG_us_…      steps of training
//
// Ours makes a new result each time, by the public interface alone. Every batch ends with waiting
// for the device.
#include "bench/gpu/gpu.h"

#include "bench/support/measure.h"
#include "bench/support/progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const nd_device gpu = {ND_CUDA, 0};

static bool is_wanted(const char *only, const char *part) {
    return !only || strcmp(only, part) == 0;
}

typedef struct operands {
    nd_tensor *a, *b;         ///< [rows, columns]
    nd_tensor *weight, *bias; ///< [columns]
} operands;

static bool measure(const char *only, bench_metric *metrics, size_t *ret_count, rival *direct);
static const char *take_only(int *argc, char **argv);

int main(int argc, char **argv) {
    bench_files files;
    const char *only = take_only(&argc, argv);
    int answer = bench_metrics_options(
        argc, argv,
        "What the GPU does, beside CUDA and cuBLAS called directly and PyTorch.\n\n"
        "  --only PART  memory, bytes, products or steps",
        &files);
    if (answer >= 0)
        return answer;
    static const char *const parts[] = {"memory", "bytes", "products", "steps"};
    bool known = !only;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        known = known || strcmp(only, parts[i]) == 0;
    if (!known) {
        fprintf(stderr, "gpu: --only is memory, bytes, products or steps, not '%s'\n", only);
        return 2;
    }
    if (nd_get_device_count(ND_CUDA) == 0) {
        printf("SKIPPED: no CUDA device\n");
        return 0;
    }
    const bool fake = rival_is_fake();
    if (!fake)
        bench_set_shortest_batch(0.01);
    bench_metric metrics[GPU_METRICS_MAX] = {{0}};
    size_t count = 0;
    bench_peer eager = {.skipped = "it would run on another device"}, compiled = eager;
    rival *direct = NULL;
    const char *what = rival_open(&direct);
    bool right = nd_set_default_device(gpu) == ND_OK && measure(only, metrics, &count, direct);
    rival_close(direct);
    if (!right) {
        bench_progress_clear();
        fprintf(stderr, "gpu: %s\n", nd_error_get_message());
        return 2;
    }
    if (!fake && is_wanted(only, "steps")) {
        bench_progress_show("PyTorch", (double)count / GPU_METRICS_MAX);
        bench_peer_run_own(&eager, "pytorch_gpu.py", "eager", "python3-torch");
        bench_peer_run_own(&compiled, "pytorch_gpu.py", "compiled", "python3-torch");
    }
    bench_table table = {.bench = "gpu",
                         .metrics = metrics,
                         .count = count,
                         .rivals = {[DIRECT] = {"direct", "rival_direct", NULL, what},
                                    [EAGER] = {"PyTorch", "rival_pytorch", &eager, NULL},
                                    [COMPILED] = {"compiled", "rival_compiled", &compiled, NULL}}};
    answer = bench_table_finish(&table, &files);
    if (fake)
        printf("  On the runtime without a GPU, with small operands: the figures mean nothing.\n");
    return answer;
}

// ------------------------------------------------------------------------------------------- bytes

#define WORK(name, call)                           \
    static bool name(void *data, uint64_t count) { \
        const operands *in = data;                 \
        for (uint64_t i = 0; i < count; i++) {     \
            nd_tensor *result = call;              \
            if (!result)                           \
                return false;                      \
            nd_release(result);                    \
        }                                          \
        return nd_synchronize(gpu) == ND_OK;       \
    }
static const int last_axis[] = {1}, first_axis[] = {0};
WORK(add, nd_add(in->a, in->b))
WORK(mul, nd_mul(in->a, in->b))
WORK(exponential, nd_exp(in->a))
WORK(gelu, nd_gelu(in->a))
WORK(to_bf16, nd_cast(in->a, ND_BF16))
WORK(sum, nd_sum(in->a, 0, NULL, false))
WORK(sum_rows, nd_sum(in->a, 1, last_axis, false))
WORK(sum_columns, nd_sum(in->a, 1, first_axis, false))
WORK(max_rows, nd_max(in->a, 1, last_axis, false))
WORK(softmax, nd_softmax(in->a, 1))
WORK(layer_norm, nd_layer_norm(in->a, in->weight, in->bias, 1e-5, 1))
WORK(transposed, nd_contiguous(in->b))

static bool operands_begin(operands *data, int64_t rows, int64_t columns, nd_dtype dtype) {
    nd_key key = nd_key_new(12);
    *data = (operands){.a = nd_randn(nd_key_fold(key, 0), ND_SHAPE(rows, columns), dtype),
                       .b = nd_randn(nd_key_fold(key, 1), ND_SHAPE(rows, columns), dtype),
                       .weight = nd_randn(nd_key_fold(key, 2), ND_SHAPE(columns), dtype),
                       .bias = nd_randn(nd_key_fold(key, 3), ND_SHAPE(columns), dtype)};
    return data->a && data->b && data->weight && data->bias;
}

static void operands_end(operands *data) {
    nd_release(data->a);
    nd_release(data->b);
    nd_release(data->weight);
    nd_release(data->bias);
}

static bool measure_bytes(bench_metric *metrics, size_t *count, rival *direct) {
    static const struct {
        const char *work, *name;
        bench_work ours;
        double streams; ///< arrays of f32 that are read or written
        double part;    ///< of the device's memory bandwidth, which is the target
        bool transposes;
    } rows[] = {
        {"add, 64 M floats", "TG_gbps_add", add, 3, 0.85, false},
        {"mul", "TG_gbps_mul", mul, 3, 0.85, false},
        {"exp", "TG_gbps_exp", exponential, 2, 0.85, false},
        {"gelu", "TG_gbps_gelu", gelu, 2, 0.85, false},
        {"cast to bf16", "TG_gbps_cast_bf16", to_bf16, 1.5, 0.85, false},
        {"transpose", "TG_gbps_transpose", transposed, 2, 0.85, true},
        {"sum", "TG_gbps_sum", sum, 1, 0.85, false},
        {"sum of each row of 1,024", "TG_gbps_sum_rows", sum_rows, 1, 0.85, false},
        {"sum of each column", "TG_gbps_sum_columns", sum_columns, 1, 0.85, false},
        {"max of each row", "TG_gbps_max_rows", max_rows, 1, 0.85, false},
        {"softmax of each row", "TG_gbps_softmax", softmax, 2, 0.8, false},
        {"layer norm of each row", "TG_gbps_layer_norm", layer_norm, 2, 0.8, false},
    };
    const bool fake = rival_is_fake();
    const int64_t height = fake ? 16 : 65536, width = fake ? 32 : 1024;
    const size_t bytes = (size_t)(height * width) * sizeof(float);
    operands data;
    bool right = operands_begin(&data, height, width, ND_F32);
    const bool copies = rival_take_blocks(direct, bytes);
    for (size_t i = 0; i < sizeof rows / sizeof *rows && right; i++) {
        bench_progress_show(rows[i].work, (double)*count / GPU_METRICS_MAX);
        nd_tensor *straight = data.b;
        if (rows[i].transposes)
            data.b = nd_transpose(straight, 0, 1);
        bench_side sides[] = {
            {.work = rows[i].ours, .data = &data},
            {.work = copies ? rival_copies : NULL, .data = direct},
        };
        bench_measure_sides(sides, 2, gpu_repeats(21));
        if (rows[i].transposes)
            nd_release(data.b);
        data.b = straight;
        right = isfinite(sides[0].ns);
        double copied = 2 * (double)bytes / sides[1].ns;
        metrics[(*count)++] = (bench_metric){.work = rows[i].work,
                                             .name = rows[i].name,
                                             .unit = "GB/s",
                                             .ours = rows[i].streams * (double)bytes / sides[0].ns,
                                             .rivals = {[DIRECT] = copied},
                                             .target = fake ? 0 : rows[i].part * 4800,
                                             .at_least = true};
    }
    operands_end(&data);
    nd_memory_trim(ND_CUDA); // the next sizes find the memory
    return right;
}

// ------------------------------------------------------------------------------------------ memory

static bool take_and_give_back(void *data, uint64_t count) {
    const int64_t *elements = data;
    for (uint64_t i = 0; i < count; i++) {
        nd_tensor *block = nd_empty(ND_SHAPE(*elements), ND_F32);
        if (!block)
            return false;
        nd_release(block);
    }
    return true;
}

/// Median nanoseconds of releasing the last handle of what queued products still read, and of all
/// that work.
static bool measure_release(double *ret_ns, double *ret_work_ns) {
    enum { ROUNDS = 15 };
    const bool fake = rival_is_fake();
    const int64_t n = fake ? 8 : 4096;
    const int products = fake ? 3 : 8;
    double released[ROUNDS], worked[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        nd_tensor *x = nd_randn(nd_key_new((uint64_t)round), ND_SHAPE(n, n), ND_F32);
        if (!x || nd_synchronize(gpu) != ND_OK)
            return false;
        double begin = bench_seconds();
        for (int i = 0; i < products; i++)
            nd_release(nd_matmul(x, x));
        double queued = bench_seconds();
        nd_release(x);
        released[round] = 1e9 * (bench_seconds() - queued);
        if (nd_synchronize(gpu) != ND_OK)
            return false;
        worked[round] = 1e9 * (bench_seconds() - begin);
    }
    *ret_ns = bench_median(released, ROUNDS);
    *ret_work_ns = bench_median(worked, ROUNDS);
    return true;
}

static bool measure_memory(bench_metric *metrics, size_t *count) {
    int64_t small = 256, large = rival_is_fake() ? 4096 : 1 << 24;
    double release = NAN, work = NAN;
    metrics[(*count)++] =
        (bench_metric){.work = "take 1 KiB and give it back",
                       .name = "TG_ns_take_1k",
                       .unit = "ns",
                       .ours = bench_measure_ns(take_and_give_back, &small, gpu_repeats(101)),
                       .target = 300};
    metrics[(*count)++] =
        (bench_metric){.work = "take 64 MiB and give it back",
                       .name = "TG_ns_take_64m",
                       .unit = "ns",
                       .ours = bench_measure_ns(take_and_give_back, &large, gpu_repeats(101)),
                       .target = 300};
    bool right = nd_synchronize(gpu) == ND_OK && measure_release(&release, &work);
    metrics[(*count)++] = (bench_metric){.work = "release what 8 queued products read",
                                         .name = "TG_ns_release_in_flight",
                                         .unit = "ns",
                                         .ours = release,
                                         .target = 0.01 * work};
    metrics[(*count)++] = (bench_metric){.work = "… and what those products take",
                                         .name = "TG_ns_work_in_flight",
                                         .unit = "ns",
                                         .ours = work};
    nd_memory_trim(ND_CUDA); // the next sizes find the memory
    return right;
}

size_t gpu_repeats(size_t usual) {
    return rival_is_fake() ? 1 : usual;
}

static bool measure(const char *only, bench_metric *metrics, size_t *ret_count, rival *direct) {
    return (!is_wanted(only, "memory") || measure_memory(metrics, ret_count)) &&
           (!is_wanted(only, "bytes") || measure_bytes(metrics, ret_count, direct)) &&
           (!is_wanted(only, "products") || products_measure(metrics, ret_count, direct)) &&
           (!is_wanted(only, "steps") || steps_measure(metrics, ret_count));
}

/// Takes `--only PART` out of the arguments; NULL for all parts.
static const char *take_only(int *argc, char **argv) {
    const char *only = NULL;
    int kept = 1;
    for (int i = 1; i < *argc; i++)
        if (strcmp(argv[i], "--only") == 0 && i + 1 < *argc)
            only = argv[++i];
        else
            argv[kept++] = argv[i];
    argv[kept] = NULL;
    *argc = kept;
    return only;
}
