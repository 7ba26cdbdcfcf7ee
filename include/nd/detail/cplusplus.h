/// @file
/// What the macros of the public headers need in C++, which has no compound literals, and where
/// designated initialisers must name every field to be free of warnings.
#ifndef ND_DETAIL_CPLUSPLUS_H
#define ND_DETAIL_CPLUSPLUS_H
#if __cplusplus < 201703L
#error "the headers of ndarc need C++17 (-std=c++17) or later"
#endif
#include <initializer_list>
#include <stddef.h>
#include <stdint.h>
#include <type_traits>

/// The sizes that ND_SHAPE() names, of any integer types.
template <typename... T> struct nd__shape {
    static_assert((... && (std::is_integral<T>::value || std::is_enum<T>::value)),
                  "a shape is made of integers");
    static constexpr int count = static_cast<int>(sizeof...(T));
    int64_t sizes[sizeof...(T) + 1];
    explicit nd__shape(T... size) : sizes{static_cast<int64_t>(size)..., 0} {
    }
    const int64_t *get() const {
        return sizes;
    }
};

/// A struct of size and version whose other fields are zero.
template <typename T> inline T nd__sized() {
    T value{};
    value.size = sizeof(T);
    value.version = 1;
    return value;
}

#endif
