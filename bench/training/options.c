// The command line of the main job.
#include "bench/training/report.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_count(const char *name, const char *text, int64_t largest, int64_t *ret_value);
static bool read_gc(const char *text, settings *settings);
static bool read_device(const char *text, settings *settings);
static bool read_scenario(const char *text, settings *settings);
static void print_help(void);

int options_read(int argc, char **argv, settings *settings) {
    static const struct option options[] = {
        {"scenario", required_argument, NULL, 's'}, {"gc", required_argument, NULL, 'g'},
        {"epochs", required_argument, NULL, 'e'},   {"seconds", required_argument, NULL, 't'},
        {"batch", required_argument, NULL, 'b'},    {"samples", required_argument, NULL, 'n'},
        {"device", required_argument, NULL, 'd'},   {"data", required_argument, NULL, 'D'},
        {"json", required_argument, NULL, 'j'},     {"plot", required_argument, NULL, 'p'},
        {"help", no_argument, NULL, 'h'},           {0},
    };
    *settings = (struct settings){.scenario = "all",
                                  .off = true,
                                  .on = true,
                                  .epochs = DEFAULT_EPOCHS,
                                  .seconds = DEFAULT_SECONDS,
                                  .device = {ND_CPU, 0}};
    for (int option; (option = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        bool good = true;
        int64_t count = settings->epochs;
        switch (option) {
        case 's':
            good = read_scenario(optarg, settings);
            break;
        case 'g':
            good = read_gc(optarg, settings);
            break;
        case 'e':
            good = read_count("--epochs", optarg, 100000, &count);
            settings->epochs = (int)count;
            break;
        case 't':
            good = read_count("--seconds", optarg, 1000000, &count);
            settings->seconds = (double)count;
            break;
        case 'b':
            good = read_count("--batch", optarg, 100000, &settings->batch);
            break;
        case 'n':
            good = read_count("--samples", optarg, 1000000, &settings->samples);
            break;
        case 'd':
            good = read_device(optarg, settings);
            break;
        case 'D':
            settings->data = optarg;
            break;
        case 'j':
            settings->json = optarg;
            break;
        case 'p':
            settings->chart = optarg;
            break;
        case 'h':
            print_help();
            return 0;
        default:
            good = false;
        }
        if (!good)
            return 2;
    }
    if (options_find_workload(settings->scenario) && (settings->batch || settings->samples)) {
        fprintf(stderr, "gc_on_off: --batch and --samples are not for a workload\n");
        return 2;
    }
    if (optind < argc) {
        fprintf(stderr, "gc_on_off: unexpected argument '%s'; see --help\n", argv[optind]);
        return 2;
    }
    return -1;
}

const workload *options_find_workload(const char *name) {
    for (size_t i = 0; workloads[i]; i++)
        if (strcmp(workloads[i]->name, name) == 0)
            return workloads[i];
    return NULL;
}

static bool read_count(const char *name, const char *text, int64_t largest, int64_t *ret_value) {
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < 1 || value > largest) {
        fprintf(stderr, "gc_on_off: %s wants a number from 1 to %lld, not '%s'\n", name,
                (long long)largest, text);
        return false;
    }
    *ret_value = value;
    return true;
}

static bool read_gc(const char *text, settings *settings) {
    bool both = strcmp(text, "both") == 0;
    settings->off = both || strcmp(text, "off") == 0;
    settings->on = both || strcmp(text, "on") == 0;
    if (!settings->off && !settings->on)
        fprintf(stderr, "gc_on_off: --gc is off, on or both, not '%s'\n", text);
    return settings->off || settings->on;
}

static bool read_device(const char *text, settings *settings) {
    static const char *const names[] = {[ND_CPU] = "cpu", [ND_CUDA] = "cuda"};
    for (int kind = 0; kind < ND_DEVICE_KIND_COUNT; kind++) {
        if (strcmp(text, names[kind]) == 0) {
            settings->device = (nd_device){(nd_device_kind)kind, 0};
            return true;
        }
    }
    fprintf(stderr, "gc_on_off: --device is cpu or cuda, not '%s'\n", text);
    return false;
}

static bool read_scenario(const char *text, settings *settings) {
    bool known = strcmp(text, "all") == 0 || options_find_workload(text);
    for (size_t i = 0; i < SCENARIO_COUNT; i++)
        known = known || strcmp(text, scenarios[i].name) == 0;
    if (!known)
        fprintf(stderr, "gc_on_off: no scenario '%s'; see --help\n", text);
    settings->scenario = text;
    return known;
}

static void print_help(void) {
    printf("Trains an MLP (784-128-64-10) on MNIST with the cycle collector off, then on.\n\n"
           "  --scenario NAME   all (default), or one of\n");
    for (size_t i = 0; i < SCENARIO_COUNT; i++)
        printf("                      %-13s %s\n", scenarios[i].name, scenarios[i].summary);
    printf(
        "                    or a workload of //bench:workloads, such as wgan_gp\n"
        "  --gc MODE         off, on or both (default)\n"
        "  --epochs N        epochs of each run (default %d); of a workload tenths of its steps\n"
        "  --seconds N       about how long the job may take (default %d): on a slow or\n"
        "                    busy machine it trains for fewer epochs, and says so\n"
        "  --batch N         batch size (default: the scenario's own)\n"
        "  --samples N       train on the first N digits only\n"
        "  --device DEVICE   cpu (default) or cuda\n"
        "  --data DIR        all 70,000 digits from DIR: train-images-idx3-ubyte,\n"
        "                    train-labels-idx1-ubyte, t10k-images-idx3-ubyte,\n"
        "                    t10k-labels-idx1-ubyte, each with or without .gz\n"
        "  --json FILE       write all figures to FILE\n"
        "  --plot FILE       draw live bytes and seconds per epoch; FILE.png or FILE.svg\n"
        "  --help            this text\n\n"
        "Exit status: 0 when every claim that could be judged holds, 1 when one fails,\n"
        "2 when the job could not be done.\n",
        DEFAULT_EPOCHS, DEFAULT_SECONDS);
}
