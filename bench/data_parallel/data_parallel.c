// T23: data-parallel training on 1, 2 and 4 ranks of this machine, one thread each, beside PyTorch's
// DistributedDataParallel over Gloo; how much of the communication the backward pass hides; and
// all-reduces and other collective calls beside those of the MPI below. Random data. Each number of ranks is measured for both
// libraries one after the other.
//
// Hidden is a share of what could be. A step without communication takes `alone`; with all buckets
// sent after the backward pass `after`; with buckets sent while it goes on `overlap`. Communication
// takes after - alone, of which each bucket has a part by its bytes. Sent one after the other, each
// when its last gradient was measured to be there, the buckets are through some time after the
// pass: that time nothing can hide, the rest could be. Hidden of it was after - overlap.
//
// On one machine communication is copies and additions, which take the cores that compute (the
// figure `processor` says how much of it); only waiting costs none. So it is measured once more with
// a link of 10 Gbit/s between the ranks (link.h), twice: by the formula above, where what could be
// hidden is at most what the link adds to `after`; and of the link's own time, which needs no
// processor: `busy`, less what of it nothing can hide. Of that `overlap` with the link, less
// `overlap` with one that takes no time, is what a step has waited for.
#include "bench/data_parallel/collective.h"
#include "bench/data_parallel/figures.h"
#include "bench/data_parallel/launch.h"
#include "bench/data_parallel/rank.h"
#include "bench/data_parallel/reduction.h"
#include "bench/data_parallel/timeline.h"
#include "bench/data_parallel/training.h"
#include "bench/support/gnuplot.h"
#include "bench/support/metrics.h"
#include "bench/support/paths.h"
#include "bench/support/progress.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RUNS = 3,
    PLAIN_MPI = 1,
    COLLECTIVES = COLLECTIVE_KINDS * REDUCTION_SIZES,
    METRICS = RUNS * TRAININGS + 4 + (RUNS - 1) * COLLECTIVES + REDUCTION_SIZES
};
static const int rank_counts[RUNS] = {1, 2, 4};
enum { TWO_RANKS = 1 };

typedef struct figures {
    bench_peer ours[RUNS], theirs[RUNS];
    bench_metric metrics[METRICS];
    char names[METRICS][64], works[METRICS][80];
    size_t count;
} figures;

static bench_metric *add(figures *all, const char *unit) {
    bench_metric *metric = &all->metrics[all->count];
    *metric = (bench_metric){
        .work = all->works[all->count], .name = all->names[all->count], .unit = unit};
    all->count++;
    return metric;
}

static void add_steps(figures *all) {
    for (int kind = 0; kind < TRAININGS; kind++)
        for (int run = 0; run < RUNS; run++) {
            const char *plural = rank_counts[run] > 1 ? "s" : "";
            snprintf(all->works[all->count], sizeof *all->works, "step, %s, %d rank%s",
                     training_kinds[kind].work, rank_counts[run], plural);
            snprintf(all->names[all->count], sizeof *all->names, "T23_us_%s_%d_rank%s",
                     training_kinds[kind].name, rank_counts[run], plural);
            bench_metric *metric = add(all, "us");
            metric->ours = figures_us(&all->ours[run], training_kinds[kind].name, "overlap");
            char key[96];
            snprintf(key, sizeof key, "T23_rival_pytorch_%s", metric->name + strlen("T23_"));
            metric->rivals[0] = bench_peer_number(&all->theirs[run], key);
        }
}

/// What of so much time of all buckets is behind the pass at least.
static double exposed(const bench_peer *peer, const char *model, double time) {
    double bytes, seconds[TIMELINE_BUCKETS];
    timeline line = figures_timeline(peer, model, &bytes);
    for (size_t i = 0; i < line.count; i++)
        seconds[i] = time * line.buckets[i].bytes / bytes;
    return line.count > 0 ? timeline_finish(&line, seconds) - line.buckets[line.count - 1].ready
                          : (double)NAN;
}

/// Percent, or what the table takes for one: 0 would be a figure that was not measured.
static double percent(double part, double of) {
    return fmax(0.1, 100 * part / of);
}

/// Of what could be hidden of all communication.
static double hidden(const bench_peer *peer, const char *model, bool link) {
    double alone = figures_us(peer, model, "alone");
    double after = figures_us(peer, model, link ? "link_after" : "after");
    double overlap = figures_us(peer, model, link ? "link_overlap" : "overlap");
    double could = after - alone - exposed(peer, model, after - alone);
    if (link)
        could = fmin(could, after - figures_us(peer, model, "apart_after"));
    return percent(after - overlap, could);
}

/// Of what could be hidden of the link's own time.
static double hidden_busy(const bench_peer *peer, const char *model) {
    double busy = figures_us(peer, model, "link_busy");
    double waited =
        figures_us(peer, model, "link_overlap") - figures_us(peer, model, "apart_overlap");
    // While the last bucket is on its way results of the others are copied: more than could be.
    return fmin(100, percent(busy - waited, busy - exposed(peer, model, busy)));
}

/// Of communication in shared memory: what of it is work for a processor.
static double processor(const bench_peer *peer, const char *model) {
    double work =
        figures_us(peer, model, "after_processor") - figures_us(peer, model, "alone_processor");
    return percent(work, figures_us(peer, model, "after") - figures_us(peer, model, "alone"));
}

static void add_percent(figures *all, const char *work, const char *name, double value) {
    snprintf(all->works[all->count], sizeof *all->works, "%s", work);
    snprintf(all->names[all->count], sizeof *all->names, "T23_percent_%s", name);
    add(all, "%")->ours = value;
}

static void add_hidden(figures *all) {
    const bench_peer *two = &all->ours[TWO_RANKS];
    const char *mlp = training_kinds[TRAINING_MLP].name;
    size_t first = all->count;
    add_percent(all, "hidden of what could be, MLP, shared memory", "hidden_memory",
                hidden(two, mlp, false));
    add_percent(all, "hidden of what could be, MLP, 10 Gbit/s", "hidden_link",
                hidden(two, mlp, true));
    add_percent(all, "hidden of the link's own time, MLP", "hidden_busy", hidden_busy(two, mlp));
    for (size_t i = first; i < all->count; i++) {
        all->metrics[i].target = 80;
        all->metrics[i].at_least = true;
    }
    add_percent(all, "processor's part of communication, MLP", "processor", processor(two, mlp));
}

static void add_collective(figures *all, int run, collective_kind kind,
                           const struct reduction_size *size) {
    char key[40];
    snprintf(key, sizeof key, "%s_%s", collective_names[kind], size->name);
    snprintf(all->works[all->count], sizeof *all->works, "%s of %s bytes, %d ranks",
             collective_names[kind], size->name, rank_counts[run]);
    snprintf(all->names[all->count], sizeof *all->names, "T23_gbps_%s_%d_ranks", key,
             rank_counts[run]);
    bench_metric *metric = add(all, "GB/s");
    double bytes = (double)size->bytes * 1e-3;
    metric->ours = bytes / figures_us(&all->ours[run], key, "ours");
    metric->rivals[PLAIN_MPI] = bytes / figures_us(&all->ours[run], key, "mpi");
}

static void add_collectives(figures *all) {
    for (int run = TWO_RANKS; run < RUNS; run++)
        for (int i = 0; i < COLLECTIVES; i++)
            add_collective(all, run, (collective_kind)(i / REDUCTION_SIZES),
                           &reduction_sizes[i % REDUCTION_SIZES]);
}

/// The last ones, which the chart has.
static void add_reductions(figures *all) {
    const bench_peer *two = &all->ours[TWO_RANKS];
    for (int i = 0; i < REDUCTION_SIZES; i++) {
        const struct reduction_size *size = &reduction_sizes[i];
        char key[96];
        snprintf(all->works[all->count], sizeof *all->works, "all-reduce of %s bytes, 2 ranks",
                 size->name);
        snprintf(all->names[all->count], sizeof *all->names, "T23_gbps_%s", size->name);
        snprintf(key, sizeof key, "T23_rival_pytorch_gbps_%s", size->name);
        bench_metric *metric = add(all, "GB/s");
        metric->ours = (double)size->bytes * 1e-3 / figures_us(two, size->name, "ours");
        metric->rivals[0] = bench_peer_number(&all->theirs[TWO_RANKS], key);
        metric->rivals[PLAIN_MPI] = (double)size->bytes * 1e-3 / figures_us(two, size->name, "mpi");
        metric->ratio = 0.95;
        metric->beside = 1u << PLAIN_MPI;
        metric->at_least = true;
    }
}

static void write_points(FILE *to, const bench_metric *metrics, size_t count, int rival) {
    for (size_t i = 0; i < count; i++) {
        double y = rival < 0 ? metrics[i].ours : metrics[i].rivals[rival];
        if (isfinite(y) && y > 0)
            fprintf(to, "%zu %g\n", i, y);
    }
    fprintf(to, "e\n");
}

/// A line of a plot, which is left out where it has no points.
typedef struct line {
    int rival; ///< -1: ours
    const char *style;
} line;

static void draw_lines(FILE *to, const bench_metric *metrics, size_t count, const char *columns,
                       const line *lines, size_t line_count) {
    const char *before = "plot ";
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < line_count; i++) {
            bool any = lines[i].rival < 0;
            for (size_t k = 0; k < count && !any; k++)
                any = metrics[k].rivals[lines[i].rival] > 0;
            if (any && pass == 0)
                fprintf(to, "%s'-' %s %s", before, columns, lines[i].style);
            else if (any)
                write_points(to, metrics, count, lines[i].rival);
            before = pass == 0 && any ? ", " : before;
            if (pass == 0 && i + 1 == line_count)
                fprintf(to, "\n");
        }
}

/// Left: a step of the MLP over ranks. Right: all-reduces over sizes.
static bool draw(const figures *all, const char *path) {
    bench_gnuplot gnuplot;
    char target[4096];
    if (!bench_user_path(path, target, sizeof target) ||
        !bench_gnuplot_begin(&gnuplot, "data_parallel", target, 860, 320))
        return false;
    fprintf(gnuplot.stream,
            "set multiplot layout 1,2\nset style data linespoints\nset offsets 0.2,0.2,0,0\n"
            "set yrange [0:*]\nset title 'a step of the MLP, ms'\n"
            "set xtics ('1 rank' 0, '2 ranks' 1, '4 ranks' 2)\n");
    const line steps[] = {{-1, "linestyle 2 title 'ndarc'"},
                          {0, "linestyle 3 title 'PyTorch DDP, Gloo'"}};
    draw_lines(gnuplot.stream, all->metrics, RUNS, "using 1:($2/1000)", steps, 2);
    const bench_metric *reductions = &all->metrics[all->count - REDUCTION_SIZES];
    fprintf(gnuplot.stream,
            "set title 'all-reduce between 2 ranks, GB/s'\nset key top right\nset xtics (");
    for (int i = 0; i < REDUCTION_SIZES; i++)
        fprintf(gnuplot.stream, "%s'%s' %d", i ? ", " : "", reduction_sizes[i].name, i);
    fprintf(gnuplot.stream, ")\n");
    const line sizes[] = {{-1, "linestyle 2 title 'ndarc'"},
                          {PLAIN_MPI, "linestyle 1 title 'MPI\\_Allreduce'"},
                          {0, "linestyle 3 title 'PyTorch, Gloo'"}};
    draw_lines(gnuplot.stream, reductions, REDUCTION_SIZES, "using 1:2", sizes, 3);
    fprintf(gnuplot.stream, "unset multiplot\n");
    return bench_gnuplot_end(&gnuplot);
}

typedef struct options {
    bench_files files;
    const char *seconds;
} options;

/// -1 to go on, else the exit status.
static int read_options(int argc, char **argv, options *ret_options) {
    static const struct option known[] = {{"json", required_argument, NULL, 'j'},
                                          {"plot", required_argument, NULL, 'p'},
                                          {"seconds", required_argument, NULL, 's'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    for (int option; (option = getopt_long(argc, argv, "h", known, NULL)) != -1;) {
        if (option == 'j') {
            ret_options->files.json = optarg;
        } else if (option == 'p') {
            ret_options->files.plot = optarg;
        } else if (option == 's') {
            ret_options->seconds = optarg;
        } else if (option == 'h') {
            printf("T23: data-parallel training on 1, 2 and 4 ranks, beside PyTorch's DDP over "
                   "Gloo.\n\n"
                   "  --json FILE  write the figures to FILE\n"
                   "  --plot FILE  draw a chart, .png or .svg, with gnuplot\n"
                   "  --seconds S  time S seconds at most for each figure of ours (4)\n"
                   "  --help       this text\n");
            return 0;
        } else {
            return 2;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "%s: unexpected argument '%s'\n", argv[0], argv[optind]);
        return 2;
    }
    return bench_files_check("data_parallel", &ret_options->files) ? -1 : 2;
}

int main(int argc, char **argv) {
    static figures all;
    options chosen = {.seconds = "4"};
    if (argc > 2 && strcmp(argv[1], LAUNCH_RANK) == 0)
        return rank_main(strtod(argv[2], NULL));
    int answer = read_options(argc, argv, &chosen);
    if (answer >= 0)
        return answer;
    if (launch_missing()) {
        printf("SKIPPED: %s.\n", launch_missing());
        return 0;
    }
    for (int run = 0; run < RUNS; run++) {
        char number[16];
        snprintf(number, sizeof number, "%d", rank_counts[run]);
        bench_progress_show(run ? "ndarc, ranks" : "ndarc, one rank", run / (double)RUNS);
        launch_ranks(rank_counts[run], chosen.seconds, &all.ours[run]);
        bench_progress_show(run ? "PyTorch, ranks" : "PyTorch, one rank", (run + 0.5) / RUNS);
        bench_peer_run_own(&all.theirs[run], "pytorch_ddp.py", number, "python3-torch");
    }
    add_steps(&all);
    add_hidden(&all);
    add_collectives(&all);
    add_reductions(&all);
    bench_table table = {
        .bench = "data_parallel",
        .metrics = all.metrics,
        .count = all.count,
        .rivals = {{"PyTorch", "rival_pytorch", &all.theirs[TWO_RANKS], NULL},
                   {"plain MPI", "rival_mpi", NULL, "the same of MPI between the same processes"}}};
    // Its chart is one of its own.
    answer = bench_table_finish(&table, &(bench_files){.json = chosen.files.json});
    return chosen.files.plot && !draw(&all, chosen.files.plot) ? 2 : answer;
}
