// A library that hands out memory by DLPack, for the tests of taking it in.
#ifndef ND_TESTS_UNIT_IO_DLPACK_FOREIGN_H
#define ND_TESTS_UNIT_IO_DLPACK_FOREIGN_H
#include "tests/unit/io/files.h"
#include "third_party/dlpack/dlpack.h"

static inline void foreign_give_back(DLManagedTensorVersioned *managed) {
    managed->deleter(managed);
}

typedef struct foreign {
    DLManagedTensorVersioned managed;
    int64_t shape[9], strides[9];
    double data[64];
    int deleted;
} foreign;

static inline void foreign_count_deletion(DLManagedTensorVersioned *managed) {
    ((foreign *)managed->manager_ctx)->deleted++;
}

/// Two rows of three f64, row-major.
static inline void foreign_begin(foreign *f) {
    *f = (foreign){.shape = {2, 3}, .strides = {3, 1}};
    for (int i = 0; i < 64; i++)
        f->data[i] = i;
    f->managed.version = (DLPackVersion){DLPACK_MAJOR_VERSION, 0};
    f->managed.manager_ctx = f;
    f->managed.deleter = foreign_count_deletion;
    f->managed.dl_tensor = (DLTensor){
        .data = f->data,
        .device = {kDLCPU, 0},
        .ndim = 2,
        .dtype = {kDLFloat, 64, 1},
        .shape = f->shape,
        .strides = f->strides,
    };
}

/// Refused, and still the caller's.
static inline void foreign_refuse(foreign *f, nd_status status, const char *fragment) {
    nd_tensor *x = nd_from_dlpack(&f->managed);
    if (x)
        fail_msg("accepted instead of: %s", fragment);
    assert_failed(status, fragment);
    assert_int_equal(f->deleted, 0);
}
#endif
