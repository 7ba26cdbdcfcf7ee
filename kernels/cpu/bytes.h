// Copies of bytes whose number the compiler does not know.
#ifndef ND_KERNELS_CPU_BYTES_H
#define ND_KERNELS_CPU_BYTES_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/// memcpy(), which must not overlap.
///
/// Where the destination's place in its page is a few bytes behind the source's, as it is where rows
/// are moved by some columns, what is read in turns with what is written waits for the writes, which
/// seem to be of the same bytes. On AMD's Zen 3 and Zen 4 glibc's copies of some thousand bytes and more,
/// by the processor's own instruction (rep movsb), take ten times as long then. So such copies are made
/// in pieces of which glibc reads all before it writes any: 4 MiB moved by 12 bytes on a Zen 4 take 95
/// us in pieces of 256, 157 of 2,048, 326 of 512.
static inline void nd__bytes_copy(void *to_, const void *from_, size_t bytes) {
    enum { PAGE = 4096, BEHIND = 64, PIECE = 256 };
    char *to = (char *)to_;
    const char *from = (const char *)from_;
    if (bytes > PIECE && (((uintptr_t)to - (uintptr_t)from - 1) & (PAGE - 1)) < BEHIND - 1)
        for (; bytes > PIECE; to += PIECE, from += PIECE, bytes -= PIECE)
            memcpy(to, from, PIECE);
    memcpy(to, from, bytes);
}

/// Copies `half` to twice as many bytes, the first and the last `half` of them: a few instructions where
/// a call of memcpy() takes longer than what it does.
#define ND__BYTES_ENDS(half)                                                             \
    static inline void nd__bytes_ends_##half(void *to, const void *from, size_t bytes) { \
        char first[half], last[half];                                                    \
        memcpy(first, from, half);                                                       \
        memcpy(last, (const char *)from + bytes - half, half);                           \
        memcpy(to, first, half);                                                         \
        memcpy((char *)to + bytes - half, last, half);                                   \
    }
ND__BYTES_ENDS(1)
ND__BYTES_ENDS(2)
ND__BYTES_ENDS(4)
ND__BYTES_ENDS(8)
ND__BYTES_ENDS(16)
ND__BYTES_ENDS(32)
#undef ND__BYTES_ENDS
#endif
