// Arrays of .npy files, alone or as entries of a .npz.
#ifndef ND_LIB_IO_NPY_H
#define ND_LIB_IO_NPY_H
#include "lib/io/content.h"
#include <nd/tensor.h>

/// Owned CPU tensor in the current manager with the array that a content is, to its last byte.
nd_tensor *nd__npy_read(nd_content *content, bool mapped);
#endif
