// The command line.
#include "bench/workloads/harness/settings.h"

#include "bench/support/gnuplot.h"
#include "bench/support/paths.h"

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const double default_seconds = 300;

static bool resolve(workload_settings *settings);
static bool apply(int option, const char *text, workload_settings *settings);
static size_t count_wanted(const workload_settings *settings);
static bool read_count(const workload_settings *settings, const char *name, const char *text,
                       int64_t largest, int64_t *ret_value);
static bool read_only(workload_settings *settings, const char *text);
static bool read_gc(workload_settings *settings, const char *text);
static bool read_strategy(workload_settings *settings, const char *text);
static bool read_device(workload_settings *settings, const char *text);
static bool run_long(workload_settings *settings);
static int count_cores(void);
static void print_help(const workload_settings *settings);

workload_settings settings_default(void) {
    return (workload_settings){.program = "workloads",
                               .about =
                                   "Does real work with the collector off and on and in PyTorch, "
                                   "beside each\nother, each in a process of its own.",
                               .off = true,
                               .on = true,
                               .strategy = WORKLOAD_BOUNDARY,
                               .peers = true,
                               .device = {ND_CPU, 0},
                               .threads = count_cores(),
                               .seconds = default_seconds,
                               .seed = 11,
                               .most_bytes = (uint64_t)2 << 30};
}

const char *settings_device_name(nd_device_kind kind) {
    static const char *const names[] = {[ND_CPU] = "cpu", [ND_CUDA] = "cuda"};
    return names[kind];
}

int settings_read(int argc, char **argv, workload_settings *settings) {
    static const struct option options[] = {
        {"only", required_argument, NULL, 'o'},    {"device", required_argument, NULL, 'd'},
        {"gc", required_argument, NULL, 'g'},      {"strategy", required_argument, NULL, 's'},
        {"steps", required_argument, NULL, 'n'},   {"seconds", required_argument, NULL, 't'},
        {"threads", required_argument, NULL, 'T'}, {"seed", required_argument, NULL, 'S'},
        {"data", required_argument, NULL, 'D'},    {"output", required_argument, NULL, 'O'},
        {"json", required_argument, NULL, 'j'},    {"plot", required_argument, NULL, 'p'},
        {"no-peer", no_argument, NULL, 'P'},       {"long", no_argument, NULL, 'L'},
        {"help", no_argument, NULL, 'h'},          {0},
    };
    for (int option; (option = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        if (option == 'h') {
            print_help(settings);
            return 0;
        }
        if (!apply(option, optarg, settings))
            return 2;
        // --only NAME NAME...: what follows up to the next option.
        while (option == 'o' && optind < argc && argv[optind][0] != '-')
            if (!read_only(settings, argv[optind++]))
                return 2;
    }
    if (optind < argc) {
        fprintf(stderr, "%s: unexpected argument '%s'; see --help\n", settings->program,
                argv[optind]);
        return 2;
    }
    if (settings->all_strategies && !settings->on) {
        fprintf(stderr, "%s: --strategy all has the collector on, too, which --gc off is not\n",
                settings->program);
        return 2;
    }
    if (settings->chart && count_wanted(settings) != 1) {
        fprintf(stderr, "%s: --plot %s is the chart of one workload; --only NAME, or a folder\n",
                settings->program, settings->chart);
        return 2;
    }
    return resolve(settings) ? -1 : 2;
}

bool settings_want(const workload_settings *settings, const workload *workload) {
    bool wanted = settings->only_count == 0;
    for (size_t i = 0; i < settings->only_count; i++)
        wanted = wanted || workload_matches(workload, settings->only[i]);
    return wanted;
}

int64_t settings_steps(const workload_settings *settings, const workload *workload) {
    if (settings->steps)
        return settings->steps;
    return settings->data && workload->data_steps ? workload->data_steps : workload->steps;
}

/// Folders as seen from here, for other processes too.
static bool resolve(workload_settings *settings) {
    static char data[4096], output[4096];
    bool good = !settings->data || bench_user_path(settings->data, data, sizeof data);
    good = good && (!settings->output || bench_user_path(settings->output, output, sizeof output));
    settings->data = settings->data ? data : NULL;
    settings->output = settings->output ? output : NULL;
    if (settings->output && mkdir(output, 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "%s: cannot make %s: %s\n", settings->program, output, strerror(errno));
        return false;
    }
    return good;
}

static bool apply(int option, const char *text, workload_settings *settings) {
    int64_t count = 0;
    switch (option) {
    case 'o':
        return read_only(settings, text);
    case 'd':
        return read_device(settings, text);
    case 'g':
        return read_gc(settings, text);
    case 's':
        return read_strategy(settings, text);
    case 'n':
        return read_count(settings, "--steps", text, 100000000, &settings->steps);
    case 't':
        if (!read_count(settings, "--seconds", text, 1000000, &count))
            return false;
        settings->seconds = (double)count;
        return true;
    case 'T':
        if (!read_count(settings, "--threads", text, 1024, &count))
            return false;
        settings->threads = (int)count;
        return true;
    case 'S':
        if (!read_count(settings, "--seed", text, INT64_MAX, &count))
            return false;
        settings->seed = (uint64_t)count;
        return true;
    case 'D':
        settings->data = text;
        return true;
    case 'O':
        settings->output = text;
        return true;
    case 'j':
        settings->json = text;
        return true;
    case 'p':
        // A name with an ending is the file for the chart of one workload.
        settings->chart = bench_gnuplot_names_chart(text) ? text : NULL;
        settings->plot = settings->chart ? NULL : text;
        return true;
    case 'P':
        settings->peers = false;
        return true;
    case 'L':
        return run_long(settings);
    default:
        return false;
    }
}

static size_t count_wanted(const workload_settings *settings) {
    size_t count = 0;
    for (size_t i = 0; workloads[i]; i++)
        count += settings_want(settings, workloads[i]);
    return count;
}

static bool read_count(const workload_settings *settings, const char *name, const char *text,
                       int64_t largest, int64_t *ret_value) {
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < 1 || value > largest) {
        fprintf(stderr, "%s: %s wants a number from 1 to %lld, not '%s'\n", settings->program, name,
                (long long)largest, text);
        return false;
    }
    *ret_value = value;
    return true;
}

static bool read_only(workload_settings *settings, const char *text) {
    bool known = false;
    for (size_t i = 0; workloads[i]; i++)
        known = known || workload_matches(workloads[i], text);
    if (!known || settings->only_count == SETTINGS_ONLY) {
        fprintf(stderr, "%s: %s '%s'; see --help\n", settings->program,
                known ? "too many names with" : "no workload", text);
        return false;
    }
    settings->only[settings->only_count++] = text;
    return true;
}

static bool read_gc(workload_settings *settings, const char *text) {
    bool both = strcmp(text, "both") == 0;
    settings->off = both || strcmp(text, "off") == 0;
    settings->on = both || strcmp(text, "on") == 0;
    if (!settings->off && !settings->on)
        fprintf(stderr, "%s: --gc is off, on or both, not '%s'\n", settings->program, text);
    return settings->off || settings->on;
}

static bool read_strategy(workload_settings *settings, const char *text) {
    settings->all_strategies = strcmp(text, "all") == 0;
    if (settings->all_strategies)
        return true;
    settings->strategy = workload_strategy_of(text);
    if (settings->strategy == WORKLOAD_STRATEGY_COUNT)
        fprintf(stderr, "%s: no strategy '%s'; see --help\n", settings->program, text);
    return settings->strategy != WORKLOAD_STRATEGY_COUNT;
}

static bool read_device(workload_settings *settings, const char *text) {
    for (int kind = 0; kind < ND_DEVICE_KIND_COUNT; kind++) {
        if (strcmp(text, settings_device_name((nd_device_kind)kind)) == 0) {
            settings->device = (nd_device){(nd_device_kind)kind, 0};
            return true;
        }
    }
    fprintf(stderr, "%s: --device is cpu or cuda, not '%s'\n", settings->program, text);
    return false;
}

/// A million steps of the smallest model with the collector on, however long they take. What is
/// said behind it on the command line counts.
static bool run_long(workload_settings *settings) {
    settings->steps = 1000000;
    settings->seconds = 1e6;
    settings->off = settings->peers = false;
    return read_only(settings, "long");
}

/// Those that this process may use.
static int count_cores(void) {
    cpu_set_t cores;
    return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

static void print_help(const workload_settings *settings) {
    printf("%s\n\n  --only NAME...    only these workloads (default: all)\n", settings->about);
    for (size_t i = 0; workloads[i]; i++)
        printf("                      %-13s %s\n", workloads[i]->name, workloads[i]->summary);
    printf("  --gc MODE         off, on or both (default)\n"
           "  --strategy NAME   what is on (default: boundary); all: each beside the others\n");
    for (workload_strategy i = 0; i < WORKLOAD_STRATEGY_COUNT; i++)
        printf("                      %-13s %s\n", workload_strategy_name(i),
               workload_strategy_summary(i));
    printf("  --steps N         steps of each run (default: the workload's own)\n"
           "  --seconds N       about how long all may take (default %.0f): on a slow or busy\n"
           "                    machine it does fewer steps, and says so\n"
           "  --threads N       of ndarc and of PyTorch (default: one per core)\n"
           "  --device DEVICE   cpu (default) or cuda, of ndarc and of PyTorch\n"
           "  --seed N          of parameters and order (default 11)\n"
           "  --data DIR        all 70,000 digits from DIR: train-images-idx3-ubyte and so on,\n"
           "                    each with or without .gz\n"
           "  --output DIR      where workloads write what they make, such as pictures\n"
           "  --json FILE       write all figures to FILE\n"
           "  --plot DIR        draw DIR/NAME.svg for each workload\n"
           "  --plot FILE       draw the chart of the only workload, .png or .svg\n"
           "  --no-peer         without PyTorch\n"
           "  --long            a million steps of the smallest model, on: nothing may grow\n"
           "  --help            this text\n\n"
           "Exit status: 0 when every claim that could be judged holds, 1 when one fails,\n"
           "2 when the job could not be done.\n",
           default_seconds);
}
