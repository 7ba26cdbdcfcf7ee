// Prints and writes figures of times (less is better) and of rates (more is).
#include "bench/support/metrics.h"

#include "bench/support/gnuplot.h"
#include "bench/support/json.h"
#include "bench/support/machine.h"
#include "bench/support/measure.h"
#include "bench/support/metrics_chart.h"
#include "bench/support/paths.h"
#include "bench/support/progress.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool measured(double figure);
static bool is_rival(const bench_table *table, size_t r);
static const char *rival_key(const bench_metric *metric, const bench_rival *rival, char *buffer,
                             size_t size);
static bool is_beside(const bench_table *table, const bench_metric *metric, size_t r);
static double best_rival(const bench_table *table, const bench_metric *metric);
static void print_rivals(const bench_table *table);
static void print_ratios(const bench_table *table);
static void print_target(const bench_metric *metric);
static void print_verdict(const bench_table *table, const bench_metric *metric);
static void print_line(const bench_table *table, const bench_metric *metric);
static void print_figure(double value, const char *unit, int width);

void bench_table_ask_peers(bench_table *table) {
    for (size_t r = 0; r < BENCH_RIVALS; r++) {
        const bench_rival *rival = &table->rivals[r];
        for (size_t i = 0; rival->peer && i < table->count; i++) {
            char key[128];
            double number = bench_peer_number(
                rival->peer, rival_key(&table->metrics[i], rival, key, sizeof key));
            if (isfinite(number)) // else what the program put there stays
                table->metrics[i].rivals[r] = number;
        }
    }
}

double bench_table_rival(const bench_table *table, const bench_metric *metric, size_t r) {
    return is_rival(table, r) && measured(metric->rivals[r]) ? metric->rivals[r] : (double)NAN;
}

double bench_table_ratio(const bench_table *table, const bench_metric *metric) {
    const double ratio = metric->ours / best_rival(table, metric);
    return measured(ratio) ? ratio : (double)NAN;
}

static bool reaches(const bench_metric *metric, double figure, double target) {
    return metric->at_least ? figure >= target : figure <= target;
}

bench_verdict bench_table_verdict(const bench_table *table, const bench_metric *metric) {
    if (!measured(metric->ours) || !(measured(metric->ratio) || measured(metric->target)))
        return BENCH_NO_TARGET;
    if (measured(metric->target) && !reaches(metric, metric->ours, metric->target))
        return BENCH_MISSED;
    if (!measured(metric->ratio))
        return BENCH_MET;
    // One rival that does it better is enough to miss; to be as good as the best, all have to be there.
    const double ratio = bench_table_ratio(table, metric);
    if (isfinite(ratio) && !reaches(metric, ratio, metric->ratio))
        return BENCH_MISSED;
    for (size_t r = 0; r < BENCH_RIVALS; r++)
        if (is_beside(table, metric, r) && isnan(bench_table_rival(table, metric, r)))
            return BENCH_NO_RIVAL;
    return isfinite(ratio) ? BENCH_MET : BENCH_NO_RIVAL;
}

void bench_table_print(const bench_table *table) {
    char machine[512];
    printf("%s on %s\n\n  %-50s %11s", table->bench, bench_machine_line(machine, sizeof machine),
           "", "ndarc");
    for (size_t r = 0; r < BENCH_RIVALS; r++)
        if (table->rivals[r].title)
            printf(" %12s", table->rivals[r].title);
    printf(" %7s  %s\n", "ratio", "target");
    for (size_t i = 0; i < table->count; i++)
        print_line(table, &table->metrics[i]);
    printf("\n");
    if (bench_measured_less())
        printf("  This machine is slow or busy: some figures are medians of fewer batches than "
               "usual.\n");
    print_rivals(table);
    if (table->worst > 0)
        print_ratios(table);
}

static void print_rivals(const bench_table *table) {
    for (size_t r = 0; r < BENCH_RIVALS; r++) {
        const bench_rival *rival = &table->rivals[r];
        char line[384];
        if (rival->title)
            printf("  %s: %s\n", rival->title,
                   rival->peer ? bench_peer_line(rival->peer, line, sizeof line) : rival->what);
    }
}

bool bench_table_write(const bench_table *table, const char *path) {
    if (!path)
        return true;
    FILE *stream = bench_open_result(table->bench, path);
    if (!stream)
        return false;
    bench_json json = bench_json_on(stream);
    bench_json_begin_object(&json, NULL);
    bench_json_string(&json, "bench", table->bench);
    bench_machine_json(&json);
    bench_json_begin_object(&json, "metrics");
    for (size_t i = 0; i < table->count; i++) {
        const bench_metric *metric = &table->metrics[i];
        if (measured(metric->ours))
            bench_json_number(&json, metric->name, metric->ours);
        for (size_t r = 0; r < BENCH_RIVALS; r++) {
            char key[128];
            if (table->rivals[r].key && isfinite(bench_table_rival(table, metric, r)))
                bench_json_number(&json, rival_key(metric, &table->rivals[r], key, sizeof key),
                                  metric->rivals[r]);
        }
    }
    bench_json_end_object(&json);
    bench_json_end_object(&json);
    bool whole = bench_json_close(&json);
    if (!whole)
        fprintf(stderr, "%s: %s could not be written completely\n", table->bench, path);
    return whole;
}

int bench_table_finish(bench_table *table, const bench_files *files) {
    bench_progress_clear();
    bench_table_ask_peers(table);
    bench_table_print(table);
    bool whole = true;
    for (size_t i = 0; i < table->count; i++)
        if (!measured(table->metrics[i].ours)) {
            fprintf(stderr, "%s: %s was not measured\n", table->bench, table->metrics[i].name);
            whole = false;
        }
    whole = bench_table_write(table, files->json) && whole;
    whole = (!files->plot || metrics_chart_draw(table, files->plot)) && whole;
    return whole ? 0 : 2;
}

bool bench_files_check(const char *bench, const bench_files *files) {
    return (!files->json || bench_check_result(bench, files->json)) &&
           (!files->plot ||
            (bench_gnuplot_check(bench, files->plot) && bench_check_result(bench, files->plot)));
}

int bench_metrics_options(int argc, char **argv, const char *about, bench_files *ret_files) {
    static const struct option options[] = {{"json", required_argument, NULL, 'j'},
                                            {"plot", required_argument, NULL, 'p'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    *ret_files = (bench_files){0};
    for (int option; (option = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        if (option == 'j') {
            ret_files->json = optarg;
        } else if (option == 'p') {
            ret_files->plot = optarg;
        } else if (option == 'h') {
            printf("%s\n\n  --json FILE  write the figures to FILE\n"
                   "  --plot FILE  draw ratios to the rivals, .png or .svg, with gnuplot\n"
                   "  --help       this text\n",
                   about);
            return 0;
        } else {
            return 2;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "%s: unexpected argument '%s'\n", argv[0], argv[optind]);
        return 2;
    }
    return bench_files_check(program_invocation_short_name, ret_files) ? -1 : 2;
}

static bool measured(double figure) {
    return isfinite(figure) && figure > 0;
}

/// Whether there is a column whose figures may be compared.
static bool is_rival(const bench_table *table, size_t r) {
    const bench_rival *rival = &table->rivals[r];
    return rival->title && !(rival->peer && rival->peer->outdated);
}

typedef struct ratio {
    const bench_metric *metric;
    double value;
} ratio;

static int compare_ratios(const void *a, const void *b) {
    const double x = ((const ratio *)a)->value, y = ((const ratio *)b)->value;
    return (x < y) - (x > y);
}

static const char *say_met(bool met) {
    return met ? "met" : "missed";
}

static void print_ratios(const bench_table *table) {
    const char *title = table->rivals[0].title ? table->rivals[0].title : "nobody";
    ratio *ratios = calloc(table->count + 1, sizeof *ratios);
    size_t count = 0, above = 0;
    double logarithms = 0;
    for (size_t i = 0; ratios && i < table->count; i++) {
        const bench_metric *metric = &table->metrics[i];
        const double value = bench_table_ratio(table, metric);
        if (!isfinite(value))
            continue;
        logarithms += log(value);
        above += bench_table_verdict(table, metric) == BENCH_MISSED;
        ratios[count++] = (ratio){metric, value};
    }
    if (count > 0) {
        const double mean = exp(logarithms / (double)count);
        printf("\n  ndarc / %s: geometric mean of %zu %.3f", title, count, mean);
        if (table->mean > 0)
            printf(" (at most %.2f): %s", table->mean, say_met(mean <= table->mean));
        printf("; above their target (none): %zu: %s. The largest:\n", above, say_met(above == 0));
        qsort(ratios, count, sizeof *ratios, compare_ratios);
    } else {
        printf("\n  ndarc / %s: no ratio, since there is no rival\n", title);
    }
    for (size_t i = 0; i < count && i < table->worst; i++)
        printf("    %-44s %6.2f\n", ratios[i].metric->work, ratios[i].value);
    free(ratios);
}

/// "T8_add_gbps" and "loop" give "T8_loop_add_gbps".
static const char *rival_key(const bench_metric *metric, const bench_rival *rival, char *buffer,
                             size_t size) {
    int number = (int)strcspn(metric->name, "_");
    snprintf(buffer, size, "%.*s_%s%s", number, metric->name, rival->key, metric->name + number);
    return buffer;
}

/// Whether a column is one of those that the line's ratio is of.
static bool is_beside(const bench_table *table, const bench_metric *metric, size_t r) {
    return table->rivals[r].title && (!metric->beside || metric->beside & 1u << r);
}

/// NaN when none was measured.
static double best_rival(const bench_table *table, const bench_metric *metric) {
    double best = NAN;
    for (size_t r = 0; r < BENCH_RIVALS; r++) {
        double figure = bench_table_rival(table, metric, r);
        if (is_beside(table, metric, r) && isfinite(figure))
            best = metric->at_least ? fmax(best, figure) : fmin(best, figure);
    }
    return best;
}

static void print_line(const bench_table *table, const bench_metric *metric) {
    printf("  %-50s ", metric->work);
    print_figure(metric->ours, metric->unit, 11);
    for (size_t r = 0; r < BENCH_RIVALS; r++) {
        if (!table->rivals[r].title)
            continue;
        printf(" ");
        print_figure(metric->rivals[r], metric->unit, 12);
    }
    const double ratio = bench_table_ratio(table, metric);
    if (isfinite(ratio))
        printf(" %7.*f", ratio < 100 ? 3 : 0, ratio);
    else
        printf(" %7s", "-");
    print_target(metric);
    print_verdict(table, metric);
    printf("\n");
}

/// "<= 0.25", "<= 200 ns", or both.
static void print_target(const bench_metric *metric) {
    const char *sign = metric->at_least ? ">=" : "<=";
    if (measured(metric->ratio))
        printf("  %s %.2f", sign, metric->ratio);
    if (measured(metric->target)) {
        printf("%s %s ", measured(metric->ratio) ? "," : " ", sign);
        print_figure(metric->target, metric->unit, 0);
    }
}

static void print_verdict(const bench_table *table, const bench_metric *metric) {
    const bench_verdict verdict = bench_table_verdict(table, metric);
    if (verdict == BENCH_MET || verdict == BENCH_MISSED)
        printf("  %s", say_met(verdict == BENCH_MET));
    const char *separator = "  not judged, without ";
    for (size_t r = 0; r < BENCH_RIVALS && verdict == BENCH_NO_RIVAL; r++) {
        if (!is_beside(table, metric, r) || isfinite(bench_table_rival(table, metric, r)))
            continue;
        printf("%s%s", separator, table->rivals[r].title);
        separator = ", ";
    }
}

static void print_figure(double value, const char *unit, int width) {
    char text[48];
    if (strcmp(unit, "ns") == 0 && value >= 1e6) {
        value *= 1e-6;
        unit = "ms";
    }
    int decimals = value < 10 ? 2 : value < 100 ? 1 : 0;
    if (measured(value))
        snprintf(text, sizeof text, "%.*f %s", decimals, value, unit);
    else
        snprintf(text, sizeof text, "-");
    printf("%*s", width, text);
}
