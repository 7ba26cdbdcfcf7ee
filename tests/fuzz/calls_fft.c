// Calls of Fourier transforms.
#include "tests/fuzz/tensors.h"

/// How many elements are transformed: as there are, fewer, more, or so many that it is refused.
static int64_t length_of(uint8_t number) {
    return number == 255 ? INT64_MAX : number % 16 - (number == 254 ? 100 : 0);
}

/// Numbers beyond the last one included.
static nd_fft_norm norm_of(uint8_t number) {
    return (nd_fft_norm)(number / 16 % 4);
}

typedef nd_tensor *(*transform)(const nd_tensor *x, int naxes, const int64_t *sizes,
                                const int *axes, nd_fft_norm norm);

static nd_tensor *along_several(transform function, const nd_tensor *x, const fuzz_step *s) {
    const int64_t sizes[] = {length_of(s->d), s->d % 5};
    const int axes[] = {fuzz_axis(s->c), fuzz_axis(s->c / 10)};
    return function(x, s->a / 64 % 3, s->a & 32 ? sizes : NULL, s->a & 16 ? axes : NULL,
                    norm_of(s->b));
}

#define ALONG(name) WITH(name, 1, nd_##name(in[0], length_of(s->d), fuzz_axis(s->c), norm_of(s->b)))
#define SEVERAL(name) WITH(name, 1, along_several(nd_##name, in[0], s))
#define SHIFT(name) \
    WITH(name, 1, nd_##name(in[0], s->d % 3, (const int[]){fuzz_axis(s->c), fuzz_axis(s->c / 10)}))
ALONG(fft)
ALONG(ifft)
ALONG(rfft)
ALONG(irfft)
ALONG(hfft)
ALONG(ihfft)
SEVERAL(fftn)
SEVERAL(ifftn)
SEVERAL(rfftn)
SEVERAL(irfftn)
SHIFT(fftshift)
SHIFT(ifftshift)

static void frequencies(fuzz_actor *me, const fuzz_step *s) {
    nd_tensor *made = s->b % 2 ? nd_fftfreq(s->c % 16, fuzz_value(s->d), fuzz_dtype(s->b / 2))
                               : nd_rfftfreq(s->c % 16, fuzz_value(s->d), fuzz_dtype(s->b / 2));
    fuzz_expect(me, made);
    fuzz_put_fresh(me, FUZZ_TENSOR, s->a, made);
}

const fuzz_call fuzz_fft_calls[] = {
    // clang-format off
    WAITING(fft) WAITING(ifft) WAITING(rfft) WAITING(irfft) WAITING(hfft) WAITING(ihfft) WAITING(fftn) WAITING(ifftn)
    WAITING(rfftn) WAITING(irfftn) ENTRY(fftshift) ENTRY(ifftshift)
    // clang-format on
    {"frequencies", frequencies, FUZZ_QUEUES},
    {0},
};
