// T18: the bytes of memory that a live tensor is, beside PyTorch's and NumPy's in one run.
//
//   16 floats     what header, shape, data and bookkeeping of a small one come to
//   4,096 floats  whether 16,384 bytes of data fit the allocator's pages
//
// What the system says is resident in the process, with so many tensors alive, less what was before
// them, by their number; the array of handles was there before. Each figure is of a process of its
// own, so that none reuses what another one freed.
#include "bench/support/metrics.h"
#include "bench/support/peer.h"
#include "bench/support/progress.h"

#include <nd/nd.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { METRICS = 2 };

typedef struct size {
    int64_t floats;
    size_t tensors;
} size;
static const size sizes[METRICS] = {{16, 1000000}, {4096, 20000}};

static double measure_apart(const size *of);

int main(int argc, char **argv) {
    bench_files files;
    int answer = bench_metrics_options(
        argc, argv, "T18: the resident bytes of a live tensor, beside PyTorch and NumPy.", &files);
    if (answer >= 0)
        return answer;
    bench_metric metrics[METRICS] = {
        {.work = "16 floats", .name = "T18_bytes_16_floats", .target = 256},
        {.work = "4,096 floats", .name = "T18_bytes_4096_floats"},
    };
    bench_peer pytorch, numpy;
    bench_table table = {.bench = "tensor_bytes",
                         .metrics = metrics,
                         .count = METRICS,
                         .rivals = {{.title = "PyTorch", .key = "rival_pytorch", .peer = &pytorch},
                                    {.title = "NumPy", .key = "rival_numpy", .peer = &numpy}}};
    for (size_t i = 0; i < METRICS; i++) {
        bench_progress_show(metrics[i].work, (double)i / 4);
        metrics[i].unit = "bytes";
        metrics[i].ours = measure_apart(&sizes[i]);
    }
    bench_progress_show("PyTorch", 0.5);
    bench_peer_run_own(&pytorch, "tensor_bytes.py", "torch", "python3-torch");
    bench_progress_show("NumPy", 0.75);
    bench_peer_run_own(&numpy, "tensor_bytes.py", "numpy", "python3-numpy");
    return bench_table_finish(&table, &files);
}

/// Resident kilobytes of this process; NaN when the system does not say.
static double resident_kb(void) {
    char line[256];
    double kilobytes = NAN;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "Rss:", 4) == 0)
            kilobytes = strtod(line + 4, NULL);
    if (file)
        fclose(file);
    return kilobytes;
}

/// Bytes by tensor, in this process; NaN on failure.
static double measure(const size *of) {
    nd_tensor **tensors = malloc(of->tensors * sizeof *tensors);
    nd_tensor *first = nd_full(ND_SHAPE(of->floats), 1.5, ND_F32); // what the first one sets up
    if (!tensors || !first)
        return NAN;
    memset(tensors, 1, of->tensors * sizeof *tensors); // its pages are there before
    double before = resident_kb();
    for (size_t i = 0; i < of->tensors; i++) {
        tensors[i] = nd_full(ND_SHAPE(of->floats), 1.5 + (double)(i % 64), ND_F32);
        if (!tensors[i])
            return NAN;
    }
    double bytes = (resident_kb() - before) * 1024 / (double)of->tensors;
    for (size_t i = 0; i < of->tensors; i++)
        nd_release(tensors[i]);
    nd_release(first);
    free(tensors);
    return bytes;
}

static double measure_apart(const size *of) {
    int ends[2];
    double bytes = NAN;
    if (pipe(ends) != 0)
        return NAN;
    fflush(stdout);
    pid_t process = fork();
    if (process == 0) {
        bytes = measure(of);
        if (isnan(bytes))
            fprintf(stderr, "tensor_bytes: %s\n", nd_error_get_message());
        bool told = write(ends[1], &bytes, sizeof bytes) == (ssize_t)sizeof bytes;
        _exit(told ? 0 : 1);
    }
    close(ends[1]);
    if (process < 0 || read(ends[0], &bytes, sizeof bytes) != (ssize_t)sizeof bytes)
        bytes = NAN;
    close(ends[0]);
    if (process > 0)
        waitpid(process, NULL, 0);
    return bytes;
}
