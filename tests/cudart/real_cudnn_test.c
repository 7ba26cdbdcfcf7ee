// That cuDNN itself makes the plans that lib/device/cuda asks for: compiled for compute capability 8.0
// and 9.0 by the library, for devices that are described and not there. Nothing is run.
//
// It is looked for where ndarc looks, and first in the file that ND_REAL_CUDNN names; without one, or
// with one older than 9.21, the test says so and is skipped.
#include "lib/device/cuda/cudnn_plan.h"
#include "lib/device/cuda/library.h"
#include "tests/cudart/no_driver.h"
#include "tests/testing.h"
#include <dlfcn.h>
#include <stdio.h>

#define MOST ((size_t)256 << 20)

enum { OF_CHARACTERS = 24, DESCRIBED_DEVICE = 38, DESCRIPTION = 2702 };

static struct {
    no_driver_get_statistics_function *get_statistics;
    size_t (*get_version)(void);
    nd_dnn_backend backend;
} real;

typedef struct device {
    int capability, multiprocessors, shared, cache;
    const char *name;
} device;
static const device devices[] = {
    {80, 108, 166912, 41943040, "NVIDIA A100-SXM4-80GB"},
    {90, 132, 232448, 52428800, "NVIDIA H100 80GB HBM3"},
};
enum { DEVICES = sizeof devices / sizeof *devices };

/// By the names that cuDNN gives the numbers of a device.
static void *describe(const device *of) {
    char text[2048];
    const int length = snprintf(
        text, sizeof text,
        "{\"cudaDeviceId\":0,\"deviceName\":\"%s\",\"deviceVer\":%d,\"driverVer\":13000,"
        "\"isTccDriver\":0,\"l2CacheSize\":%d,\"maxBlockSize\":[1024,1024,64],\"maxCtasPerSM\":32,"
        "\"maxGridSize\":[2147483647,65535,65535],\"maxRegistersPerSM\":65536,"
        "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,"
        "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"memClockRateKHz\":1593000,"
        "\"memoryBusWidth\":5120,\"multiProcessorCount\":%d,\"oversizedSharedMemoryPerBlock\":0,"
        "\"pciDeviceId\":0,\"regsPerBlock\":65536,\"reservedSharedMemoryPerBlock\":1024,"
        "\"smClockRateKHz\":1410000,\"smCountOrigin\":0,\"supportCoopLaunch\":1,"
        "\"totalGlobalMem\":85000000000,\"warpSize\":32}",
        of->name, of->capability * 10, of->cache, of->shared, of->multiprocessors);
    void *made = NULL;
    assert_int_equal(real.backend.create(DESCRIBED_DEVICE, &made), 0);
    assert_int_equal(real.backend.set(made, DESCRIPTION, OF_CHARACTERS, length, text), 0);
    assert_int_equal(real.backend.finalize(made), 0);
    return made;
}

/// Sizes, and how they lie: heads behind each other, rows of all heads behind each other, or queries,
/// keys and values of a row side by side.
typedef struct sizes {
    int64_t batches, heads, key_heads, queries, keys, length, value_length;
    enum { BY_HEADS, BY_ROWS, SIDE_BY_SIDE } layout;
} sizes;
static const sizes possible[] = {
    {2, 8, 8, 512, 512, 64, 64, BY_HEADS},
    {2, 8, 2, 512, 384, 128, 128, BY_ROWS},
    {1, 12, 12, 1024, 1024, 64, 64, SIDE_BY_SIDE},
    {3, 4, 1, 100, 77, 40, 80, BY_HEADS},
    {1, 1, 1, 64, 1, 8, 8, BY_HEADS},
    {65535, 1, 1, 64, 64, 32, 32, BY_ROWS},
};
static const sizes impossible[] = {
    {2, 8, 8, 512, 512, 30, 30, BY_HEADS}, // rows that do not begin at multiples of 16 bytes
    {2, 3, 2, 512, 512, 64, 64, BY_HEADS}, // heads that cannot be shared
};

static void lay(const sizes *s, int64_t heads, int64_t rows, int64_t length, int64_t *ret_strides) {
    const int64_t row = s->layout == BY_HEADS  ? length
                        : s->layout == BY_ROWS ? heads * length
                                               : 3 * heads * length;
    ret_strides[0] = s->layout == BY_HEADS ? heads * rows * row : rows * row;
    ret_strides[1] = s->layout == BY_HEADS ? rows * row : length;
    ret_strides[2] = row;
}

static nd_dnn_attention attention_of(const sizes *s, int type, bool causal) {
    nd_dnn_attention a = {
        .type = type,
        .causal = causal,
        .batches = s->batches,
        .heads = s->heads,
        .key_heads = s->key_heads,
        .queries = s->queries,
        .keys = s->keys,
        .length = s->length,
        .value_length = s->value_length,
        .out = {s->heads * s->queries * s->value_length, s->queries * s->value_length,
                s->value_length},
    };
    lay(s, s->heads, s->queries, s->length, a.query);
    lay(s, s->key_heads, s->keys, s->length, a.key);
    lay(s, s->key_heads, s->keys, s->value_length, a.value);
    return a;
}

static void check_plan(const device *of, void *described, const sizes *s, int type, bool causal) {
    const nd_dnn_attention a = attention_of(s, type, causal);
    no_driver_statistics before, now;
    nd_dnn_plan plan;
    real.get_statistics(&before);
    const int status = nd__cudnn_plan_make(&real.backend, NULL, described, &a, MOST, &plan);
    if (status != ND__DNN_SUCCESS)
        fail_msg("%s, type %d, causal %d, sizes %ld: status %d", of->name, type, causal,
                 (long)(s - possible), status);
    real.get_statistics(&now);
    assert_true(now.loads > before.loads);
    assert_non_null(strstr(now.kernel, "flash_fprop"));
    assert_true(of->capability >= 90 || !strstr(now.kernel, "sm90"));
    assert_true(plan.workspace <= MOST && plan.causal == causal);
    nd__cudnn_plan_release(&real.backend, &plan);
}

static void test_plans_for_described_devices(void **state) {
    (void)state;
    int count = 0;
    for (int i = 0; i < DEVICES; i++) {
        void *described = describe(&devices[i]);
        for (size_t j = 0; j < sizeof possible / sizeof *possible; j++)
            for (int which = 0; which < 4; which++, count++)
                check_plan(&devices[i], described, &possible[j],
                           which < 2 ? ND__DNN_F16 : ND__DNN_BF16, which % 2 == 1);
        assert_int_equal(real.backend.destroy(described), 0);
    }
    print_message("cuDNN %zu made %d plans\n", real.get_version(), count);
}

static void test_what_cudnn_has_no_plan_for(void **state) {
    (void)state;
    nd_dnn_plan plan;
    for (int i = 0; i < DEVICES; i++) {
        void *described = describe(&devices[i]);
        for (size_t j = 0; j < sizeof impossible / sizeof *impossible; j++) {
            const nd_dnn_attention a = attention_of(&impossible[j], ND__DNN_F16, false);
            assert_true(nd__cudnn_plan_make(&real.backend, NULL, described, &a, MOST, &plan) != 0);
            assert_null(plan.plan);
            assert_int_equal(plan.count, 0);
        }
        const nd_dnn_attention wide = attention_of(&possible[0], ND__DNN_F32, false);
        assert_true(nd__cudnn_plan_make(&real.backend, NULL, described, &wide, MOST, &plan) != 0);
        assert_int_equal(real.backend.destroy(described), 0);
    }
}

static const nd_library_function versions[] = {{"cudnnGetVersion", &real.get_version}, {0}};
static const nd_library_function backend[] = {
    {"cudnnBackendCreateDescriptor", &real.backend.create},
    {"cudnnBackendDestroyDescriptor", &real.backend.destroy},
    {"cudnnBackendSetAttribute", &real.backend.set},
    {"cudnnBackendGetAttribute", &real.backend.get},
    {"cudnnBackendFinalize", &real.backend.finalize},
    {0},
};
static const nd_library_function driver_functions[] = {
    {"no_driver_get_statistics", &real.get_statistics}, {0}};

static nd_library cudnn = {
    .variable = "ND_REAL_CUDNN",
    .stem = "libcudnn",
    .versions = {9},
    .folders = {"cudnn", "cu1[23]"},
    .functions = versions,
    .lock = ND_LIBRARY_LOCK,
};

/// False, with a sentence: there is none that knows attention.
static bool find_cudnn(void) {
    // Before cuDNN asks for the driver: what has its name then is it.
    void *driver = dlopen(getenv("ND_NO_DRIVER"), RTLD_NOW | RTLD_GLOBAL);
    if (!driver || !nd__library_find(driver, driver_functions)) {
        printf("real_cudnn_test: no driver of the tests' own: %s\n", dlerror());
        exit(1);
    }
    void *library = nd__library_open(&cudnn);
    const bool found = library != NULL;
    if (!found || real.get_version() < ND__DNN_ATTENTION_VERSION) {
        printf("SKIPPED real_cudnn_test: %s\n", found ? "cuDNN is older than 9.21" : "no cuDNN");
        return false;
    }
    if (!nd__library_find(library, backend))
        exit(1);
    return true;
}

int main(void) {
    if (!find_cudnn())
        return 0;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_plans_for_described_devices),
        ND_TEST(test_what_cudnn_has_no_plan_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
