// A copy that goes past the caches.
//
// An ordinary store first fetches the line it will overwrite. Results much larger than the caches
// are better made in a small buffer and written from there: a third less traffic for an addition.
#include "kernels/cpu/isa.h"
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__AVX512F__)
typedef __m512i block;
#define ND__LOAD(from) _mm512_loadu_si512(from)
#define ND__STORE(to, value) _mm512_stream_si512(to, value)
#elif defined(__AVX__)
typedef __m256i block;
#define ND__LOAD(from) _mm256_loadu_si256(from)
#define ND__STORE(to, value) _mm256_stream_si256(to, value)
#else
typedef __m128i block;
#define ND__LOAD(from) _mm_loadu_si128(from)
#define ND__STORE(to, value) _mm_stream_si128(to, value)
#endif

void ND_ISA_NAME(nd__cpu_stream)(void *to_, const void *from_, int64_t bytes) {
    char *to = (char *)to_;
    const char *from = (const char *)from_;
    // Only whole lines: a line in pieces would be written to memory in pieces.
    int64_t head = (int64_t)(-(uintptr_t)to & 63);
    if (head > bytes)
        head = bytes;
    memcpy(to, from, (size_t)head);
    int64_t body = (bytes - head) & ~(int64_t)63;
    for (int64_t i = head; i < head + body; i += (int64_t)sizeof(block))
        ND__STORE((block *)(void *)(to + i), ND__LOAD((const block *)(const void *)(from + i)));
    memcpy(to + head + body, from + head + body, (size_t)(bytes - head - body));
}
#else
void ND_ISA_NAME(nd__cpu_stream)(void *to, const void *from, int64_t bytes) {
    memcpy(to, from, (size_t)bytes);
}
#endif
