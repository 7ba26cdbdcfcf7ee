// The table: a line for each side.
#include "bench/support/machine.h"
#include "bench/support/numbers.h"
#include "bench/workloads/harness/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void print_side(const contest *contest, const side *side);
static void print_end(const contest *contest, const side *side);
static const char *ratio_text(char buffer[NUMBER_TEXT], const contest *contest, const side *side);
static const char *number_text(char buffer[NUMBER_TEXT], int digits, double value);
static void print_text(const char *name, const char *text);

void workload_report_begin(const workload_settings *settings) {
    char machine[512];
    static const char *const devices[] = {[ND_CPU] = "CPU", [ND_CUDA] = "CUDA"};
    printf("%s; device: %s; %d thread%s\n", bench_machine_line(machine, sizeof machine),
           devices[settings->device.kind], settings->threads, settings->threads == 1 ? "" : "s");
}

void workload_report_contest(const contest *contest) {
    char steps[NUMBER_TEXT];
    printf("\n%s: %s (%s steps)\n\n", contest->workload->name, contest->workload->summary,
           with_commas(steps, (uint64_t)contest->planned_steps));
    printf("  %-9s %7s %9s %7s %13s %9s %14s %10s %9s %10s %9s %10s\n", "", "steps", "steps/s",
           "time", contest->workload->value, "objects", "live bytes", "peak", "collected",
           "gate max", "step max", "resident");
    for (size_t i = 0; i < contest->side_count; i++)
        print_side(contest, &contest->sides[i]);
    if (*contest->peer_skipped)
        printf("  SKIPPED: %s\n", contest->peer_skipped);
    printf("\n");
    for (size_t i = 0; i < contest->side_count; i++)
        print_end(contest, &contest->sides[i]);
    const side *rival = contest_find_rival(contest);
    if (rival && rival->rival.outdated)
        printf("  %-9s %s of this system, which is no rival: bench/peers/newest.sh installs the "
               "newest\n",
               rival->name, rival->rival.library);
    if (contest->rival_dropped)
        printf("  PyTorch was stopped, since it took more than half of the time and there was not "
               "enough\n");
    if (contest->out_of_time)
        printf("  stopped before all steps: this machine is slow or busy (--seconds gives more "
               "time)\n");
    fflush(stdout);
}

static void print_side(const contest *contest, const side *side) {
    const run_turn none = {0};
    const run_turn *last = side->turn_count ? &side->turns[side->turn_count - 1] : &none;
    const run_figures *figures = &side->figures;
    char steps[NUMBER_TEXT], rate[NUMBER_TEXT], ratio[NUMBER_TEXT], value[NUMBER_TEXT];
    char resident[NUMBER_TEXT];
    printf("  %-9s %7s %9s %7s %13s", side->name, with_commas(steps, (uint64_t)last->steps),
           number_text(rate, 1, side_rate(side)), ratio_text(ratio, contest, side),
           number_text(value, 4, side_value(side, side)));
    in_units(resident, figures->peak_resident_bytes);
    char peak[NUMBER_TEXT] = "";
    if (side->is_rival) {
        if (figures->peak_device_bytes)
            in_units(peak, figures->peak_device_bytes);
        printf(" %9s %14s %10s %9s %10s %9s %10s\n", "", "", peak, "", "", "", resident);
        return;
    }
    char objects[NUMBER_TEXT], bytes[NUMBER_TEXT], collected[NUMBER_TEXT];
    printf(" %9s %14s %10s %9s %7.0f us %6.1f ms %10s\n", with_commas(objects, last->live_objects),
           with_commas(bytes, last->live_bytes), in_units(peak, figures->peak_bytes),
           with_commas(collected, figures->collected_objects), figures->pause_seconds * 1e6,
           figures->longest_step_seconds * 1e3, resident);
}

/// What is to be said behind the table.
static void print_end(const contest *contest, const side *side) {
    const run_figures *figures = &side->figures;
    char bytes[NUMBER_TEXT], objects[NUMBER_TEXT];
    if (figures->bounded)
        printf("  %-9s ended after %" PRId64 " steps, at %s\n", side->name, figures->steps,
               in_units(bytes, side->turns[side->turn_count - 1].live_bytes));
    if (figures->postponed_objects)
        printf("  %-9s %s objects were postponed: a collection could not decide on them\n",
               side->name, with_commas(objects, figures->postponed_objects));
    if (figures->escaped_objects && contest->workload->keeps_history) {
        printf("  %-9s from the last step's manager escaped %s objects, made at\n", side->name,
               with_commas(objects, figures->escaped_objects));
        for (size_t i = 0; i < RUN_SITES && *figures->escaped_sites[i]; i++)
            printf("              %s\n", figures->escaped_sites[i]);
    }
    if (figures->left_objects)
        printf("  %-9s everything released: %s objects, %s left; one collection freed %" PRIu64
               " of them\n",
               side->name, with_commas(objects, figures->left_objects),
               in_units(bytes, figures->left_bytes), figures->freed_objects);
    if (isfinite(figures->outcome.score))
        printf("  %-9s %s %.4f\n", side->name,
               contest->workload->score ? contest->workload->score : "score",
               figures->outcome.score);
    // As a rule all sides make the same.
    const struct side *on = contest_find_on(contest);
    bool other = !on || side == on || strcmp(figures->outcome.text, on->figures.outcome.text) != 0;
    if (*figures->outcome.text && other)
        print_text(side->name, figures->outcome.text);
}

/// Time by that of the side that is on, or of the first one.
static const char *ratio_text(char buffer[NUMBER_TEXT], const contest *contest, const side *side) {
    const struct side *on = contest_find_on(contest);
    return number_text(buffer, 3, contest_ratio(side, on ? on : &contest->sides[0]));
}

static const char *number_text(char buffer[NUMBER_TEXT], int digits, double value) {
    if (isfinite(value))
        snprintf(buffer, NUMBER_TEXT, "%.*f", digits, value);
    else
        snprintf(buffer, NUMBER_TEXT, "-");
    return buffer;
}

/// A text of several lines.
static void print_text(const char *name, const char *text) {
    printf("  %-9s ", name);
    for (const char *c = text; *c; c++) {
        putchar(*c);
        if (*c == '\n')
            printf("  %-9s ", "");
    }
    putchar('\n');
}
