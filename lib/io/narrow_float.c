// Floats of eight bits and of four: every byte's value is worked out once for each piece, then looked
// up.
#include "lib/io/narrow_float.h"
#include <string.h>

#define F16_NAN UINT16_C(0x7e00)
#define F32_NAN UINT32_C(0x7fc00000)
enum { F16_BIAS = 15, F16_MANTISSA = 10, BYTES = 256, PIECE = 8192 };

nd_dtype nd__narrow_float_dtype(nd_narrow_float kind) {
    return kind == ND__NARROW_E8M0 ? ND_F32 : ND_F16;
}

int nd__narrow_float_per_byte(nd_narrow_float kind) {
    return kind == ND__NARROW_E2M1 ? 2 : 1;
}

/// The bits of an f16 of a float with `mantissa` bits of mantissa and an exponent that stands for
/// 2^(it - bias), neither infinite nor NaN. An f16 has more of both, so it has each such value.
static uint16_t f16_of(unsigned byte, int mantissa, int bias) {
    int exponent = (int)(byte & 0x7f) >> mantissa;
    unsigned fraction = byte & ((1u << mantissa) - 1);
    uint16_t sign = (uint16_t)((byte & 0x80) << 8);
    if (exponent == 0) { // no leading one: shifted until there is, or 0
        if (fraction == 0)
            return sign;
        for (exponent = 1; !(fraction >> mantissa); exponent--)
            fraction <<= 1;
        fraction &= (1u << mantissa) - 1;
    }
    int larger = exponent - bias + F16_BIAS;
    unsigned bits = fraction << (F16_MANTISSA - mantissa);
    if (larger < 1) // too small for an f16 with a leading one
        return (uint16_t)(sign | (bits | 1u << F16_MANTISSA) >> (1 - larger));
    return (uint16_t)(sign | (unsigned)larger << F16_MANTISSA | bits);
}

static uint16_t f16_of_byte(nd_narrow_float kind, unsigned byte) {
    unsigned magnitude = byte & 0x7f;
    switch (kind) {
    case ND__NARROW_E4M3:
        return magnitude == 0x7f ? (uint16_t)(F16_NAN | (byte & 0x80) << 8) : f16_of(byte, 3, 7);
    case ND__NARROW_E4M3FNUZ:
        return byte == 0x80 ? F16_NAN : f16_of(byte, 3, 8);
    case ND__NARROW_E5M2FNUZ:
        return byte == 0x80 ? F16_NAN : f16_of(byte, 2, 16);
    default: // E5M2 is the upper half of an f16
        return (uint16_t)(byte << 8 | (magnitude > 0x7c ? F16_NAN : 0));
    }
}

static void widen_to_f16(nd_narrow_float kind, const unsigned char *bytes, size_t count, void *to) {
    uint16_t *elements = to;
    uint16_t values[BYTES];
    for (unsigned byte = 0; byte < BYTES; byte++)
        values[byte] = f16_of_byte(kind, byte);
    for (size_t i = 0; i < count; i++)
        elements[i] = values[bytes[i]];
}

/// 2^(byte - 127): an f32's exponent, but for its smallest value, which has no leading one.
static void widen_to_f32(const unsigned char *bytes, size_t count, void *to) {
    uint32_t *elements = to;
    for (size_t i = 0; i < count; i++)
        elements[i] = bytes[i] == 255 ? F32_NAN : bytes[i] ? (uint32_t)bytes[i] << 23 : 1u << 22;
}

/// The halves of each byte, the lower one first. A half is a sign and three bits.
static void widen_halves(const unsigned char *bytes, size_t count, void *to) {
    uint16_t *elements = to;
    uint16_t values[16];
    for (unsigned half = 0; half < 16; half++)
        values[half] = f16_of((half & 8) << 4 | (half & 7), 1, 1);
    for (size_t i = 0; i < count; i++) {
        elements[2 * i] = values[bytes[i] & 15];
        elements[2 * i + 1] = values[bytes[i] >> 4];
    }
}

/// From the front, a piece at a time: what is written has been read, or lies before what is read
/// next. (In one loop over both gcc 12 loses the writes at -O1.)
void nd__narrow_float_widen(nd_narrow_float kind, void *elements, size_t count) {
    const size_t per_byte = (size_t)nd__narrow_float_per_byte(kind), bytes = count / per_byte;
    const size_t size = per_byte * (nd__narrow_float_dtype(kind) == ND_F32 ? 4 : 2);
    unsigned char *to = elements, piece[PIECE];
    const unsigned char *from = to + (size - 1) * bytes;
    for (size_t done = 0; done < bytes; done += PIECE) {
        size_t length = bytes - done < PIECE ? bytes - done : PIECE;
        memcpy(piece, from + done, length);
        if (kind == ND__NARROW_E8M0)
            widen_to_f32(piece, length, to + size * done);
        else if (kind == ND__NARROW_E2M1)
            widen_halves(piece, length, to + size * done);
        else
            widen_to_f16(kind, piece, length, to + size * done);
    }
}
