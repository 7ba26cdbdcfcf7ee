// Plain accesses: the core is compiled with the thread sanitizer's instrumentation, but linked with
// these functions in place of its runtime. They tell the shadow; none is a scheduling point
// (memory.h says why).
#include "tests/model/scheduler_internal.h"

#define ACCESSES(size)                                    \
    void __tsan_read##size(void *place);                  \
    void __tsan_read##size(void *place) {                 \
        model_access_here(place, size, false);            \
    }                                                     \
    void __tsan_write##size(void *place);                 \
    void __tsan_write##size(void *place) {                \
        model_access_here(place, size, true);             \
    }                                                     \
    void __tsan_read_write##size(void *place);            \
    void __tsan_read_write##size(void *place) {           \
        model_access_here(place, size, true);             \
    }                                                     \
    void __tsan_unaligned_read##size(void *place);        \
    void __tsan_unaligned_read##size(void *place) {       \
        model_access_here(place, size, false);            \
    }                                                     \
    void __tsan_unaligned_write##size(void *place);       \
    void __tsan_unaligned_write##size(void *place) {      \
        model_access_here(place, size, true);             \
    }                                                     \
    void __tsan_unaligned_read_write##size(void *place);  \
    void __tsan_unaligned_read_write##size(void *place) { \
        model_access_here(place, size, true);             \
    }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

// atomic_init becomes this: the object is still private.
#define STORES(bits)                                                                       \
    void __tsan_atomic##bits##_store(volatile uint##bits##_t *place, uint##bits##_t value, \
                                     int order);                                           \
    void __tsan_atomic##bits##_store(volatile uint##bits##_t *place, uint##bits##_t value, \
                                     int order) {                                          \
        (void)order;                                                                       \
        model_access_here(place, sizeof value, true);                                      \
        *place = value;                                                                    \
    }
STORES(8)
STORES(32)
STORES(64)

void __tsan_init(void);
void __tsan_init(void) {
}
void __tsan_func_entry(void *caller);
void __tsan_func_entry(void *caller) {
    (void)caller;
}
void __tsan_func_exit(void);
void __tsan_func_exit(void) {
}
void __tsan_read_range(void *place, size_t size);
void __tsan_read_range(void *place, size_t size) {
    model_access_here(place, size, false);
}
void __tsan_write_range(void *place, size_t size);
void __tsan_write_range(void *place, size_t size) {
    model_access_here(place, size, true);
}
