// Draws the report with gnuplot: a column for each scenario, live bytes above and seconds per epoch
// below, the collector off against on. The whole program goes to gnuplot through a pipe; no file
// but the chart is written.
#include "bench/support/gnuplot.h"
#include "bench/support/paths.h"
#include "bench/training/report.h"

#include <stdio.h>

enum { PANEL_WIDTH = 460, CHART_HEIGHT = 780 };

static void write_data(FILE *gnuplot, const run_result *run);
static void write_panel(FILE *gnuplot, const report *report, const scenario *scenario, bool bytes);
static bool was_run(const report *report, const scenario *scenario);

bool chart_draw(const report *report, const char *path) {
    char target[4096];
    if (!bench_user_path(path, target, sizeof target))
        return false;
    size_t columns = 0;
    for (size_t i = 0; i < SCENARIO_COUNT; i++)
        columns += was_run(report, &scenarios[i]);
    const int width = PANEL_WIDTH * (int)(columns > 1 ? columns : 2);
    bench_gnuplot gnuplot;
    if (!bench_gnuplot_begin(&gnuplot, "gc_on_off", target, width, CHART_HEIGHT))
        return false;
    for (size_t i = 0; i < report->run_count; i++)
        write_data(gnuplot.stream, &report->runs[i]);
    fprintf(gnuplot.stream,
            "set multiplot layout 2,%zu columnsfirst margins screen %g,%g,0.08,0.86 "
            "spacing screen %g,0.17 title "
            "'MNIST, MLP 784-128-64-10: cycle collector off and on' font ',15' offset 0,-0.4\n",
            columns, 84.0 / width, 1 - 24.0 / width, 96.0 / width);
    for (size_t i = 0; i < SCENARIO_COUNT; i++) {
        if (!was_run(report, &scenarios[i]))
            continue;
        write_panel(gnuplot.stream, report, &scenarios[i], true);
        write_panel(gnuplot.stream, report, &scenarios[i], false);
    }
    fprintf(gnuplot.stream, "unset multiplot\n");
    return bench_gnuplot_end(&gnuplot);
}

/// $plain_off and so on: epoch, MiB, seconds.
static void write_data(FILE *gnuplot, const run_result *run) {
    fprintf(gnuplot, "$%s_%s << END\n", run->scenario->name, run->collector_on ? "on" : "off");
    for (int i = 0; i < run->epoch_count; i++)
        fprintf(gnuplot, "%d %.9g %.9g\n", i + 1,
                (double)run->epochs[i].live_bytes / (1024.0 * 1024.0), run->epochs[i].seconds);
    fprintf(gnuplot, "END\n");
}

static void write_panel(FILE *gnuplot, const report *report, const scenario *scenario, bool bytes) {
    // An underscore would make gnuplot set a subscript.
    char title[64];
    snprintf(title, sizeof title, "%s", scenario->name);
    for (char *c = title; *c; c++)
        *c = *c == '_' ? ' ' : *c;
    fprintf(gnuplot,
            "set title \"{/:Bold %s}\\n%s\" offset 0,-0.4\n"
            "set ylabel '%s' offset 0.4\n"
            "set xlabel 'epoch' offset 0,0.4\n"
            "set xrange [0.5:%d.5]\n"
            "set yrange [0:*]\n"
            "set offsets graph 0, 0, graph 0.28, 0\n"
            "set format y '%%g'\n",
            title, bytes ? "live bytes at the end of the epoch" : "time of the epoch",
            bytes ? "MiB" : "seconds", report->settings->epochs);
    const char *separator = "plot";
    for (int on = 0; on < 2; on++) {
        if (!report_find(report, scenario, on != 0))
            continue;
        fprintf(gnuplot, "%s $%s_%s using 1:%d with linespoints linestyle %d title 'collector %s'",
                separator, scenario->name, on ? "on" : "off", bytes ? 2 : 3, on + 1,
                on ? "on" : "off");
        separator = ",";
    }
    fprintf(gnuplot, "\n");
}

static bool was_run(const report *report, const scenario *scenario) {
    return report_find(report, scenario, false) || report_find(report, scenario, true);
}
