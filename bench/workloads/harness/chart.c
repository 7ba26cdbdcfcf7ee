// A chart for each workload: what was alive after each turn on the left, what a step took on the
// right, one line for each side. That of a collector that is off is a broad one, so that it can be
// seen where another runs over it.
#include "bench/support/gnuplot.h"
#include "bench/support/paths.h"
#include "bench/workloads/harness/report.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

enum { CHART_WIDTH = 860, CHART_HEIGHT = 300 };

static bool draw(const contest *contest, const char *program, const char *target);
static void write_data(FILE *gnuplot, const side *side, size_t number);
static void write_panel(FILE *gnuplot, const contest *contest, bool bytes);
static int line_style(const side *side, size_t number);
static void write_text(FILE *gnuplot, const char *text);

bool workload_report_check_charts(const workload_settings *settings) {
    char folder[4096];
    if (!bench_gnuplot_check(settings->program, settings->chart ? settings->chart : ".../x.svg"))
        return false;
    if (!settings->plot)
        return true;
    if (!bench_user_path(settings->plot, folder, sizeof folder))
        return false;
    if (mkdir(folder, 0777) == 0 || errno == EEXIST)
        return true;
    fprintf(stderr, "%s: cannot make %s: %s\n", settings->program, folder, strerror(errno));
    return false;
}

bool workload_report_charts(const workload_report *report) {
    const workload_settings *settings = report->settings;
    char path[4096];
    char target[4200];
    bool good =
        bench_user_path(settings->plot ? settings->plot : settings->chart, path, sizeof path);
    for (size_t i = 0; i < report->count && good; i++) {
        if (settings->plot)
            snprintf(target, sizeof target, "%s/%s.svg", path, report->contests[i].workload->name);
        else
            snprintf(target, sizeof target, "%s", path);
        good = draw(&report->contests[i], settings->program, target);
    }
    return good;
}

static bool draw(const contest *contest, const char *program, const char *target) {
    bench_gnuplot gnuplot;
    if (!bench_gnuplot_begin(&gnuplot, program, target, CHART_WIDTH, CHART_HEIGHT))
        return false;
    for (size_t i = 0; i < contest->side_count; i++)
        write_data(gnuplot.stream, &contest->sides[i], i);
    fprintf(gnuplot.stream,
            "set multiplot layout 1,2 margins screen 0.085,0.975,0.17,0.84 spacing screen 0.1\n");
    write_panel(gnuplot.stream, contest, true);
    write_panel(gnuplot.stream, contest, false);
    fprintf(gnuplot.stream, "unset multiplot\n");
    return bench_gnuplot_end(&gnuplot);
}

/// $side0 and so on: steps, MiB, milliseconds of a step.
static void write_data(FILE *gnuplot, const side *side, size_t number) {
    fprintf(gnuplot, "$side%zu << END\n", number);
    int64_t before = 0;
    for (size_t i = 0; i < side->turn_count; i++) {
        const run_turn *turn = &side->turns[i];
        fprintf(gnuplot, "%lld %.9g %.9g\n", (long long)turn->steps,
                (double)turn->live_bytes / (1024.0 * 1024.0),
                turn->seconds * 1e3 / (double)(turn->steps - before));
        before = turn->steps;
    }
    fprintf(gnuplot, "END\n");
}

static void write_panel(FILE *gnuplot, const contest *contest, bool bytes) {
    fprintf(gnuplot, "set title \"{/:Bold ");
    write_text(gnuplot, contest->workload->name);
    fprintf(gnuplot,
            "}: %s\" offset 0,-0.4\n"
            "set ylabel '%s' offset 0.6\n"
            "set xlabel 'step' offset 0,0.5\n"
            "set yrange [0:*]\n"
            "set offsets 0, 0, graph 0.35, 0\n",
            bytes ? "live bytes" : "time of a step", bytes ? "MiB" : "milliseconds");
    const char *separator = "plot";
    for (size_t i = 0; i < contest->side_count; i++) {
        const side *side = &contest->sides[i];
        if (bytes && side->is_rival)
            continue;
        fprintf(gnuplot, "%s $side%zu using 1:%d %swith lines linestyle %d linewidth %g title '",
                separator, i, bytes ? 2 : 3, bytes ? "" : "every ::1 ", line_style(side, i),
                side->strategy == WORKLOAD_LET_BE && !side->is_rival ? 4.0 : 1.6);
        write_text(gnuplot, side->name);
        fprintf(gnuplot, "'");
        separator = ",";
    }
    fprintf(gnuplot, "\n");
}

/// Those of bench/support/gnuplot.h, and others for strategies beyond off and on.
static int line_style(const side *side, size_t number) {
    if (side->is_rival)
        return 3;
    if (side->strategy == WORKLOAD_LET_BE)
        return 1;
    return side->strategy == WORKLOAD_BOUNDARY ? 2 : (int)number + 3;
}

/// An underscore would make gnuplot set a subscript.
static void write_text(FILE *gnuplot, const char *text) {
    for (const char *c = text; *c; c++)
        fputc(*c == '_' ? ' ' : *c, gnuplot);
}
