// Reads the machine's description from the system. Whatever the system does not tell is "unknown"
// or 0: a benchmark must not fail over it.
#include "bench/support/machine.h"

#include <nd/tensor.h>

#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

static void read_cpu_name(char *buffer, size_t size);
static uint64_t memory_bytes(void);
static long core_count(void);

void bench_machine_json(bench_json *json) {
    char cpu[128];
    char kernel[256];
    struct utsname system;
    read_cpu_name(cpu, sizeof cpu);
    bool known = uname(&system) == 0;
    snprintf(kernel, sizeof kernel, "%s %s %s", known ? system.sysname : "unknown",
             known ? system.release : "", known ? system.machine : "");
    bench_json_begin_object(json, "machine");
    bench_json_string(json, "cpu", cpu);
    bench_json_integer(json, "cores", (uint64_t)core_count());
    bench_json_integer(json, "memory_bytes", memory_bytes());
    bench_json_string(json, "system", kernel);
    bench_json_string(json, "compiler", COMPILER);
    bench_json_integer(json, "gpus", (uint64_t)nd_get_device_count(ND_CUDA));
    bench_json_end_object(json);
}

const char *bench_machine_line(char *buffer, size_t size) {
    char cpu[128];
    struct utsname system;
    read_cpu_name(cpu, sizeof cpu);
    bool known = uname(&system) == 0;
    long cores = core_count();
    snprintf(buffer, size, "%s, %ld core%s, %.0f GiB, %s %s, %s", cpu, cores, cores == 1 ? "" : "s",
             (double)memory_bytes() / (1024.0 * 1024.0 * 1024.0),
             known ? system.sysname : "unknown system", known ? system.machine : "", COMPILER);
    return buffer;
}

uint64_t bench_resident_bytes(void) {
    FILE *statm = fopen("/proc/self/statm", "re");
    if (!statm)
        return 0;
    unsigned long total = 0;
    unsigned long resident = 0;
    int fields = fscanf(statm, "%lu %lu", &total, &resident);
    fclose(statm);
    return fields == 2 ? (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static void read_cpu_name(char *buffer, size_t size) {
    snprintf(buffer, size, "unknown CPU");
    FILE *cpuinfo = fopen("/proc/cpuinfo", "re");
    if (!cpuinfo)
        return;
    char line[256];
    while (fgets(line, sizeof line, cpuinfo)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon) {
            line[strcspn(line, "\n")] = '\0';
            snprintf(buffer, size, "%s", colon + 1 + strspn(colon + 1, " "));
            break;
        }
    }
    fclose(cpuinfo);
}

static uint64_t memory_bytes(void) {
    long pages = sysconf(_SC_PHYS_PAGES);
    long page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

static long core_count(void) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > 0 ? cores : 1;
}
