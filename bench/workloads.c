// Real work: models as users write them, with the collector off and on and in PyTorch, beside each
// other, and every claim judged from the figures of the same run. bench/workloads/workload.h says
// what a workload is, bench/workloads/harness how it is measured.
#include "bench/workloads/harness/harness.h"

int main(int argc, char **argv) {
    workload_settings settings = settings_default();
    int answer = settings_read(argc, argv, &settings);
    return answer >= 0 ? answer : harness_run(&settings);
}
