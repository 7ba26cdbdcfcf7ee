// Starts gnuplot and sets its style.
#include "bench/support/gnuplot.h"

#include "bench/support/paths.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

static bool has_ending(const char *path, const char *ending);
static void write_style(FILE *gnuplot, const char *target, int width, int height);

bool bench_gnuplot_names_chart(const char *path) {
    return has_ending(path, ".png") || has_ending(path, ".svg");
}

bool bench_gnuplot_check(const char *program, const char *path) {
    if (!bench_gnuplot_names_chart(path)) {
        fprintf(stderr, "%s: --plot wants a file that ends in .png or .svg, not '%s'\n", program,
                path);
        return false;
    }
    if (!bench_program_exists("gnuplot")) {
        fprintf(stderr,
                "%s: --plot needs gnuplot, which is not installed "
                "(Debian and Ubuntu: apt install gnuplot-nox)\n",
                program);
        return false;
    }
    return true;
}

bool bench_gnuplot_begin(bench_gnuplot *gnuplot, const char *program, const char *target, int width,
                         int height) {
    // A gnuplot that dies must be an error message, not the end of this program.
    *gnuplot =
        (bench_gnuplot){.program = program, .target = target, .previous = signal(SIGPIPE, SIG_IGN)};
    gnuplot->stream = popen("gnuplot", "we");
    if (!gnuplot->stream) {
        fprintf(stderr, "%s: gnuplot cannot be started: %s\n", program, strerror(errno));
        signal(SIGPIPE, gnuplot->previous);
        return false;
    }
    write_style(gnuplot->stream, target, width, height);
    return true;
}

bool bench_gnuplot_end(bench_gnuplot *gnuplot) {
    bool drawn = pclose(gnuplot->stream) == 0;
    signal(SIGPIPE, gnuplot->previous);
    if (!drawn)
        fprintf(stderr, "%s: gnuplot could not draw %s\n", gnuplot->program, gnuplot->target);
    return drawn;
}

static void write_style(FILE *gnuplot, const char *target, int width, int height) {
    if (has_ending(target, ".png"))
        fprintf(gnuplot, "set terminal pngcairo size %d,%d font 'DejaVu Sans,11' linewidth 1.4\n",
                width, height);
    else
        fprintf(gnuplot,
                "set terminal svg size %d,%d font 'DejaVu Sans,12' linewidth 1.4 background "
                "'white'\n",
                width, height);
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
            "set style line 2 linecolor '#00798c' linewidth 1.8 pointtype 7 pointsize 0.6\n"
            "set style line 3 linecolor '#8a8a8a' linewidth 1.4 pointtype 8 pointsize 0.7\n");
}

static bool has_ending(const char *path, const char *ending) {
    size_t length = strlen(path);
    size_t ending_length = strlen(ending);
    return length > ending_length && strcmp(path + length - ending_length, ending) == 0;
}
