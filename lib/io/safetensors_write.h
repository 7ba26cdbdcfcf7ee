// Writing a safetensors file for other functions than nd_save_safetensors().
#ifndef ND_LIB_IO_SAFETENSORS_WRITE_H
#define ND_LIB_IO_SAFETENSORS_WRITE_H
#include <nd/io.h>

/// nd_save_safetensors(), in whose errors another function is named: that which the user called.
nd_status nd__safetensors_write(const char *operation, const char *path, size_t count,
                                const char *const *names, const nd_tensor *const *tensors);
#endif
