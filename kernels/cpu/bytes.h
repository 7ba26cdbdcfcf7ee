// Copies of bytes whose number the compiler does not know.
#ifndef ND_KERNELS_CPU_BYTES_H
#define ND_KERNELS_CPU_BYTES_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/// memcpy(), which must not overlap.
///
/// Of some thousand bytes and more, glibc's is the processor's own instruction (rep movsb). On AMD's
/// Zen 3 and Zen 4 that takes ten times as long where the destination's place in its page is a few
/// bytes behind the source's, as it is where rows are moved by some columns. So such copies are made
/// in pieces that are still moved by vectors.
static inline void nd__bytes_copy(void *to_, const void *from_, size_t bytes) {
    enum { PAGE = 4096, BEHIND = 64, PIECE = 2048 };
    char *to = (char *)to_;
    const char *from = (const char *)from_;
    if (bytes > PIECE && (((uintptr_t)to - (uintptr_t)from - 1) & (PAGE - 1)) < BEHIND - 1)
        for (; bytes > PIECE; to += PIECE, from += PIECE, bytes -= PIECE)
            memcpy(to, from, PIECE);
    memcpy(to, from, bytes);
}
#endif
