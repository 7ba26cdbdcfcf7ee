// The harness of descriptions of memory (<nd/dlpack.h>). What may be accepted is worked out here in
// 128 bits; what is accepted and lies in the memory there is, is read by the description and by the
// library, and lent and taken in once more.
#include "third_party/dlpack/dlpack.h"
#include "tests/fuzz/reader.h"
#include <stdlib.h>
#include <string.h>

__extension__ typedef __int128 wide;

#define MEMORY 4096
#define NUMBERS 12

typedef struct description {
    DLManagedTensorVersioned managed;
    int64_t shape[NUMBERS], strides[NUMBERS];
    int deleted;
} description;

static _Alignas(64) uint8_t memory[MEMORY];

typedef struct bytes {
    const uint8_t *at, *end;
} bytes;

static uint8_t take_byte(bytes *from) {
    return from->at < from->end ? *from->at++ : 0;
}

/// A small number, or after 0x80 any.
static int64_t take_number(bytes *from) {
    uint8_t first = take_byte(from);
    if (first != 0x80)
        return (int8_t)first;
    uint64_t number = 0;
    for (int i = 0; i < 8; i++)
        number |= (uint64_t)take_byte(from) << (8 * i);
    return (int64_t)number;
}

static void count_deletion(DLManagedTensorVersioned *managed) {
    ((description *)managed->manager_ctx)->deleted++;
}

static void describe(bytes *from, description *to) {
    *to = (description){.deleted = 0};
    DLTensor *t = &to->managed.dl_tensor;
    uint8_t what = take_byte(from);
    to->managed.version = (DLPackVersion){1u + (what & 1u), 0};
    to->managed.flags = (what & 2) ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
    to->managed.manager_ctx = to;
    to->managed.deleter = count_deletion;
    t->dtype.code = take_byte(from);
    t->dtype.bits = take_byte(from);
    t->dtype.lanes = (what & 4) ? take_byte(from) : 1;
    t->device.device_type = (DLDeviceType)((what & 8) ? take_byte(from) : kDLCPU);
    t->ndim = (int8_t)take_byte(from);
    for (int i = 0; i < NUMBERS && i < t->ndim; i++) {
        to->shape[i] = take_number(from);
        to->strides[i] = (what & 16) ? 0 : take_number(from);
    }
    t->shape = (what & 32) ? NULL : to->shape;
    t->strides = (what & 16) ? NULL : to->strides;
    t->data = (what & 64) ? NULL : memory + MEMORY / 2;
    t->byte_offset = (uint64_t)take_number(from);
}

/// Bytes of an element, or 0 for a dtype that is none of ours.
static int width_of(const DLTensor *t) {
    int bits = t->dtype.bits;
    bool known = t->dtype.lanes == 1 && (bits == 8 || bits == 16 || bits == 32 || bits == 64);
    switch (t->dtype.code) {
    case kDLInt:
    case kDLUInt:
        break;
    case kDLFloat:
        known = known && bits != 8;
        break;
    case kDLBfloat:
        known = known && bits == 16;
        break;
    case kDLBool:
        known = known && bits == 8;
        break;
    default:
        known = false;
    }
    return known ? bits / 8 : 0;
}

typedef struct extent {
    bool possible;    ///< may be accepted
    bool in_memory;   ///< and all of it is there
    int64_t elements; ///< how many
    uint64_t bytes;   ///< from the first to the last
} extent;

/// A manager counts no more bytes than these, all that are lent to it together.
#define MOST_BYTES (UINT64_C(1) << 62)

static int64_t stride_of(const DLTensor *t, int axis) {
    if (t->strides)
        return t->strides[axis];
    int64_t stride = 1;
    for (int i = axis + 1; i < t->ndim; i++)
        stride *= t->shape[i];
    return stride;
}

static extent measure(const DLManagedTensorVersioned *managed) {
    const DLTensor *t = &managed->dl_tensor;
    extent none = {.possible = false}, found = {.possible = true, .elements = 1};
    int width = width_of(t);
    bool host = t->device.device_type == kDLCPU || t->device.device_type == kDLCUDAHost;
    if (managed->version.major != 1 || !width || !host || t->ndim < 0 || t->ndim > ND_MAX_DIMS ||
        (t->ndim > 0 && !t->shape))
        return none;
    wide span = width;
    for (int i = 0; i < t->ndim; i++) {
        span *= t->shape[i] == 0 ? 1 : t->shape[i];
        if (t->shape[i] < 0 || span > INT64_MAX)
            return none;
        found.elements *= t->shape[i];
    }
    wide low = (wide)(uintptr_t)t->data + (wide)t->byte_offset, high = low;
    if (low > UINT64_MAX || (found.elements > 0 && !t->data))
        return none;
    for (int i = 0; i < t->ndim && found.elements > 0; i++) {
        wide reach = t->shape[i] > 1 ? (wide)stride_of(t, i) * (t->shape[i] - 1) * width : 0;
        *(reach < 0 ? &low : &high) += reach;
        if (reach > INT64_MAX || reach < -(wide)INT64_MAX)
            return none;
    }
    if (found.elements > 0)
        high += width;
    if (low < 0 || high > UINT64_MAX || high - low > INT64_MAX || low % width != 0)
        return none;
    found.bytes = (uint64_t)(high - low);
    found.possible = found.bytes <= MOST_BYTES;
    found.in_memory = low >= (wide)(uintptr_t)memory && high <= (wide)(uintptr_t)(memory + MEMORY);
    return found;
}

/// The element of an index counted along the axes, by the description.
static const uint8_t *element(const DLTensor *t, int64_t index, int width) {
    int64_t offset = 0;
    for (int i = t->ndim - 1; i >= 0; i--) {
        offset += t->shape[i] > 1 ? index % t->shape[i] * stride_of(t, i) : 0;
        index /= t->shape[i];
    }
    return (const uint8_t *)t->data + t->byte_offset + offset * width;
}

/// x shows, in its order, what the description does.
static void compare(const nd_tensor *x, const DLTensor *t, const extent *of) {
    int width = width_of(t);
    nd_auto nd_tensor *dense = nd_clone(x);
    if (!dense || nd_get_numel(dense) != of->elements)
        fuzz_die("what was taken in has other elements than its description");
    const uint8_t *data = nd_get_data(dense);
    for (int64_t i = 0; i < of->elements; i++)
        if (memcmp(data + i * width, element(t, i, width), (size_t)width) != 0)
            fuzz_die("element %lld is another one than the description's", (long long)i);
}

static void check_accepted(nd_tensor *x, description *from, const extent *of) {
    bool small = of->in_memory && of->elements <= MEMORY;
    if (small)
        compare(x, &from->managed.dl_tensor, of);
    // What is not there is not written, but read-only memory is not written either.
    bool read_only = (from->managed.flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
    if (read_only && nd_fill_(x, 1) != ND_ERROR_STATE)
        fuzz_die("read-only memory was to be written, and nobody refused");
    nd_error_clear();
    DLManagedTensorVersioned *lent = nd_to_dlpack(x);
    if (!lent || lent->flags != from->managed.flags)
        fuzz_die("what was taken in is not lent as it came: %s", nd_error_get_message());
    nd_tensor *again = nd_from_dlpack(lent);
    if (!again && of->bytes <= MOST_BYTES / 2)
        fuzz_die("what was lent is not taken in: %s", nd_error_get_message());
    if (!again) {
        nd_error_clear();
        lent->deleter(lent);
        nd_release(x);
        if (from->deleted != 1)
            fuzz_die("after a refusal the deleter ran %d times", from->deleted);
        return;
    }
    if (small)
        compare(again, &from->managed.dl_tensor, of);
    nd_release(x);
    if (from->deleted != 0)
        fuzz_die("memory went back that is still lent");
    nd_release(again);
    if (from->deleted != 1)
        fuzz_die("the deleter ran %d times", from->deleted);
}

static void count_old_deletion(DLManagedTensor *managed) {
    ++*(int *)managed->manager_ctx;
}

/// The same description as it was before there were versions, which says nothing of read-only
/// memory.
static void check_unversioned(const description *given) {
    description first = *given;
    first.managed.version.major = 1;
    extent of = measure(&first.managed);
    if (first.managed.dl_tensor.dtype.code == kDLBool && of.bytes > 0 && !of.in_memory)
        return;
    int deleted = 0;
    DLManagedTensor managed = {.dl_tensor = given->managed.dl_tensor,
                               .manager_ctx = &deleted,
                               .deleter = count_old_deletion};
    nd_tensor *x = nd_from_dlpack_unversioned(&managed);
    if ((x != NULL) != of.possible)
        fuzz_die(x ? "accepted without a version, and should not be"
                   : "refused without a version, and should not be: %s",
                 nd_error_get_message());
    if (x && of.in_memory && of.elements <= MEMORY)
        compare(x, &managed.dl_tensor, &of);
    DLManagedTensor *lent = x ? nd_to_dlpack_unversioned(x) : NULL;
    if (x && !lent)
        fuzz_die("what was taken in is not lent: %s", nd_error_get_message());
    nd_release(x);
    if (deleted != 0)
        fuzz_die("memory went back that is still lent, or was refused");
    if (lent)
        lent->deleter(lent);
    if (deleted != (lent ? 1 : 0))
        fuzz_die("the deleter ran %d times", deleted);
    nd_error_clear();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bytes from = {data, data + size};
    description given;
    describe(&from, &given);
    for (size_t i = 0; i < MEMORY; i++)
        memory[i] = (uint8_t)(i * 7 & 1); // a bool in every place
    extent of = measure(&given.managed);
    if (given.managed.dl_tensor.dtype.code == kDLBool && of.bytes > 0 && !of.in_memory)
        return 0; // bools are looked at, and there are none
    nd_tensor *x = nd_from_dlpack(&given.managed);
    if ((x != NULL) != of.possible)
        fuzz_die(x ? "accepted, and should not be" : "refused, and should not be: %s",
                 nd_error_get_message());
    if (x)
        check_accepted(x, &given, &of);
    else if (given.deleted != 0 || !strstr(nd_error_get_message(), "from_dlpack"))
        fuzz_die("a refusal took the memory, or did not say what refuses");
    nd_error_clear();
    check_unversioned(&given);
    fuzz_end_input();
    return 0;
}
