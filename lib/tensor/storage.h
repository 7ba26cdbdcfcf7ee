// Storages: the memory under tensors, and what managers count the bytes of.
#ifndef ND_LIB_TENSOR_STORAGE_H
#define ND_LIB_TENSOR_STORAGE_H
#include "lib/object/object.h"
#include <nd/tensor.h>

typedef struct nd_storage {
    nd_accounted accounted; ///< header, bytes charged (zero once closed), device
    void *data;
    size_t bytes; ///< of data
    _Atomic uint64_t
        version; ///< bumped by every in-place write; saved tensors compare it. Not with `base`
    void (*free)(void *pointer, size_t bytes); ///< memory of others; NULL: the backend's release
    void *owner; ///< what `free` gets for memory of others; NULL: data
    nd_tensor
        *base; ///< whose block data and version lie in; dead or alive, not counted. NULL: none
    struct nd_arena *arena;  ///< counted: whose memory it has. NULL: no graph's
    bool borrowed;           ///< nd_wrap without free: memory is the user's
    bool read_only;          ///< memory of others that nobody here may write
    _Atomic bool shows_leaf; ///< a window onto it was made a leaf that requires a gradient
} nd_storage;

/// A storage for x, where it has none yet; NULL with an error: no memory, closed.
nd_storage *nd__storage_make(nd_tensor *x);

/// Storage for nd__tensor_on: private, charged to a manager, with uninitialised data. Owned.
nd_storage *nd__storage_new(const char *operation, nd_manager *manager, nd_device device,
                            size_t bytes);

/// Uninitialised block of so many bytes for a tensor, `data` of which are charged to the manager.
/// NULL with an error.
void *nd__storage_block(const char *operation, nd_manager *manager, nd_device device, size_t size,
                        size_t data);

/// The same on the caller's data, charged but `borrowed`. A caller who gives the data away sets
/// `free` and clears `borrowed` once nothing can fail any more. Owned.
nd_storage *nd__storage_wrap(const char *operation, nd_manager *manager, nd_device device,
                             void *data, size_t bytes);

/// A private storage that got no tensor: gives it and its charge back.
void nd__storage_discard(nd_storage *storage, nd_manager *manager);
#endif
