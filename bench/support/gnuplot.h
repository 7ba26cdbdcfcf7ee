// Charts by gnuplot. The whole program goes to it through a pipe; no file but the chart is written.
#ifndef ND_BENCH_GNUPLOT_H
#define ND_BENCH_GNUPLOT_H
#include <stdbool.h>
#include <stdio.h>

typedef struct bench_gnuplot {
    FILE *stream;
    const char *program;
    const char *target;
    void (*previous)(int); ///< what SIGPIPE did before
} bench_gnuplot;

/// Whether a name is that of a chart: it ends in .png or .svg.
bool bench_gnuplot_names_chart(const char *path);
/// False, with a message that begins with `program`, when no chart can be drawn into the file:
/// gnuplot is missing, or the file's name ends neither in .png nor in .svg.
bool bench_gnuplot_check(const char *program, const char *path);
/// Starts gnuplot and gives it the size, the file and the house's style: line style 1 is for a
/// collector that is off, 2 for one that is on, 3 for a rival. `target` must outlive it. False with a
/// printed message on failure.
bool bench_gnuplot_begin(bench_gnuplot *gnuplot, const char *program, const char *target, int width,
                         int height);
/// Waits for it. False with a printed message when it could not draw.
bool bench_gnuplot_end(bench_gnuplot *gnuplot);

#endif
