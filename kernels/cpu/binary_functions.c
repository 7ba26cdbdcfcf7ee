// Elementwise functions of two operands, and derivatives that are made of functions: the loops that
// binary.c has no room for (parts.h). What 16-bit floats have of them goes through blocks.
#define ND__FUNCTIONS 1
#include "kernels/cpu/parts.h"

#include "kernels/cpu/rows.h"

#define ND__TEMPLATE "kernels/cpu/binary.inc"
#include "kernels/cpu/numbers.inc"
