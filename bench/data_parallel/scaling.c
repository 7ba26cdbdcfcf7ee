// T23: how data-parallel training scales to more ranks than there are, simulated message by message
// (simulate.h), and where that ends, and why.
//
// Everything the simulation starts from is measured here first, on two ranks and on four: what
// messages and additions cost, and when a step of the MLP has the gradients of each bucket. It is
// held against the steps that were measured. Then each rank is alone on its machine, with a core for
// the thread that communicates, once with the link that was calibrated and once with one of
// 10 Gbit/s.
#include "bench/data_parallel/scaling.h"

#include "bench/data_parallel/figures.h"
#include "bench/data_parallel/launch.h"
#include "bench/data_parallel/rank.h"
#include "bench/data_parallel/training.h"
#include "bench/support/gnuplot.h"
#include "bench/support/json.h"
#include "bench/support/machine.h"
#include "bench/support/paths.h"
#include "bench/support/progress.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct options {
    const char *json, *plot, *seconds;
    double latency, bandwidth, spread; ///< of the second link; part by which ranks are late
} options;

const char *const scaling_algorithms[SIM_ALGORITHMS] = {"ring", "halving", "doubling", "chosen"};

// ------------------------------------------------------------------------------------------- a step

double scaling_step(const scaling_model *model, const sim_costs *costs, int ranks,
                    sim_algorithm algorithm, sim_result *ret_result) {
    sim_step step = {.ranks = ranks,
                     .algorithm = algorithm,
                     .costs = *costs,
                     .count = model->line.count,
                     .spread = model->spread};
    for (size_t i = 0; i < model->line.count; i++) {
        step.bytes[i] = model->line.buckets[i].bytes;
        step.ready[i] = model->overlap ? model->line.buckets[i].ready : model->ready;
    }
    if (!simulate(&step, ret_result))
        return NAN;
    return model->line.forward + ret_result->finish + model->tail;
}

static bool read_model(const bench_peer *two, scaling_model *ret_model) {
    double bytes;
    timeline line = figures_timeline(two, training_kinds[TRAINING_MLP].name, &bytes);
    if (line.count == 0)
        return false;
    line.forward *= 1e-6;
    line.step *= 1e-6;
    for (size_t i = 0; i < line.count; i++)
        line.buckets[i].ready *= 1e-6;
    *ret_model = (scaling_model){.line = line, .overlap = true};
    ret_model->ready = line.buckets[line.count - 1].ready;
    ret_model->tail = line.step - line.forward - ret_model->ready;
    return isfinite(line.step) && isfinite(ret_model->ready);
}

// ------------------------------------------------------------------------------------- measured here

/// More ranks than cores take turns: all of it takes longer.
static double predict(const scaling_model *model, const sim_costs *costs, int ranks, bool overlap) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    double turns = cores > 0 ? fmax(1, (double)ranks / (double)cores) : 1;
    scaling_model as = *model;
    sim_result result;
    as.overlap = overlap;
    as.spread = 0;
    return turns * scaling_step(&as, costs, ranks, SIM_CHOSEN, &result);
}

static void compare(bench_json *json, const char *name, const char *what, double predicted,
                    double measured_us) {
    double error = 100 * (predicted / (measured_us * 1e-6) - 1);
    char key[96];
    printf("  %-58s %8.1f %9.1f %+7.1f %%\n", what, predicted * 1e3, measured_us * 1e-3, error);
    snprintf(key, sizeof key, "T23_simulated_us_%s", name);
    bench_json_number(json, key, predicted * 1e6);
    snprintf(key, sizeof key, "T23_measured_us_%s", name);
    bench_json_number(json, key, measured_us);
}

static void compare_all(bench_json *json, const scaling_model *model, const scaling_link *links,
                        const bench_peer *two, const bench_peer *four) {
    const char *mlp = training_kinds[TRAINING_MLP].name;
    // The link that is put between ranks of one machine is none faster than their memory.
    sim_costs slower = {fmax(RANK_LINK_LATENCY, links[0].costs.latency),
                        fmax(1 / RANK_LINK_BANDWIDTH, links[0].costs.per_byte),
                        links[0].costs.per_sum_byte};
    printf("\n  a step of the MLP, ms %50s %9s %9s\n", "simulated", "measured", "error");
    compare(json, "2_after", "2 ranks, shared memory, sent after the backward pass",
            predict(model, &links[0].costs, 2, false), figures_us(two, mlp, "after"));
    compare(json, "2_overlap", "2 ranks, shared memory, sent meanwhile (no core is free)",
            predict(model, &links[0].costs, 2, false), figures_us(two, mlp, "overlap"));
    compare(json, "2_link_after", "2 ranks, 10 Gbit/s, sent after the backward pass",
            predict(model, &slower, 2, false), figures_us(two, mlp, "link_after"));
    compare(json, "2_link_overlap", "2 ranks, 10 Gbit/s, sent meanwhile (as if one were)",
            predict(model, &slower, 2, true), figures_us(two, mlp, "link_overlap"));
    compare(json, "4_after", "4 ranks, shared memory, sent after the backward pass",
            predict(model, &links[0].costs, 4, false), figures_us(four, mlp, "after"));
    compare(json, "4_overlap", "4 ranks, shared memory, sent meanwhile (no core is free)",
            predict(model, &links[0].costs, 4, false), figures_us(four, mlp, "overlap"));
}

// ------------------------------------------------------------------------------------------ scaling

static bool simulate_link(const scaling_model *model, scaling_link *link, double done) {
    for (int run = 0; run < SCALING_RUNS; run++)
        for (int algorithm = 0; algorithm < SIM_ALGORITHMS; algorithm++) {
            sim_result *result = &link->results[algorithm][run];
            link->steps[algorithm][run] =
                scaling_step(model, &link->costs, 1 << run, (sim_algorithm)algorithm, result);
            if (!isfinite(link->steps[algorithm][run]))
                return false;
            bench_progress_show("simulating", done + 0.5 * (run + 1) / SCALING_RUNS);
        }
    bench_progress_clear();
    return true;
}

double scaling_efficiency(const scaling_link *link, int algorithm, int run) {
    return link->steps[algorithm][0] / link->steps[algorithm][run];
}

static void print_link(bench_json *json, const scaling_link *link) {
    printf("\n  %s: %.1f us, %.2f GB/s, additions at %.2f GB/s; efficiency in percent, and a "
           "step\n",
           link->name, link->costs.latency * 1e6, 1e-9 / link->costs.per_byte,
           1e-9 / link->costs.per_sum_byte);
    printf("  %6s %9s %9s %9s %9s %12s\n", "ranks", "ring", "halving", "doubling", "chosen",
           "step");
    for (int run = 0; run < SCALING_RUNS; run++) {
        printf("  %6d", 1 << run);
        for (int algorithm = 0; algorithm < SIM_ALGORITHMS; algorithm++) {
            double percent = 100 * scaling_efficiency(link, algorithm, run);
            char key[96];
            printf(" %9.1f", percent);
            snprintf(key, sizeof key, "T23_percent_%s_%s_%d_ranks", link->key,
                     scaling_algorithms[algorithm], 1 << run);
            bench_json_number(json, key, percent);
        }
        printf(" %9.1f ms\n", link->steps[SIM_CHOSEN][run] * 1e3);
    }
}

/// What a step would win if one of the costs were nothing, or all buckets but the last one were.
static void explain(bench_json *json, const scaling_model *model, const scaling_link *link) {
    int run = 1;
    while (run < SCALING_RUNS && scaling_efficiency(link, SIM_CHOSEN, run) >= SCALING_ENOUGH)
        run++;
    char key[96];
    snprintf(key, sizeof key, "T23_ranks_%s", link->key);
    bench_json_number(json, key, 1 << (run - 1));
    bool ends = run < SCALING_RUNS;
    int ranks = 1 << (ends ? run : SCALING_RUNS - 1);
    sim_costs without[3] = {link->costs, link->costs, link->costs};
    without[0].latency = without[1].per_byte = without[2].per_sum_byte = 0;
    sim_result result;
    double step = scaling_step(model, &link->costs, ranks, SIM_CHOSEN, &result);
    double exposed = step - link->steps[SIM_CHOSEN][0], wins[3];
    for (int i = 0; i < 3; i++)
        wins[i] = step - scaling_step(model, &without[i], ranks, SIM_CHOSEN, &result);
    scaling_model last = *model;
    last.line.buckets[0] = last.line.buckets[last.line.count - 1];
    last.line.count = 1;
    double alone =
        scaling_step(&last, &link->costs, ranks, SIM_CHOSEN, &result) - link->steps[SIM_CHOSEN][0];
    const char *why = wins[0] > wins[1] && wins[0] > wins[2] ? "latency"
                      : wins[1] > wins[2]                    ? "bandwidth"
                                                             : "additions";
    if (ends)
        printf(
            "  It stops scaling at %d ranks: the first with less than %.0f %%, because of %s%s.\n",
            ranks, 100 * SCALING_ENOUGH,
            alone > exposed / 2 ? "the last bucket, which nothing hides, and its " : "", why);
    else
        printf("  It keeps %.0f %% up to %d ranks.\n", 100 * SCALING_ENOUGH, ranks);
    printf("  Of its step of %.1f ms %.1f ms are communication that nothing hides: without "
           "latency it would be\n  %.1f ms less, with any bandwidth %.1f, with free additions "
           "%.1f. The last bucket, which is ready when the\n  pass is over and which nothing can "
           "hide, takes %.1f ms of it.\n",
           step * 1e3, exposed * 1e3, wins[0] * 1e3, wins[1] * 1e3, wins[2] * 1e3, alone * 1e3);
}

// --------------------------------------------------------------------------------------------- main

/// -1 to go on, else the exit status.
static int read_options(int argc, char **argv, options *ret_options) {
    static const struct option known[] = {{"json", required_argument, NULL, 'j'},
                                          {"plot", required_argument, NULL, 'p'},
                                          {"seconds", required_argument, NULL, 's'},
                                          {"latency", required_argument, NULL, 'l'},
                                          {"bandwidth", required_argument, NULL, 'b'},
                                          {"spread", required_argument, NULL, 'r'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    for (int option; (option = getopt_long(argc, argv, "h", known, NULL)) != -1;) {
        switch (option) {
        case 'j':
            ret_options->json = optarg;
            break;
        case 'p':
            ret_options->plot = optarg;
            break;
        case 's':
            ret_options->seconds = optarg;
            break;
        case 'l':
            ret_options->latency = strtod(optarg, NULL) * 1e-6;
            break;
        case 'b':
            ret_options->bandwidth = strtod(optarg, NULL) * 1e9 / 8;
            break;
        case 'r':
            ret_options->spread = strtod(optarg, NULL) / 100;
            break;
        case 'h':
            printf("T23: how data-parallel training scales, simulated from what two ranks "
                   "measure.\n\n"
                   "  --json FILE     write the figures to FILE\n"
                   "  --plot FILE     draw a step and the scaling, .png or .svg, with gnuplot\n"
                   "  --latency US    of the second link (20)\n"
                   "  --bandwidth G   of the second link, in Gbit/s (10)\n"
                   "  --spread P      ranks are up to P percent late, at random (0)\n"
                   "  --seconds S     time S seconds at most for each figure (4)\n"
                   "  --help          this text\n");
            return 0;
        default:
            return 2;
        }
    }
    if (optind < argc || ret_options->latency < 0 || !(ret_options->bandwidth > 0) ||
        ret_options->spread < 0) {
        fprintf(stderr, "%s: unexpected argument '%s'\n", argv[0],
                optind < argc ? argv[optind] : "below zero");
        return 2;
    }
    return ret_options->plot && !bench_gnuplot_check("data_parallel_scaling", ret_options->plot)
               ? 2
               : -1;
}

static bool open_json(const char *path, bench_json *ret_json) {
    char target[4096];
    FILE *stream = path && bench_user_path(path, target, sizeof target) ? fopen(target, "we")
                   : !path                                              ? fopen("/dev/null", "we")
                                                                        : NULL;
    if (!stream) {
        fprintf(stderr, "data_parallel_scaling: cannot write %s: %s\n", path, strerror(errno));
        return false;
    }
    *ret_json = bench_json_on(stream);
    bench_json_begin_object(ret_json, NULL);
    bench_json_string(ret_json, "bench", "data_parallel_scaling");
    bench_machine_json(ret_json);
    bench_json_begin_object(ret_json, "metrics");
    return true;
}

int main(int argc, char **argv) {
    static bench_peer two, four;
    static scaling_link links[SCALING_LINKS];
    scaling_model model;
    bench_json json;
    char machine[512];
    options chosen = {
        .seconds = "4", .latency = RANK_LINK_LATENCY, .bandwidth = RANK_LINK_BANDWIDTH};
    if (argc > 2 && strcmp(argv[1], LAUNCH_RANK) == 0)
        return rank_main(strtod(argv[2], NULL));
    int answer = read_options(argc, argv, &chosen);
    if (answer >= 0)
        return answer;
    if (launch_missing()) {
        printf("SKIPPED: %s.\n", launch_missing());
        return 0;
    }
    launch_ranks(2, chosen.seconds, &two);
    launch_ranks(4, chosen.seconds, &four);
    if (!read_model(&two, &model)) {
        fprintf(stderr, "data_parallel_scaling: two ranks measured nothing: %s\n", two.skipped);
        return 2;
    }
    model.spread = chosen.spread;
    sim_costs costs = {figures_us(&two, "message", "latency") * 1e-6,
                       figures_us(&two, "message", "mb") * 1e-12,
                       figures_us(&two, "sum", "mb") * 1e-12};
    links[0] =
        (scaling_link){.name = "the link that was calibrated", .key = "memory", .costs = costs};
    links[1] = (scaling_link){.name = "a network",
                              .key = "link",
                              .costs = {chosen.latency, 1 / chosen.bandwidth, costs.per_sum_byte}};
    if (!open_json(chosen.json, &json))
        return 2;
    printf("data_parallel_scaling on %s\n", bench_machine_line(machine, sizeof machine));
    compare_all(&json, &model, links, &two, &four);
    bool good = true;
    for (int i = 0; good && i < SCALING_LINKS; i++) {
        good = simulate_link(&model, &links[i], 0.5 * i);
        if (good) {
            print_link(&json, &links[i]);
            explain(&json, &model, &links[i]);
        }
    }
    bench_json_end_object(&json);
    bench_json_end_object(&json);
    good = bench_json_close(&json) && good;
    if (good && chosen.plot)
        good = scaling_draw(&model, links, chosen.plot);
    return good ? 0 : 2;
}
