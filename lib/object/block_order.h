// Blocks in the order of their addresses, before they are given up together.
//
// A cache hands out what it got last, so objects that are made next lie in memory in the order in which
// others died, backwards. Garbage dies in the order in which it was found, which follows its edges and not
// its addresses; what is made of it and dies is strewn a little more. Without this a program that
// makes and collects a million objects again and again would wait for memory the longer the more.
#ifndef ND_LIB_OBJECT_BLOCK_ORDER_H
#define ND_LIB_OBJECT_BLOCK_ORDER_H
#include "lib/object/object.h"
#include <stdbool.h>

/// So many at a time: what the nearest cache holds.
enum { ND__BLOCK_ORDER_MOST = 128 };

/// Writes the objects, which are blocks, by rising addresses, or by falling ones where the last of them
/// lies before the first: so that pieces which were found one behind the other go on in one direction.
/// False, and nothing was written: they are in such an order already, or lie in too many places.
bool nd__block_order_by_address(nd_object *const *objects, size_t count, nd_object **ret_ordered);
#endif
