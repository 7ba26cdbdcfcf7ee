// Devices, errors, and the way into every call.
//
// A call in a forked child, and one after exit() has begun, ends the program: both are promised not
// to be made. One inside a function that a stream calls is refused, as CUDA does.
#include "tests/cudart/control.h"
#include "tests/cudart/runtime.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cudart_state cudart = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .changed = PTHREAD_COND_INITIALIZER,
};
_Thread_local cudart_device *cudart_current;
static _Thread_local cudaError_t last_error;

/// A failure that was asked for.
static struct {
    char name[64]; ///< "": any call
    uint64_t left; ///< 0: none
    cudaError_t error;
    bool lasts; ///< so do those behind it
    uint64_t happened;
} planned;
uint64_t cudart_steps_to_loss;

void *cudart_allocate(size_t bytes) {
    void *memory = calloc(1, bytes ? bytes : 1);
    if (!memory) {
        fputs("fake CUDA runtime: the host has no memory\n", stderr);
        abort();
    }
    return memory;
}

uint64_t cudart_draw(uint64_t bound) {
    cudart.random += 0x9E3779B97F4A7C15u; // splitmix64
    uint64_t z = cudart.random;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % bound;
}

// ------------------------------------------------------------------------------------------------
// the start

static void after_fork_in_child(void) {
    cudart.forked = true;
}

static void at_process_exit(void) {
    __atomic_store_n(&cudart.ended, true, __ATOMIC_RELEASE);
}

/// A block that the backend keeps for its next allocation is not free to the eyes of this runtime. So
/// it keeps none, but where a test asks for it. Before the constructor that puts tests on a device.
__attribute__((constructor(101))) static void keep_nothing(void) {
    (void)setenv("ND_CUDA_KEEP", "0", 0);
}

static const char *setting(const char *name) {
    const char *value = secure_getenv(name);
    return value && *value ? value : NULL;
}

static uint64_t setting_number(const char *name, uint64_t otherwise) {
    const char *value = setting(name);
    return value ? strtoull(value, NULL, 10) : otherwise;
}

static void seed_with(uint64_t seed) {
    cudart.random = seed;
    cudart.early = seed != 0;
    cudart.free_steps = 0;
    // Not a number as a float; a large negative one.
    cudart.poison = seed % 2 ? 0xCB : 0xFF;
}

static void plan_from_environment(void) {
    const char *plan = setting("ND_CUDART_FAIL");
    if (!plan)
        return;
    const char *numbers = plan;
    char name[sizeof planned.name] = "";
    const char *colon = strchr(plan, ':');
    if (colon && (*plan < '0' || *plan > '9')) {
        snprintf(name, sizeof name, "%.*s", (int)(colon - plan), plan);
        numbers = colon + 1;
    }
    char *rest;
    uint64_t n = strtoull(numbers, &rest, 10);
    memcpy(planned.name, name, sizeof name);
    planned.left = n;
    planned.error = *rest == ':' ? (cudaError_t)strtol(rest + 1, NULL, 10) : cudaErrorUnknown;
}

static void start(void) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&cudart.wanted, &attributes);
    pthread_condattr_destroy(&attributes);
    seed_with(setting_number("ND_CUDART_SEED", 1));
    cudart.races = setting_number("ND_CUDART_RACES", 0) != 0;
    cudart.host = cudart_allocate(sizeof *cudart.host);
    cudart.host->uses = 1;
    cudart_steps_to_loss = setting_number("ND_CUDART_LOSE", 0);
    plan_from_environment();
    // The second one is too old for the kernels, so that numbers of devices are not CUDA's.
    const char *list = setting("ND_CUDART_DEVICES");
    const char *visible = secure_getenv("CUDA_VISIBLE_DEVICES");
    if (visible && !*visible)
        list = "";
    for (const char *at = list ? list : "90,75,90"; *at && cudart.devices < CUDART_DEVICES;) {
        char *end;
        long capability = strtol(at, &end, 10);
        if (end == at)
            break;
        cudart.device[cudart.devices] = (cudart_device){
            .ordinal = cudart.devices,
            .capability = (int)capability,
            .memory = setting_number("ND_CUDART_MEMORY", (uint64_t)512 << 20),
        };
        cudart.devices++;
        at = *end == ',' ? end + 1 : end;
    }
    pthread_atfork(NULL, NULL, after_fork_in_child);
    atexit(at_process_exit);
}

cudart_device *cudart_device_of(int ordinal) {
    return ordinal >= 0 && ordinal < cudart.devices ? &cudart.device[ordinal] : NULL;
}

cudart_device *cudart_device_now(void) {
    return cudart_current ? cudart_current : &cudart.device[0];
}

/// As the driver does when a device is first used.
static void make_context(cudart_device *device) {
    if (device->has_context)
        return;
    device->has_context = true;
    cudart_watch_faults();
    device->null_stream = cudart_stream_new(device, true);
    device->default_pool = cudart_allocate(sizeof(cudart_pool));
    *device->default_pool = (cudart_pool){.alive = true, .device = device};
    atexit(at_process_exit);
}

// ------------------------------------------------------------------------------------------------
// errors

static bool is_sticky(cudaError_t error) {
    return error == cudaErrorECCUncorrectable ||
           (error >= cudaErrorIllegalAddress && error <= cudaErrorLaunchFailure &&
            error != cudaErrorLaunchOutOfResources && error != cudaErrorPeerAccessAlreadyEnabled &&
            error != cudaErrorPeerAccessNotEnabled);
}

void cudart_device_fail(cudart_device *device, cudaError_t error) {
    if (device->failed == cudaSuccess)
        device->failed = error;
    pthread_cond_broadcast(&cudart.changed);
}

/// The failure that was asked for, when this is the call.
static cudaError_t planned_failure(const char *name) {
    if (planned.left == 0 || (planned.name[0] && strcmp(planned.name, name) != 0) ||
        --planned.left > 0)
        return cudaSuccess;
    planned.happened++;
    planned.left = planned.lasts;
    if (is_sticky(planned.error) && cudart.devices > 0)
        cudart_device_fail(cudart_device_now(), planned.error);
    return planned.error;
}

cudaError_t cudart_begin(const char *name, bool on_device) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (cudart.forked || __atomic_load_n(&cudart.ended, __ATOMIC_ACQUIRE)) {
        fprintf(stderr, "fake CUDA runtime: %s was called %s\n", name,
                cudart.forked ? "in the child of a process that had used CUDA"
                              : "when exit() had begun");
        cudart_stack here;
        cudart_take_stack(&here);
        cudart_print_stack("called from", &here);
        abort();
    }
    pthread_once(&once, start);
    pthread_mutex_lock(&cudart.lock);
    if (cudart_in_function) {
        cudart.refused++;
        return cudaErrorNotPermitted;
    }
    cudart.calls++;
    cudaError_t error = planned_failure(name);
    if (error != cudaSuccess || !on_device)
        return error;
    if (cudart.devices == 0)
        return cudaErrorNoDevice;
    make_context(cudart_device_now());
    return cudart_device_now()->failed;
}

cudaError_t cudart_end(cudaError_t error) {
    pthread_mutex_unlock(&cudart.lock);
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

cudaError_t cudaPeekAtLastError(void) {
    cudart_device *device = cudart_current;
    if (device && last_error == cudaSuccess) {
        pthread_mutex_lock(&cudart.lock);
        last_error = device->failed;
        pthread_mutex_unlock(&cudart.lock);
    }
    return last_error;
}

/// Forgets it; what is sticky comes again.
cudaError_t cudaGetLastError(void) {
    cudaError_t error = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return error;
}

const char *cudaGetErrorName(cudaError_t error) {
    switch (error) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorNotReady:
        return "cudaErrorNotReady";
    case cudaErrorIllegalAddress:
        return "cudaErrorIllegalAddress";
    case cudaErrorNotPermitted:
        return "cudaErrorNotPermitted";
    default:
        return "an error of CUDA";
    }
}

const char *cudaGetErrorString(cudaError_t error) {
    return cudaGetErrorName(error);
}

// ------------------------------------------------------------------------------------------------
// devices

cudaError_t cudaDriverGetVersion(int *ret_version) {
    cudaError_t error = cudart_begin("cudaDriverGetVersion", false);
    if (error == cudaSuccess)
        *ret_version = CUDART_VERSION;
    return cudart_end(error);
}

cudaError_t cudaRuntimeGetVersion(int *ret_version) {
    *ret_version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *ret_count) {
    cudaError_t error = cudart_begin("cudaGetDeviceCount", false);
    if (error == cudaSuccess && cudart.devices == 0)
        error = cudaErrorNoDevice;
    *ret_count = error == cudaSuccess ? cudart.devices : 0;
    return cudart_end(error);
}

cudaError_t cudaSetDevice(int ordinal) {
    cudaError_t error = cudart_begin("cudaSetDevice", false);
    if (error == cudaSuccess && !cudart_device_of(ordinal))
        error = cudaErrorInvalidDevice;
    if (error == cudaSuccess) {
        cudart_current = cudart_device_of(ordinal);
        make_context(cudart_current);
    }
    return cudart_end(error);
}

cudaError_t cudaGetDevice(int *ret_ordinal) {
    cudaError_t error = cudart_begin("cudaGetDevice", false);
    if (error == cudaSuccess)
        *ret_ordinal = cudart_device_now()->ordinal;
    return cudart_end(error);
}

cudaError_t cudaDeviceGetAttribute(int *ret_value, enum cudaDeviceAttr name, int ordinal) {
    cudaError_t error = cudart_begin("cudaDeviceGetAttribute", false);
    cudart_device *device = cudart_device_of(ordinal);
    if (error == cudaSuccess && !device)
        error = cudaErrorInvalidDevice;
    if (error != cudaSuccess)
        return cudart_end(error);
    switch (name) {
    case cudaDevAttrMaxThreadsPerBlock:
        *ret_value = 1024;
        break;
    case cudaDevAttrWarpSize:
        *ret_value = 32;
        break;
    case cudaDevAttrMultiProcessorCount:
        *ret_value = 4;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *ret_value = CUDART_SHARED_ASKED;
        break;
    case cudaDevAttrComputeMode:
        *ret_value = cudaComputeModeDefault;
        break;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrMemoryPoolsSupported:
        *ret_value = 1;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *ret_value = device->capability / 10;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *ret_value = device->capability % 10;
        break;
    default:
        error = cudaErrorInvalidValue;
    }
    return cudart_end(error);
}

cudaError_t cudart_synchronize(void) {
    return cudaDeviceSynchronize();
}

cudaError_t cudaDeviceSynchronize(void) {
    cudaError_t error = cudart_begin("cudaDeviceSynchronize", true);
    if (error == cudaSuccess)
        error = cudart_capture_unsafe();
    if (error == cudaSuccess) {
        cudart_wait_for_device(cudart_device_now());
        error = cudart_device_now()->failed;
    }
    return cudart_end(error);
}

cudaError_t cudaDeviceCanAccessPeer(int *ret_can, int ordinal, int peer) {
    cudaError_t error = cudart_begin("cudaDeviceCanAccessPeer", false);
    if (error == cudaSuccess && (!cudart_device_of(ordinal) || !cudart_device_of(peer)))
        error = cudaErrorInvalidDevice;
    if (error == cudaSuccess)
        *ret_can = ordinal != peer;
    return cudart_end(error);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    cudaError_t error = cudart_begin("cudaDeviceEnablePeerAccess", true);
    cudart_device *device = cudart_device_now();
    if (error == cudaSuccess && flags != 0)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess && (!cudart_device_of(peer) || peer == device->ordinal))
        error = cudaErrorInvalidDevice;
    if (error == cudaSuccess && device->peers[peer])
        error = cudaErrorPeerAccessAlreadyEnabled;
    if (error == cudaSuccess)
        device->peers[peer] = true;
    return cudart_end(error);
}

// ------------------------------------------------------------------------------------------------
// tests

static void plan(const char *name, uint64_t n, cudaError_t error, bool lasts) {
    pthread_mutex_lock(&cudart.lock);
    snprintf(planned.name, sizeof planned.name, "%s", name ? name : "");
    planned.left = n;
    planned.error = error;
    planned.lasts = lasts;
    pthread_mutex_unlock(&cudart.lock);
}

void cudart_fail(const char *name, uint64_t n, cudaError_t error) {
    plan(name, n, error, false);
}

void cudart_fail_from(const char *name, uint64_t n, cudaError_t error) {
    plan(name, n, error, true);
}

void cudart_lose(uint64_t n) {
    pthread_mutex_lock(&cudart.lock);
    cudart_steps_to_loss = n;
    pthread_mutex_unlock(&cudart.lock);
}

void cudart_set_seed(uint64_t seed) {
    pthread_mutex_lock(&cudart.lock);
    unsigned char poison = cudart.poison; // of the blocks that are there
    seed_with(seed);
    cudart.poison = poison;
    pthread_mutex_unlock(&cudart.lock);
}

void cudart_get_statistics(cudart_statistics *ret_statistics) {
    pthread_mutex_lock(&cudart.lock);
    *ret_statistics = (cudart_statistics){
        .calls = cudart.calls,
        .refused = cudart.refused,
        .pending = cudart.pending,
        .steps = cudart.steps,
        .kernels = cudart.kernels,
        .libraries = cudart.libraries,
        .failures = planned.happened,
    };
    cudart_count_live(&ret_statistics->live_blocks, &ret_statistics->live_bytes);
    cudart_count_graphs(ret_statistics);
    pthread_mutex_unlock(&cudart.lock);
}
