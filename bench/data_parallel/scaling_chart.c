// Left the time line of a step, right how it scales.
#include "bench/data_parallel/scaling.h"
#include "bench/support/gnuplot.h"
#include "bench/support/paths.h"

static void draw_bar(FILE *to, double from, double until, double row, const char *colour) {
    fprintf(
        to,
        "set object rectangle from %g,%g to %g,%g fillcolor rgb '%s' fillstyle solid noborder\n",
        from * 1e3, row - 0.32, until * 1e3, row + 0.32, colour);
}

/// Rows from above: what the rank computes, and each bucket from when it is ready.
static void draw_step(FILE *to, const scaling_model *model, const scaling_link *link) {
    const sim_result *result = &link->results[SIM_CHOSEN][SCALING_SHOWN];
    const timeline *line = &model->line;
    size_t rows = line->count;
    double begin = line->forward, end = begin + result->finish + model->tail;
    draw_bar(to, 0, begin, (double)rows, "#9fc5ce");
    draw_bar(to, begin, begin + model->ready, (double)rows, "#00798c");
    draw_bar(to, begin + result->finish, end, (double)rows, "#e0b34c");
    for (size_t i = 0; i < rows; i++) {
        double row = (double)(rows - 1 - i);
        draw_bar(to, begin + line->buckets[i].ready, begin + result->begin[i], row, "#dddddd");
        draw_bar(to, begin + result->begin[i], begin + result->end[i], row, "#c8553d");
    }
    fprintf(to, "set ytics ('computes' %zu", rows);
    for (size_t i = 0; i < rows; i++)
        fprintf(to, ", '%.1f MB' %zu", line->buckets[i].bytes * 1e-6, rows - 1 - i);
    fprintf(to,
            ")\nset title 'a step of %d ranks over %s, ms'\nset xrange [0:%g]\nset yrange "
            "[-0.7:%zu.7]\n"
            "plot NaN with boxes fillstyle solid linecolor rgb '#9fc5ce' title 'forward', "
            "NaN with boxes fillstyle solid linecolor rgb '#00798c' title 'backward', "
            "NaN with boxes fillstyle solid linecolor rgb '#c8553d' title 'bucket is sent', "
            "NaN with boxes fillstyle solid linecolor rgb '#dddddd' title 'waits', "
            "NaN with boxes fillstyle solid linecolor rgb '#e0b34c' title 'optimizer'\n",
            1 << SCALING_SHOWN, link->name, end * 1e3, rows);
    fprintf(to, "unset object\n");
}

static void draw_scaling(FILE *to, const scaling_link *links) {
    static const struct {
        int link, algorithm;
        const char *style;
    } lines[] = {
        {0, SIM_CHOSEN, "linestyle 2 title 'link that was calibrated'"},
        {1, SIM_CHOSEN, "linestyle 1 title 'network: chosen'"},
        {1, SIM_RING, "linestyle 3 title 'network: ring'"},
        {1, SIM_HALVING, "linestyle 3 dashtype 2 title 'network: halving, doubling'"},
        {1, SIM_DOUBLING, "linestyle 3 dashtype 3 title 'network: doubling'"},
    };
    enum { LINES = sizeof lines / sizeof *lines };
    fprintf(to, "set title 'efficiency over ranks, percent'\nset logscale x 2\nset xrange "
                "[1:1024]\nset yrange [0:105]\nset ytics auto\n");
    for (size_t i = 0; i < LINES; i++)
        fprintf(to, "%s'-' with linespoints %s", i ? ", " : "plot ", lines[i].style);
    fprintf(to, "\n");
    for (size_t i = 0; i < LINES; i++) {
        for (int run = 0; run < SCALING_RUNS; run++)
            fprintf(to, "%d %g\n", 1 << run,
                    100 * scaling_efficiency(&links[lines[i].link], lines[i].algorithm, run));
        fprintf(to, "e\n");
    }
}

bool scaling_draw(const scaling_model *model, const scaling_link *links, const char *path) {
    bench_gnuplot gnuplot;
    char target[4096];
    if (!bench_user_path(path, target, sizeof target) ||
        !bench_gnuplot_begin(&gnuplot, "data_parallel_scaling", target, 1000, 360))
        return false;
    fprintf(gnuplot.stream, "set multiplot layout 1,2\nset key bottom left\n");
    draw_step(gnuplot.stream, model, &links[1]);
    draw_scaling(gnuplot.stream, links);
    fprintf(gnuplot.stream, "unset multiplot\n");
    return bench_gnuplot_end(&gnuplot);
}
