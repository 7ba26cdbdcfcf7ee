// The table, line by line as epochs end, and what the progress bar between the lines says.
#include "bench/support/machine.h"
#include "bench/training/report.h"

#include <inttypes.h>
#include <stdio.h>

void table_begin(const settings *settings, const digits *digits) {
    char machine[512];
    char train[NUMBER_TEXT];
    char test[NUMBER_TEXT];
    static const char *const devices[] = {[ND_CPU] = "CPU", [ND_CUDA] = "CUDA"};
    printf("MLP 784-128-64-10 on MNIST: %s digits to train on, %s to test on\n",
           with_commas(train, (uint64_t)nd_get_size(digits->train_images, 0)),
           with_commas(test, (uint64_t)nd_get_size(digits->test_images, 0)));
    printf("%s; device: %s\n", bench_machine_line(machine, sizeof machine),
           devices[settings->device.kind]);
}

void table_scenario(const scenario *scenario, int64_t batch) {
    printf("\n%s: %s (batch %" PRId64 ")\n\n", scenario->name, scenario->summary, batch);
    printf("  %-4s %5s %9s %9s %13s %17s %9s %11s %15s %10s\n", "gc", "epoch", "seconds",
           "accuracy", "live objects", "live bytes", "cycles", "collected", "collected", "gate");
    printf("  %-4s %5s %9s %9s %13s %17s %9s %11s %15s %10s\n", "", "", "", "", "", "", "",
           "objects", "bytes", "closed max");
}

void table_epoch(const run_result *run, int epoch) {
    const epoch_result *figures = &run->epochs[epoch];
    char objects[NUMBER_TEXT];
    char bytes[NUMBER_TEXT];
    char cycles[NUMBER_TEXT];
    char collected[NUMBER_TEXT];
    char collected_bytes[NUMBER_TEXT];
    bench_progress_clear();
    printf("  %-4s %5d %9.3f %7.2f %% %13s %17s %9s %11s %15s %7.1f us\n",
           run->collector_on ? "on" : "off", epoch + 1, figures->seconds,
           figures->test_accuracy * 100, with_commas(objects, figures->live_objects),
           with_commas(bytes, figures->live_bytes), with_commas(cycles, figures->cycles),
           with_commas(collected, figures->collected_objects),
           with_commas(collected_bytes, figures->collected_bytes), figures->gate_closed_us_max);
    fflush(stdout);
}

void table_stopped(const run_result *run, int epochs) {
    printf("  stopped after %d of %d epochs: this machine is slow or busy (--seconds gives more "
           "time)\n",
           run->epoch_count, epochs);
}

void table_run_end(const run_result *run) {
    const char *mode = run->collector_on ? "on" : "off";
    char objects[NUMBER_TEXT];
    char bytes[NUMBER_TEXT];
    uint64_t escaped_objects = 0;
    uint64_t escaped_bytes = 0;
    for (int i = 0; i < run->epoch_count; i++) {
        escaped_objects += run->epochs[i].escaped_objects;
        escaped_bytes += run->epochs[i].escaped_bytes;
    }
    if (escaped_objects) {
        printf("  %-4s from the steps' managers escaped %s objects, %s\n", mode,
               with_commas(objects, escaped_objects), in_units(bytes, escaped_bytes));
        printf("       the last step alone: %s objects, %s, made at\n",
               with_commas(objects, run->last_escape.escaped_objects),
               in_units(bytes, run->last_escape.escaped_bytes));
        for (size_t i = 0; i < 4 && run->last_escape.escaped_sites[i][0]; i++)
            printf("         %s\n", run->last_escape.escaped_sites[i]);
    }
    printf("  %-4s everything released: %s objects, %s left", mode,
           with_commas(objects, run->left_objects), in_units(bytes, run->left_bytes));
    if (run->left_objects)
        printf("; one explicit collection freed %s objects, %s",
               with_commas(objects, run->freed_objects), in_units(bytes, run->freed_bytes));
    printf("\n");
    fflush(stdout);
}

void progress_show(const training *run, int epoch) {
    char text[96];
    const run_result *result = run->result;
    double epochs = run->settings->epochs;
    double fraction = (double)run->steps_run / (double)(result->steps ? result->steps : 1);
    snprintf(text, sizeof text, "%s, gc %s, epoch %d of %d", run->scenario->name,
             result->collector_on ? "on" : "off", epoch + 1, run->settings->epochs);
    bench_progress_show(text, (epoch + fraction) / epochs);
}

void progress_show_price(size_t done, size_t total) {
    bench_progress_show("plain, gc off and on by turns", (double)done / (double)total);
}
