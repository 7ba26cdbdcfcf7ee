// T8: 223 ordinary calls on the CPU, forward and with their gradients, with one thread and with
// two, beside PyTorch.
//
// Calls on matrices are timed for 1 k, 1 M and 16 M elements (32 x 32, 1024 x 1024, 4096 x 4096),
// products and layers for the usual shapes. Both sides are called as programs call them: the result is
// a new tensor each time, which is released. PyTorch's process is run for each size and number of
// threads right behind our own measurement of them, all twice, and the lesser of both medians is kept
// for each: a machine that is busy for a while spoils neither side alone. On a slow machine there is no
// second round, or it ends early, and what no time is left for in the first one is left out.
#include "bench/kernels/calls.h"
#include "bench/support/metrics.h"
#include "bench/support/peer.h"
#include "bench/support/progress.h"

#include <nd/scope.h>

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 2, THREADS = 2, NSIZES = 4, MOST_CALLS = 200, SECONDS = 1200 };

static const struct {
    const char *name;
    int64_t n; ///< of operands_of_size(); 0: the usual shapes
    size_t repeats;
} sizes[NSIZES] = {{"1k", 32, 11}, {"1m", 1024, 11}, {"16m", 4096, 5}, {"shapes", 0, 11}};

typedef struct options {
    bench_files files;
    const char *only; ///< part of the names of calls; "": all
    const char *size; ///< name of the only size; NULL: all
    int threads;      ///< the only number of threads; 0: all
    double seconds;   ///< nothing is begun that would take longer
} options;

typedef struct cell {
    const kernel_call *call;
    char work[64];
    char key[64];
} cell;

typedef struct table {
    bench_metric metrics[THREADS * NSIZES * MOST_CALLS];
    cell cells[THREADS * NSIZES * MOST_CALLS];
    size_t count;
} table;

/// How far all is: of each size and number of threads, twice, ours is a part and PyTorch's one.
typedef struct progress {
    int done, parts;
} progress;

static int read_options(int argc, char **argv, options *wanted);
static bool is_wanted(const options *wanted, size_t size, int threads);
/// As many sizes and numbers of threads as there is time for until `end`; returns how many there is none
/// for, or -1 with an error.
static int measure_round(table *all, const options *wanted, double end, progress *progress,
                         bench_peer *pytorch);
static bool measure(table *all, size_t size, int threads, const options *wanted, progress *progress,
                    bench_peer *pytorch);

int main(int argc, char **argv) {
    options wanted = {.only = "", .seconds = SECONDS};
    int answer = read_options(argc, argv, &wanted);
    if (answer >= 0)
        return answer;
    static table all;
    bench_peer pytorch = {0};
    progress progress = {0};
    for (size_t cell = 0; cell < NSIZES * THREADS; cell++)
        progress.parts +=
            2 * ROUNDS * is_wanted(&wanted, cell / THREADS, (int)(cell % THREADS) + 1);
    const double end = bench_seconds() + wanted.seconds;
    int left_out = 0, once = 0;
    for (int round = 0; round < ROUNDS && left_out == 0; round++) {
        const size_t before = all.count;
        all.count = 0;
        const int late = measure_round(&all, &wanted, end, &progress, &pytorch);
        if (late < 0) {
            bench_progress_clear();
            fprintf(stderr, "kernels: %s\n", nd_error_get_message());
            return 2;
        }
        if (round == 0) {
            left_out = late;
        } else {
            once = late;
            all.count = before;
        }
    }
    if (all.count == 0) {
        fprintf(stderr, "kernels: no call of what is asked for has '%s' in its name\n",
                wanted.only);
        return 2;
    }
    bench_table printed = {
        .bench = "kernels",
        .metrics = all.metrics,
        .count = all.count,
        .mean = *wanted.only || wanted.size || wanted.threads ? 0 : 0.8,
        .worst = 10,
        .rivals = {{.title = "PyTorch", .key = "rival_pytorch", .peer = &pytorch}}};
    answer = bench_table_finish(&printed, &wanted.files);
    if (left_out || once)
        printf("  %d of %d sizes and numbers of threads were %s: this machine is slow or busy "
               "(--seconds gives more time)\n",
               left_out ? left_out : once, progress.parts / 2 / ROUNDS,
               left_out ? "left out, and the others measured once" : "measured once");
    return answer;
}

static int read_options(int argc, char **argv, options *wanted) {
    static const struct option known[] = {
        {"json", required_argument, NULL, 'j'},    {"plot", required_argument, NULL, 'p'},
        {"only", required_argument, NULL, 'o'},    {"size", required_argument, NULL, 's'},
        {"threads", required_argument, NULL, 't'}, {"seconds", required_argument, NULL, 'l'},
        {"help", no_argument, NULL, 'h'},          {0}};
    for (int option; (option = getopt_long(argc, argv, "h", known, NULL)) != -1;) {
        switch (option) {
        case 'j':
            wanted->files.json = optarg;
            break;
        case 'p':
            wanted->files.plot = optarg;
            break;
        case 'o':
            wanted->only = optarg;
            break;
        case 's':
            wanted->size = optarg;
            break;
        case 't':
            wanted->threads = (int)strtol(optarg, NULL, 10);
            break;
        case 'l':
            wanted->seconds = strtod(optarg, NULL);
            break;
        case 'h':
            printf("T8: ordinary calls on the CPU, beside PyTorch.\n\n"
                   "  --json FILE  write the figures to FILE\n"
                   "  --plot FILE  draw the ratios, .png or .svg, with gnuplot\n"
                   "  --only PART  the calls alone whose names contain PART\n"
                   "  --size SIZE  1k, 1m, 16m or shapes alone\n"
                   "  --threads N  1 or 2 alone\n"
                   "  --seconds N  about how long all may take (%d): on a slow or busy machine\n"
                   "               it measures less, not longer\n"
                   "  --help       this text\n",
                   SECONDS);
            return 0;
        default:
            return 2;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "kernels: unexpected argument '%s'\n", argv[optind]);
        return 2;
    }
    return bench_files_check("kernels", &wanted->files) ? -1 : 2;
}

static bool is_wanted(const options *wanted, size_t size, int threads) {
    return (!wanted->size || strcmp(wanted->size, sizes[size].name) == 0) &&
           (!wanted->threads || wanted->threads == threads);
}

static int measure_round(table *all, const options *wanted, double end, progress *progress,
                         bench_peer *pytorch) {
    int late = 0;
    double longest = 0;
    for (size_t size = 0; size < NSIZES; size++)
        for (int threads = 1; threads <= THREADS; threads++) {
            if (!is_wanted(wanted, size, threads))
                continue;
            const double begun = bench_seconds();
            if (late || (progress->done > 0 && begun + longest > end)) {
                late++;
                continue;
            }
            if (!measure(all, size, threads, wanted, progress, pytorch))
                return -1;
            const double took = bench_seconds() - begun;
            longest = took > longest ? took : longest;
        }
    return late;
}

/// Keeps the lesser of what was measured.
static void keep(double *best, double figure) {
    if (isfinite(figure) && (!(*best > 0) || figure < *best))
        *best = figure;
}

/// Our own time of one call, into its cell, the next of the table.
static bool measure_call(table *all, operands *in, const kernel_call *call, size_t size,
                         int threads) {
    cell *at = &all->cells[all->count];
    bench_metric *metric = &all->metrics[all->count++];
    at->call = call;
    snprintf(at->work, sizeof at->work, "%s, %s, %d", call->name, sizes[size].name, threads);
    snprintf(at->key, sizeof at->key, "T8_%s_%s_%d_ns", call->name, sizes[size].name, threads);
    metric->work = at->work;
    metric->name = at->key;
    metric->unit = "ns";
    metric->ratio = 1.15;
    in->seed = NULL;
    double ns = bench_measure_ns(call->work, in, sizes[size].repeats);
    keep(&metric->ours, ns);
    return isfinite(ns);
}

static bool measure_ours(table *all, size_t size, int threads, const options *wanted,
                         const progress *progress) {
    static const kernel_calls *const of_size[] = {&elementwise_calls, &reduction_calls,
                                                  &layout_calls, &creation_calls, &gradient_calls};
    static const kernel_calls *const of_shapes[] = {&product_calls, &network_calls};
    int64_t n = sizes[size].n;
    const kernel_calls *const *kinds = n ? of_size : of_shapes;
    size_t nkinds = n ? sizeof of_size / sizeof *of_size : sizeof of_shapes / sizeof *of_shapes;
    operands in;
    bool right = nd_set_num_threads(threads) == ND_OK &&
                 (n ? operands_of_size(&in, n) : operands_of_shapes(&in));
    for (size_t k = 0; k < nkinds && right; k++)
        for (size_t i = 0; i < kinds[k]->count && right; i++)
            if (strstr(kinds[k]->calls[i].name, wanted->only)) {
                const double part =
                    ((double)k + (double)i / (double)kinds[k]->count) / (double)nkinds;
                bench_progress_show(kinds[k]->calls[i].name,
                                    (progress->done + part) / progress->parts);
                right = measure_call(all, &in, &kinds[k]->calls[i], size, threads);
            }
    return right;
}

/// All calls of one size with so many threads, ours and PyTorch's.
static bool measure(table *all, size_t size, int threads, const options *wanted, progress *progress,
                    bench_peer *pytorch) {
    size_t first = all->count;
    nd_scope *scope = nd_scope_begin();
    bool right = scope && measure_ours(all, size, threads, wanted, progress);
    nd_scope_end(scope);
    char argument[96];
    snprintf(argument, sizeof argument, "%s:%d:%s", sizes[size].name, threads, wanted->only);
    char text[64];
    snprintf(text, sizeof text, "PyTorch, %s, threads: %d", sizes[size].name, threads);
    bench_progress_show(text, (double)++progress->done / progress->parts);
    bench_peer_run_own(pytorch, "pytorch_kernels.py", argument, "python3-torch");
    progress->done++;
    for (size_t i = first; i < all->count; i++)
        keep(&all->metrics[i].rivals[0], bench_peer_number(pytorch, all->cells[i].call->name));
    return right;
}
