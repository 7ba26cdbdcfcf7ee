// Tensors and the names that a file gives them, as a program hands them in.
#ifndef ND_LIB_IO_NAMED_H
#define ND_LIB_IO_NAMED_H
#include <nd/tensor.h>

/// Checks what every file of named tensors wants: a path, tensors that can be read, and as many
/// names, of UTF-8, each once.
nd_status nd__named_check(const char *operation, const char *path, size_t count,
                          const char *const *names, const nd_tensor *const *tensors);
#endif
