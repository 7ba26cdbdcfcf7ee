// Prints and writes figures. A figure smaller than its target meets it: all of them are times.
#include "bench/support/metrics.h"

#include "bench/support/json.h"
#include "bench/support/machine.h"
#include "bench/support/paths.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void print_figure(double value, const char *unit, int width);

void bench_metrics_print(const char *bench, const bench_metric *metrics, size_t count,
                         const char *rival_name, const bench_peer *peer) {
    char machine[512];
    char library[256];
    printf("%s on %s\n\n", bench, bench_machine_line(machine, sizeof machine));
    printf("  %-44s %14s %14s %9s %12s\n", "", "ndarc", rival_name, "ratio", "target");
    for (size_t i = 0; i < count; i++) {
        const bench_metric *metric = &metrics[i];
        printf("  %-44s ", metric->work);
        print_figure(metric->ours, metric->unit, 14);
        printf(" ");
        print_figure(metric->theirs, metric->unit, 14);
        if (isfinite(metric->theirs) && isfinite(metric->ours))
            printf(" %8.1fx", metric->theirs / metric->ours);
        else
            printf(" %9s", "-");
        printf(" ");
        print_figure(metric->target, metric->unit, 12);
        if (isfinite(metric->target) && isfinite(metric->ours))
            printf("  %s", metric->ours <= metric->target ? "met" : "not met");
        printf("\n");
    }
    if (!peer->ran)
        printf("\n  SKIPPED: %s: %s\n", rival_name, peer->skipped);
    else
        printf("\n  rival: %s\n", bench_peer_text(peer, "library", library, sizeof library));
}

bool bench_metrics_write(const char *path, const char *bench, const bench_metric *metrics,
                         size_t count) {
    if (!path)
        return true;
    char target[4096];
    FILE *stream = bench_user_path(path, target, sizeof target) ? fopen(target, "we") : NULL;
    if (!stream) {
        fprintf(stderr, "%s: cannot write %s: %s\n", bench, path, strerror(errno));
        return false;
    }
    bench_json json = bench_json_on(stream);
    bench_json_begin_object(&json, NULL);
    bench_json_string(&json, "bench", bench);
    bench_machine_json(&json);
    bench_json_begin_object(&json, "metrics");
    for (size_t i = 0; i < count; i++) {
        const bench_metric *metric = &metrics[i];
        if (isfinite(metric->ours))
            bench_json_number(&json, metric->name, metric->ours);
        if (metric->rival && isfinite(metric->theirs))
            bench_json_number(&json, metric->rival, metric->theirs);
        if (metric->ratio && isfinite(metric->theirs) && isfinite(metric->ours))
            bench_json_number(&json, metric->ratio, metric->theirs / metric->ours);
    }
    bench_json_end_object(&json);
    bench_json_end_object(&json);
    bool whole = bench_json_close(&json);
    if (!whole)
        fprintf(stderr, "%s: %s could not be written completely\n", bench, target);
    return whole;
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

static void print_figure(double value, const char *unit, int width) {
    char text[48];
    if (isfinite(value))
        snprintf(text, sizeof text, "%.*f %s", value < 100 ? 1 : 0, value, unit);
    else
        snprintf(text, sizeof text, "-");
    // The micro sign is two bytes and one column.
    int extra = strstr(text, "µ") ? 1 : 0;
    printf("%*s", width + extra, text);
}
