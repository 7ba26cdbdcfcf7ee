// A table of some lines is drawn line by line: a point for each rival, and a bar where the target is.
// One of hundreds is drawn as all its ratios in order.
//
// Invariant: what is drawn is time, ours by the rival's, so that less is faster everywhere: the ratios
// of rates are turned round. A line without a rival is drawn as ours by its target.
#include "bench/support/metrics_chart.h"

#include "bench/support/gnuplot.h"
#include "bench/support/paths.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_LINES = 48, LINE_HEIGHT = 21, FRAME_HEIGHT = 132, WIDTH = 900, ORDERED_HEIGHT = 420 };
/// What lies further out is drawn at the edge.
static const double least = 0.01, most = 100;

static size_t count_lines(const bench_table *table);
static bool is_drawn(const bench_table *table, const bench_metric *metric);
static void draw_lines(FILE *gnuplot, const bench_table *table, size_t lines);
static void draw_in_order(FILE *gnuplot, const bench_table *table);

bool metrics_chart_draw(const bench_table *table, const char *path) {
    const size_t lines = count_lines(table);
    if (lines == 0) {
        fprintf(stderr, "%s: no chart, since no figure has a rival's beside it or a target\n",
                table->bench);
        return true;
    }
    char target[4096];
    bench_gnuplot gnuplot;
    const int height =
        lines > MOST_LINES ? ORDERED_HEIGHT : FRAME_HEIGHT + LINE_HEIGHT * (int)lines;
    if (!bench_user_path(path, target, sizeof target) ||
        !bench_gnuplot_begin(&gnuplot, table->bench, target, WIDTH, height))
        return false;
    if (lines > MOST_LINES)
        draw_in_order(gnuplot.stream, table);
    else
        draw_lines(gnuplot.stream, table, lines);
    return bench_gnuplot_end(&gnuplot);
}

/// A ratio of times.
static double turned(const bench_metric *metric, double ratio) {
    return fmin(most, fmax(least, metric->at_least ? 1 / ratio : ratio));
}

static bool has_target(const bench_metric *metric) {
    return metric->target > 0; // not NaN
}

static bool has_rival(const bench_table *table, const bench_metric *metric) {
    for (size_t r = 0; r < BENCH_RIVALS; r++)
        if (isfinite(bench_table_rival(table, metric, r)))
            return true;
    return false;
}

static bool is_drawn(const bench_table *table, const bench_metric *metric) {
    return metric->ours > 0 && (has_target(metric) || has_rival(table, metric));
}

static size_t count_lines(const bench_table *table) {
    size_t count = 0;
    for (size_t i = 0; i < table->count; i++)
        count += is_drawn(table, &table->metrics[i]);
    return count;
}

/// In single quotes.
static void write_text(FILE *gnuplot, const char *text) {
    fputc('\'', gnuplot);
    for (const char *c = text; *c; c++)
        fprintf(gnuplot, *c == '\'' ? "''" : "%c", *c);
    fputc('\'', gnuplot);
}

static void set_ratios(FILE *gnuplot, const char *axis) {
    fprintf(gnuplot,
            "set logscale %s\nset %slabel 'time of ndarc / time of the other'\n"
            "set %stics (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) noenhanced\n"
            "set grid %stics linetype 1 linecolor '#e4e4e4'\nset format %s '%%g'\n",
            axis, axis, axis, axis, axis);
}

// ----------------------------------------------------------------------------------------- the lines

/// The points of a column, $rival0 and so on; of lines without any rival, $alone. Returns how many.
static size_t write_points(FILE *gnuplot, const bench_table *table, size_t r) {
    const bool alone = r == BENCH_RIVALS;
    size_t line = 0, count = 0;
    fprintf(gnuplot, alone ? "$alone << END\n" : "$rival%zu << END\n", r);
    for (size_t i = 0; i < table->count; i++) {
        const bench_metric *metric = &table->metrics[i];
        if (!is_drawn(table, metric))
            continue;
        const double other = !alone                     ? bench_table_rival(table, metric, r)
                             : has_rival(table, metric) ? (double)NAN
                                                        : metric->target;
        if (isfinite(other)) {
            fprintf(gnuplot, "%.6g %zu\n", turned(metric, metric->ours / other), line);
            count++;
        }
        line++;
    }
    fprintf(gnuplot, "END\n");
    return count;
}

/// $targets: where a line's ratio shall be at most.
static size_t write_targets(FILE *gnuplot, const bench_table *table) {
    size_t line = 0, count = 0;
    fprintf(gnuplot, "$targets << END\n");
    for (size_t i = 0; i < table->count; i++) {
        const bench_metric *metric = &table->metrics[i];
        if (!is_drawn(table, metric))
            continue;
        const bool alone = !has_rival(table, metric);
        if (alone || metric->ratio > 0) {
            fprintf(gnuplot, "%.6g %zu\n", alone ? 1 : turned(metric, metric->ratio), line);
            count++;
        }
        line++;
    }
    fprintf(gnuplot, "END\n");
    return count;
}

static void write_names(FILE *gnuplot, const bench_table *table) {
    size_t line = 0;
    fprintf(gnuplot, "set ytics noenhanced scale 0 (");
    for (size_t i = 0; i < table->count; i++) {
        if (!is_drawn(table, &table->metrics[i]))
            continue;
        fprintf(gnuplot, line ? ", " : "");
        write_text(gnuplot, table->metrics[i].work);
        fprintf(gnuplot, " %zu", line++);
    }
    fprintf(gnuplot, ")\n");
}

static void draw_lines(FILE *gnuplot, const bench_table *table, size_t lines) {
    static const char *const points[BENCH_RIVALS + 1] = {
        "pointtype 7 pointsize 1.1 linecolor '#00798c'",
        "pointtype 9 pointsize 1.2 linecolor '#8a8a8a'",
        "pointtype 13 pointsize 1.3 linecolor '#8f6bb3'",
        "pointtype 6 pointsize 1.2 linecolor '#00798c'"};
    bool drawn[BENCH_RIVALS + 1];
    for (size_t r = 0; r <= BENCH_RIVALS; r++)
        drawn[r] = write_points(gnuplot, table, r) > 0;
    const bool targets = write_targets(gnuplot, table) > 0;
    set_ratios(gnuplot, "x");
    write_names(gnuplot, table);
    fprintf(gnuplot,
            "unset grid\nset grid xtics ytics linetype 1 linecolor '#e4e4e4'\n"
            "set tmargin 4.6\nset key at screen 0.5, screen 0.975 center top horizontal maxrows 1 "
            "Left samplen 1.2 noenhanced\n"
            "set yrange [%zu.6:-0.6]\nset offsets graph 0.02, graph 0.02, 0, 0\n"
            "set arrow from 1, graph 0 to 1, graph 1 nohead linecolor '#9a9a9a' back\nset title ",
            lines - 1);
    write_text(gnuplot, table->bench);
    fprintf(gnuplot, " noenhanced\n");
    const char *separator = "plot ";
    if (targets) {
        fprintf(gnuplot,
                "%s$targets using 1:($2-0.38):(0):(0.76) with vectors nohead linewidth 2.2 "
                "linecolor '#c8553d' title 'target, at most'",
                separator);
        separator = ", ";
    }
    for (size_t r = 0; r <= BENCH_RIVALS; r++) {
        if (!drawn[r])
            continue;
        fprintf(gnuplot, r < BENCH_RIVALS ? "%s$rival%zu" : "%s$alone", separator, r);
        fprintf(gnuplot, " using 1:2 with points %s title ", points[r]);
        write_text(gnuplot, r < BENCH_RIVALS ? table->rivals[r].title : "its target");
        separator = ", ";
    }
    fprintf(gnuplot, "\n");
}

// ------------------------------------------------------------------------------------------ in order

typedef struct point {
    double ratio, target;
} point;

static int compare_points(const void *a, const void *b) {
    const double x = ((const point *)a)->ratio, y = ((const point *)b)->ratio;
    return (x > y) - (x < y);
}

static void draw_in_order(FILE *gnuplot, const bench_table *table) {
    point *points = calloc(table->count, sizeof *points);
    size_t count = 0;
    for (size_t i = 0; points && i < table->count; i++) {
        const bench_metric *metric = &table->metrics[i];
        const double ratio = bench_table_ratio(table, metric);
        if (isfinite(ratio))
            points[count++] = (point){turned(metric, ratio),
                                      metric->ratio > 0 ? turned(metric, metric->ratio) : most};
    }
    if (points)
        qsort(points, count, sizeof *points, compare_points);
    fprintf(gnuplot, "$ratios << END\n");
    for (size_t i = 0; i < count; i++)
        fprintf(gnuplot, "%zu %.6g %.6g\n", i + 1, points[i].ratio, points[i].target);
    fprintf(gnuplot, "END\n");
    free(points);
    set_ratios(gnuplot, "y");
    fprintf(gnuplot,
            "set xrange [0:%zu]\nset xlabel 'figures, from the fastest to the slowest'\n"
            "set arrow from graph 0, first 1 to graph 1, first 1 nohead linecolor '#9a9a9a' "
            "back\nset key noenhanced\nset title ",
            count + 1);
    write_text(gnuplot, table->bench);
    fprintf(gnuplot,
            " noenhanced\nplot $ratios using 1:3 with lines linewidth 2.2 linecolor '#c8553d' "
            "title 'target, at most', '' using 1:($2 <= $3 ? $2 : NaN) with points pointtype 7 "
            "pointsize 0.5 linecolor '#00798c' title 'ndarc / ");
    for (const char *c = table->rivals[0].title ? table->rivals[0].title : ""; *c; c++)
        fprintf(gnuplot, *c == '\'' ? "''" : "%c", *c);
    fprintf(gnuplot,
            "', '' using 1:($2 > $3 ? $2 : NaN) with points pointtype 7 pointsize 0.6 linecolor "
            "'#c8553d' title 'above its target'\n");
}
