// A driver without a device, under the name of CUDA's (libcuda.so.1): for NVIDIA's libraries where they
// compile kernels for a device that is only described. Every function that asks for a device says that
// this is a stub; code is taken, looked at, and not kept.
#include "tests/cudart/no_driver.h"
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID_IMAGE = 200, STUB_LIBRARY = 34 };
enum { ELF_MACHINE_AT = 18, ELF_OF_CUDA = 190 };

static no_driver_statistics seen;

EXPORT void no_driver_get_statistics(no_driver_statistics *ret_statistics) {
    *ret_statistics = seen;
}

static int load(void **ret_code, const void *image) {
    unsigned short machine;
    memcpy(&machine, (const char *)image + ELF_MACHINE_AT, sizeof machine);
    if (memcmp(image, "\177ELF", 4) != 0 || machine != ELF_OF_CUDA)
        return INVALID_IMAGE;
    seen.loads++;
    *ret_code = &seen;
    return SUCCESS;
}

static int unload(void *code) {
    return code == &seen ? SUCCESS : INVALID_IMAGE;
}

static int find(void **ret_found, void *code, const char *name) {
    snprintf(seen.kernel, sizeof seen.kernel, "%s", name);
    *ret_found = code;
    return SUCCESS;
}

EXPORT int cuModuleLoadData(void **ret_module, const void *image);
EXPORT int cuModuleUnload(void *module);
EXPORT int cuModuleGetFunction(void **ret_function, void *module, const char *name);
EXPORT int cuLibraryLoadData(void **ret_library, const void *image);
EXPORT int cuLibraryUnload(void *library);
EXPORT int cuLibraryGetKernel(void **ret_kernel, void *library, const char *name);
EXPORT int cuLibraryGetModule(void **ret_module, void *library);
EXPORT int cuKernelGetFunction(void **ret_function, void *kernel);
EXPORT int cuKernelSetAttribute(int attribute, int value, void *kernel, int device);
EXPORT int cuFuncSetAttribute(void *function, int attribute, int value);
EXPORT int cuGetErrorString(int error, const char **ret_text);
EXPORT int cuGetErrorName(int error, const char **ret_name);

int cuModuleLoadData(void **ret_module, const void *image) {
    return load(ret_module, image);
}
int cuModuleUnload(void *module) {
    return unload(module);
}
int cuModuleGetFunction(void **ret_function, void *module, const char *name) {
    return find(ret_function, module, name);
}
int cuLibraryLoadData(void **ret_library, const void *image) {
    return load(ret_library, image);
}
int cuLibraryUnload(void *library) {
    return unload(library);
}
int cuLibraryGetKernel(void **ret_kernel, void *library, const char *name) {
    return find(ret_kernel, library, name);
}
int cuLibraryGetModule(void **ret_module, void *library) {
    *ret_module = library;
    return SUCCESS;
}
int cuKernelGetFunction(void **ret_function, void *kernel) {
    *ret_function = kernel;
    return SUCCESS;
}
int cuKernelSetAttribute(int attribute, int value, void *kernel, int device) {
    (void)attribute, (void)value, (void)device;
    return kernel == &seen ? SUCCESS : INVALID_IMAGE;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
    (void)attribute, (void)value;
    return function == &seen ? SUCCESS : INVALID_IMAGE;
}
int cuGetErrorString(int error, const char **ret_text) {
    *ret_text = error == SUCCESS ? "success" : "there is no driver here";
    return SUCCESS;
}
int cuGetErrorName(int error, const char **ret_name) {
    return cuGetErrorString(error, ret_name);
}

// What is looked for and is of no use without a device.
#define STUB(name)           \
    EXPORT int name(void);   \
    int name(void) {         \
        return STUB_LIBRARY; \
    }
STUB(cuInit)
STUB(cuDriverGetVersion)
STUB(cuGetProcAddress)
STUB(cuGetProcAddress_v2)
STUB(cuTensorMapEncodeTiled)
STUB(cuTensorMapEncodeIm2col)
STUB(cuCtxGetCurrent)
STUB(cuCtxGetLimit)
STUB(cuCtxPopCurrent)
STUB(cuCtxPushCurrent)
STUB(cuStreamGetCtx)
STUB(cuLinkCreate)
STUB(cuLinkAddData)
STUB(cuLinkComplete)
STUB(cuLinkDestroy)
STUB(cuLaunchKernel)
STUB(cuLaunchKernelEx)
STUB(cuLaunchCooperativeKernel)
STUB(cuDeviceGet)
STUB(cuDeviceGetCount)
STUB(cuLibraryLoadFromFile)
STUB(cuKernelGetAttribute)
STUB(cuOccupancyMaxPotentialClusterSize)
