// Prints and writes figures of times (less is better) and of rates (more is).
#include "bench/support/metrics.h"

#include "bench/support/json.h"
#include "bench/support/machine.h"
#include "bench/support/measure.h"
#include "bench/support/paths.h"

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
static double best_rival(const bench_table *table, const bench_metric *metric);
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

void bench_table_print(const bench_table *table) {
    char machine[512];
    printf("%s on %s\n\n  %-46s %11s", table->bench, bench_machine_line(machine, sizeof machine),
           "", "ndarc");
    for (size_t r = 0; r < BENCH_RIVALS; r++)
        if (table->rivals[r].title)
            printf(" %11s", table->rivals[r].title);
    printf(" %8s %11s\n", "better", "target");
    for (size_t i = 0; i < table->count; i++)
        print_line(table, &table->metrics[i]);
    printf("\n");
    if (bench_measured_less())
        printf("  This machine is slow or busy: some figures are medians of fewer batches than "
               "usual.\n");
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
    char target[4096];
    FILE *stream = bench_user_path(path, target, sizeof target) ? fopen(target, "we") : NULL;
    if (!stream) {
        fprintf(stderr, "%s: cannot write %s: %s\n", table->bench, path, strerror(errno));
        return false;
    }
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
            if (is_rival(table, r) && measured(metric->rivals[r]))
                bench_json_number(&json, rival_key(metric, &table->rivals[r], key, sizeof key),
                                  metric->rivals[r]);
        }
    }
    bench_json_end_object(&json);
    bench_json_end_object(&json);
    bool whole = bench_json_close(&json);
    if (!whole)
        fprintf(stderr, "%s: %s could not be written completely\n", table->bench, target);
    return whole;
}

int bench_table_finish(bench_table *table, const char *json) {
    bench_table_ask_peers(table);
    bench_table_print(table);
    bool whole = true;
    for (size_t i = 0; i < table->count; i++)
        if (!measured(table->metrics[i].ours)) {
            fprintf(stderr, "%s: %s was not measured\n", table->bench, table->metrics[i].name);
            whole = false;
        }
    return bench_table_write(table, json) && whole ? 0 : 2;
}

int bench_metrics_options(int argc, char **argv, const char *about, const char **ret_json) {
    static const struct option options[] = {
        {"json", required_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
    for (int option; (option = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        if (option == 'j') {
            *ret_json = optarg;
        } else if (option == 'h') {
            printf("%s\n\n  --json FILE  write the figures to FILE\n  --help       this text\n",
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
    return -1;
}

static bool measured(double figure) {
    return isfinite(figure) && figure > 0;
}

/// Whether there is a column whose figures may be compared.
static bool is_rival(const bench_table *table, size_t r) {
    const bench_rival *rival = &table->rivals[r];
    return rival->title && !(rival->peer && rival->peer->outdated);
}

static double first_ratio(const bench_metric *metric) {
    return metric->ours / metric->rivals[0];
}

static int compare_ratios(const void *a, const void *b) {
    double x = first_ratio(*(const bench_metric *const *)a);
    double y = first_ratio(*(const bench_metric *const *)b);
    return (x < y) - (x > y);
}

void bench_table_print_ratios(const bench_table *table, double bound, size_t worst) {
    const char *title = table->rivals[0].title ? table->rivals[0].title : "nobody";
    const bench_metric **both = calloc(table->count + 1, sizeof *both);
    size_t count = 0, above = 0;
    double logarithms = 0;
    for (size_t i = 0; both && is_rival(table, 0) && i < table->count; i++) {
        if (!measured(table->metrics[i].rivals[0]) || !measured(table->metrics[i].ours))
            continue;
        double of = first_ratio(&table->metrics[i]);
        logarithms += log(of);
        above += of > bound;
        both[count++] = &table->metrics[i];
    }
    if (!is_rival(table, 0))
        printf("\n  ours / %s: no ratio, since this one is no rival\n", title);
    else if (count > 0)
        printf("\n  ours / %s: geometric mean of %zu %.3f; above %.2f: %zu. The worst:\n", title,
               count, exp(logarithms / (double)count), bound, above);
    if (count > 0)
        qsort(both, count, sizeof *both, compare_ratios);
    for (size_t i = 0; i < count && i < worst; i++)
        printf("    %-44s %6.2f\n", both[i]->work, first_ratio(both[i]));
    free(both);
}

/// "T8_add_gbps" and "loop" give "T8_loop_add_gbps".
static const char *rival_key(const bench_metric *metric, const bench_rival *rival, char *buffer,
                             size_t size) {
    int number = (int)strcspn(metric->name, "_");
    snprintf(buffer, size, "%.*s_%s%s", number, metric->name, rival->key, metric->name + number);
    return buffer;
}

/// NaN when none was measured.
static double best_rival(const bench_table *table, const bench_metric *metric) {
    double best = NAN;
    for (size_t r = 0; r < BENCH_RIVALS; r++) {
        double figure = metric->rivals[r];
        if (is_rival(table, r) && measured(figure))
            best = metric->at_least ? fmax(best, figure) : fmin(best, figure);
    }
    return best;
}

static void print_line(const bench_table *table, const bench_metric *metric) {
    printf("  %-46s ", metric->work);
    print_figure(metric->ours, metric->unit, 11);
    for (size_t r = 0; r < BENCH_RIVALS; r++) {
        if (!table->rivals[r].title)
            continue;
        printf(" ");
        print_figure(metric->rivals[r], metric->unit, 11);
    }
    double best = best_rival(table, metric);
    double better = metric->at_least ? metric->ours / best : best / metric->ours;
    if (measured(better))
        printf(" %7.*fx", better < 100 ? 2 : 0, better);
    else
        printf(" %8s", "-");
    printf(" ");
    print_figure(metric->target, metric->unit, 11);
    if (measured(metric->target) && measured(metric->ours)) {
        bool met =
            metric->at_least ? metric->ours >= metric->target : metric->ours <= metric->target;
        printf("  %s", met ? "met" : "missed");
    }
    printf("\n");
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
