/// @file
/// Argument lists in which some places are numbers: ND__NUMBER_<WHERE>(arguments) gives the list
/// with those places made an nd_number, for the macros that stand for functions in C. In C++, where
/// numbers convert by themselves, a list stays as it is.
#ifndef ND_DETAIL_NUMBERS_H
#define ND_DETAIL_NUMBERS_H

#ifdef __cplusplus
#define ND__NUMBER_FIRST(...) __VA_ARGS__
#define ND__NUMBER_SECOND(...) __VA_ARGS__
#define ND__NUMBER_THIRD(...) __VA_ARGS__
#define ND__NUMBER_SECOND_AND_THIRD(...) __VA_ARGS__
#define ND__NUMBER_BETWEEN(...) __VA_ARGS__
#define ND__NUMBERS_BETWEEN(...) __VA_ARGS__
#define ND__NUMBER_BEFORE_LAST(...) __VA_ARGS__
#define ND__NUMBERS_BEFORE_LAST(...) __VA_ARGS__
#else
#define ND__NUMBER_FIRST(value, b) ND_NUMBER(value), b
#define ND__NUMBER_SECOND(a, value) a, ND_NUMBER(value)
#define ND__NUMBER_THIRD(a, b, value) a, b, ND_NUMBER(value)
#define ND__NUMBER_SECOND_AND_THIRD(a, value, other) a, ND_NUMBER(value), ND_NUMBER(other)
#define ND__NUMBER_BETWEEN(a, value, z) a, ND_NUMBER(value), z
#define ND__NUMBERS_BETWEEN(a, value, other, z) a, ND_NUMBER(value), ND_NUMBER(other), z
#define ND__NUMBERS_BEFORE_LAST(a, b, c, d) ND_NUMBER(a), ND_NUMBER(b), ND_NUMBER(c), d

// Of 4 to 12 arguments: to the preprocessor the commas of a compound literal, such as the shape
// that ND_SHAPE() writes, are those of the list.
#define ND__NUMBER_BEFORE_LAST(...)                                                               \
    ND__THIRTEENTH(__VA_ARGS__, ND__BEFORE_12, ND__BEFORE_11, ND__BEFORE_10, ND__BEFORE_9,        \
                   ND__BEFORE_8, ND__BEFORE_7, ND__BEFORE_6, ND__BEFORE_5, ND__BEFORE_4, ND__few, \
                   ND__few, ND__few, )                                                            \
    (__VA_ARGS__)
#define ND__THIRTEENTH(a, b, c, d, e, f, g, h, i, j, k, l, m, ...) m
#define ND__BEFORE_4(a, b, value, z) a, b, ND_NUMBER(value), z
#define ND__BEFORE_5(a, b, c, value, z) a, b, c, ND_NUMBER(value), z
#define ND__BEFORE_6(a, b, c, d, value, z) a, b, c, d, ND_NUMBER(value), z
#define ND__BEFORE_7(a, b, c, d, e, value, z) a, b, c, d, e, ND_NUMBER(value), z
#define ND__BEFORE_8(a, b, c, d, e, f, value, z) a, b, c, d, e, f, ND_NUMBER(value), z
#define ND__BEFORE_9(a, b, c, d, e, f, g, value, z) a, b, c, d, e, f, g, ND_NUMBER(value), z
#define ND__BEFORE_10(a, b, c, d, e, f, g, h, value, z) a, b, c, d, e, f, g, h, ND_NUMBER(value), z
#define ND__BEFORE_11(a, b, c, d, e, f, g, h, i, value, z) \
    a, b, c, d, e, f, g, h, i, ND_NUMBER(value), z
#define ND__BEFORE_12(a, b, c, d, e, f, g, h, i, j, value, z) \
    a, b, c, d, e, f, g, h, i, j, ND_NUMBER(value), z
#endif

#endif
