// Elementwise functions of one operand: the loops that unary.c has no room for (parts.h).
#define ND__FUNCTIONS 1
#include "kernels/cpu/parts.h"

#include "kernels/cpu/exp_vectors.h"
#include "kernels/cpu/halves.h"
#include "kernels/cpu/rows.h"

#define ND__TEMPLATE "kernels/cpu/unary.inc"
#define ND__TEMPLATE_OF_HALVES "kernels/cpu/halves_unary.inc"
#include "kernels/cpu/numbers.inc"
