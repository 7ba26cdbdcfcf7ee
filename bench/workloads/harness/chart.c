// A chart for each workload: the objects and the bytes that were alive after each turn, and what a
// step took, one line for each side. That of a collector that is off is a broad one, so that it can
// be seen where another runs over it.
#include "bench/support/gnuplot.h"
#include "bench/support/paths.h"
#include "bench/workloads/harness/report.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

enum { CHART_WIDTH = 1200, CHART_HEIGHT = 300 };

/// What a panel shows, in the order of its columns behind that of the steps.
enum { OBJECTS, BYTES, TIME, PANELS };

/// What one of an axis's units is, in the figures of a turn, and its name.
typedef struct scale {
    double unit;
    const char *name;
} scale;
typedef struct scales {
    scale steps, panels[PANELS];
} scales;

static bool draw(const contest *contest, const char *program, const char *target);
static scales choose_scales(const contest *contest);
static void write_data(FILE *gnuplot, const side *side, size_t number, const scales *scales);
static void write_panel(FILE *gnuplot, const contest *contest, int panel, const scales *scales);
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
    const scales scales = choose_scales(contest);
    for (size_t i = 0; i < contest->side_count; i++)
        write_data(gnuplot.stream, &contest->sides[i], i, &scales);
    fprintf(gnuplot.stream,
            "set tics font ',10'\n"
            "set multiplot layout 1,%d margins screen 0.075,0.985,0.17,0.84 spacing screen 0.085\n",
            PANELS);
    for (int panel = 0; panel < PANELS; panel++)
        write_panel(gnuplot.stream, contest, panel, &scales);
    fprintf(gnuplot.stream, "unset multiplot\n");
    return bench_gnuplot_end(&gnuplot);
}

/// Seconds that a step of the turn took, which follows the one that ended at the step `before`.
static double step_seconds(const run_turn *turn, int64_t before) {
    return turn->seconds / (double)(turn->steps - before);
}

/// So that figures along the axes are short.
static scales choose_scales(const contest *contest) {
    double steps = 0, objects = 0, bytes = 0, time = 0;
    for (size_t i = 0; i < contest->side_count; i++) {
        const side *side = &contest->sides[i];
        int64_t before = 0;
        for (size_t k = 0; k < side->turn_count; k++) {
            const run_turn *turn = &side->turns[k];
            steps = fmax(steps, (double)turn->steps);
            if (!side->is_rival) {
                objects = fmax(objects, (double)turn->live_objects);
                bytes = fmax(bytes, (double)turn->live_bytes);
            }
            time = fmax(time, step_seconds(turn, before));
            before = turn->steps;
        }
    }
    static const scale mebibytes = {1024.0 * 1024.0, "MiB"}, kibibytes = {1024.0, "KiB"};
    static const scale milliseconds = {1e-3, "milliseconds"}, microseconds = {1e-6, "microseconds"};
    return (scales){
        .steps = steps < 100000 ? (scale){1, "step"} : (scale){1000, "thousands of steps"},
        .panels[OBJECTS] = objects < 100000 ? (scale){1, "objects"} : (scale){1000, "thousands"},
        .panels[BYTES] = bytes < 1024          ? (scale){1, "bytes"}
                         : bytes < 1024 * 1024 ? kibibytes
                                               : mebibytes,
        .panels[TIME] = time < 1e-3 ? microseconds : milliseconds,
    };
}

/// $side0 and so on: steps, then what the panels show.
static void write_data(FILE *gnuplot, const side *side, size_t number, const scales *scales) {
    fprintf(gnuplot, "$side%zu << END\n", number);
    int64_t before = 0;
    for (size_t i = 0; i < side->turn_count; i++) {
        const run_turn *turn = &side->turns[i];
        const double shown[PANELS] = {
            [OBJECTS] = (double)turn->live_objects,
            [BYTES] = (double)turn->live_bytes,
            [TIME] = step_seconds(turn, before),
        };
        fprintf(gnuplot, "%.9g", (double)turn->steps / scales->steps.unit);
        for (int panel = 0; panel < PANELS; panel++)
            fprintf(gnuplot, " %.9g", shown[panel] / scales->panels[panel].unit);
        fputc('\n', gnuplot);
        before = turn->steps;
    }
    fprintf(gnuplot, "END\n");
}

static void write_panel(FILE *gnuplot, const contest *contest, int panel, const scales *scales) {
    static const char *const titles[PANELS] = {"live objects", "live bytes", "time of a step"};
    fprintf(gnuplot, "set title \"{/:Bold ");
    write_text(gnuplot, contest->workload->name);
    fprintf(gnuplot,
            "}: %s\" offset 0,-0.4\n"
            "set ylabel '%s' offset 0.6\n"
            "set xlabel '%s' offset 0,0.5\n"
            "set yrange [0:*]\n"
            "set offsets 0, 0, graph 0.35, 0\n",
            titles[panel], scales->panels[panel].name, scales->steps.name);
    const char *separator = "plot";
    for (size_t i = 0; i < contest->side_count; i++) {
        const side *side = &contest->sides[i];
        if (panel != TIME && side->is_rival)
            continue;
        fprintf(gnuplot, "%s $side%zu using 1:%d %swith lines linestyle %d linewidth %g title '",
                separator, i, panel + 2, panel == TIME ? "every ::1 " : "", line_style(side, i),
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
