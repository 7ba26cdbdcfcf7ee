// Draws the report with gnuplot: a column for each scenario, live bytes above and seconds per epoch
// below, the collector off against on. The whole program goes to gnuplot through a pipe; no file
// but the chart is written.
#include "bench/support/paths.h"
#include "bench/training/report.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { PANEL_WIDTH = 460, CHART_HEIGHT = 780 };

static bool has_ending(const char *path, const char *ending);
static void write_style(FILE *gnuplot, const char *target, size_t columns);
static void write_data(FILE *gnuplot, const run_result *run);
static void write_panel(FILE *gnuplot, const report *report, const scenario *scenario, bool bytes);
static bool was_run(const report *report, const scenario *scenario);

bool chart_check(const char *path) {
    if (!has_ending(path, ".png") && !has_ending(path, ".svg")) {
        fprintf(stderr, "gc_on_off: --plot wants a file that ends in .png or .svg, not '%s'\n",
                path);
        return false;
    }
    if (!bench_program_exists("gnuplot")) {
        fprintf(stderr, "gc_on_off: --plot needs gnuplot, which is not installed "
                        "(Debian and Ubuntu: apt install gnuplot-nox)\n");
        return false;
    }
    return true;
}

bool chart_draw(const report *report, const char *path) {
    char target[4096];
    if (!bench_user_path(path, target, sizeof target))
        return false;
    size_t columns = 0;
    for (size_t i = 0; i < SCENARIO_COUNT; i++)
        columns += was_run(report, &scenarios[i]);
    // A gnuplot that dies must be an error message, not the end of this program.
    void (*previous)(int) = signal(SIGPIPE, SIG_IGN);
    FILE *gnuplot = popen("gnuplot", "we");
    if (!gnuplot) {
        fprintf(stderr, "gc_on_off: gnuplot cannot be started: %s\n", strerror(errno));
        signal(SIGPIPE, previous);
        return false;
    }
    write_style(gnuplot, target, columns);
    for (size_t i = 0; i < report->run_count; i++)
        write_data(gnuplot, &report->runs[i]);
    double width = PANEL_WIDTH * (double)(columns > 1 ? columns : 2);
    fprintf(gnuplot,
            "set multiplot layout 2,%zu columnsfirst margins screen %g,%g,0.08,0.86 "
            "spacing screen %g,0.17 title "
            "'MNIST, MLP 784-128-64-10: cycle collector off and on' font ',15' offset 0,-0.4\n",
            columns, 84 / width, 1 - 24 / width, 96 / width);
    for (size_t i = 0; i < SCENARIO_COUNT; i++) {
        if (!was_run(report, &scenarios[i]))
            continue;
        write_panel(gnuplot, report, &scenarios[i], true);
        write_panel(gnuplot, report, &scenarios[i], false);
    }
    fprintf(gnuplot, "unset multiplot\n");
    bool drawn = pclose(gnuplot) == 0;
    signal(SIGPIPE, previous);
    if (!drawn)
        fprintf(stderr, "gc_on_off: gnuplot could not draw %s\n", target);
    return drawn;
}

static void write_style(FILE *gnuplot, const char *target, size_t columns) {
    size_t width = PANEL_WIDTH * (columns > 1 ? columns : 2);
    if (has_ending(target, ".png"))
        fprintf(gnuplot, "set terminal pngcairo size %zu,%d font 'DejaVu Sans,11' linewidth 1.4\n",
                width, CHART_HEIGHT);
    else
        fprintf(gnuplot,
                "set terminal svg size %zu,%d font 'DejaVu Sans,12' linewidth 1.4 background "
                "'white'\n",
                width, CHART_HEIGHT);
    fprintf(gnuplot, "set output '");
    for (const char *c = target; *c; c++)
        fprintf(gnuplot, *c == '\'' ? "''" : "%c", *c);
    fprintf(gnuplot,
            "'\n"
            "set border 3 linecolor '#606060'\n"
            "set tics nomirror out scale 0.6 textcolor '#303030'\n"
            "set grid ytics linetype 1 linecolor '#e4e4e4'\n"
            "set key top left reverse Left samplen 1.6 spacing 1.1\n"
            // The open circles of one line stay visible where the other runs over it.
            "set style line 1 linecolor '#c8553d' linewidth 1.8 pointtype 6 pointsize 1.3\n"
            "set style line 2 linecolor '#00798c' linewidth 1.8 pointtype 7 pointsize 0.6\n");
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

static bool has_ending(const char *path, const char *ending) {
    size_t length = strlen(path);
    size_t ending_length = strlen(ending);
    return length > ending_length && strcmp(path + length - ending_length, ending) == 0;
}
