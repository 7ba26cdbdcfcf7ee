/// @file
/// Numbers that keep their type: what an operation takes where it takes an element's value.
///
/// A double has 53 bits, so that most int64 do not fit one. Functions that take an nd_number are
/// called with any number of C, and each integer of up to 64 bits arrives as it is (gcc hands over
/// a bit-field as a double: cast it):
///
///     nd_tensor *x = nd_full(ND_SHAPE(2, 3), 1.5, ND_F32);
///     nd_tensor *y = nd_scalar(INT64_MAX, ND_I64);
///     nd_tensor *z = nd_add_scalar(y, -1);
///
/// In C each such function is also a macro of the same name, which makes its argument an nd_number
/// with ND_NUMBER(); the address of the function is taken as ever, and a call through a pointer
/// says ND_NUMBER(). In C++ the numbers convert by themselves.
///
/// What a dtype holds: a float holds every number, rounded once to the nearest it has; an integer
/// dtype the integers of its range, 1.0 as well as 1; bool 0 and 1. Where a function does otherwise
/// it says so.
#ifndef ND_NUMBER_H
#define ND_NUMBER_H
#include <nd/base.h>

/// Which of its fields an nd_number has.
typedef enum nd_number_kind {
    ND_NUMBER_F64 = 0, ///< f64: what was a float, double or long double
    ND_NUMBER_I64,     ///< i64: what was a signed integer
    ND_NUMBER_U64,     ///< u64: what was an unsigned integer or a bool
} nd_number_kind;

/// The value of a number; its kind says which field it is.
typedef union nd_number_value {
    double f64;   ///< of ND_NUMBER_F64
    int64_t i64;  ///< of ND_NUMBER_I64
    uint64_t u64; ///< of ND_NUMBER_U64
#ifdef __cplusplus
    /// @cond
    nd_number_value() = default;
    constexpr explicit nd_number_value(double number) noexcept : f64(number) {
    }
    constexpr explicit nd_number_value(int64_t number) noexcept : i64(number) {
    }
    constexpr explicit nd_number_value(uint64_t number) noexcept : u64(number) {
    }
    /// @endcond
#endif
} nd_number_value;

#ifdef __cplusplus
/// Which kind a type of C++ is, and the type of that kind's field.
template <typename T> struct nd__number_of {
    using integer =
        typename std::conditional<std::is_enum<T>::value, std::underlying_type<T>,
                                  std::common_type<T>>::type::type; // the latter is T itself
    static constexpr nd_number_kind kind = std::is_floating_point<integer>::value ? ND_NUMBER_F64
                                           : std::is_signed<integer>::value       ? ND_NUMBER_I64
                                                                                  : ND_NUMBER_U64;
    using type = typename std::conditional<
        kind == ND_NUMBER_F64, double,
        typename std::conditional<kind == ND_NUMBER_I64, int64_t, uint64_t>::type>::type;
};
#endif

/// A number and its type. Two words; passed by value. In C++ any integer, bool, enumerator and
/// floating-point number converts to one.
typedef struct nd_number {
    nd_number_kind kind;   ///< which field of the value it is
    nd_number_value value; ///< the number itself
#ifdef __cplusplus
    /// @cond
    nd_number() = default;
    template <typename T,
              typename std::enable_if<std::is_arithmetic<T>::value || std::is_enum<T>::value,
                                      int>::type = 0>
    constexpr nd_number(T number) noexcept
        : kind(nd__number_of<T>::kind),
          value(static_cast<typename nd__number_of<T>::type>(number)) {
    }
    /// @endcond
#endif
} nd_number;

#ifdef __cplusplus
static_assert(std::is_trivially_copyable<nd_number>::value, "passed as the struct of C is");
/// The nd_number of any number, or of an nd_number.
#define ND_NUMBER(number) nd_number(number)
#else

/// The nd_number of any number of C, or of an nd_number. The value is computed once. What has none
/// of the types below, such as a bit-field, becomes a double, or does not compile.
// clang-format off
#define ND_NUMBER(value)                                                                      \
    ND__UNEVALUATED(_Generic((value),                                                         \
        nd_number: nd__number_same,                                                           \
        float: nd__number_f64, double: nd__number_f64, long double: nd__number_long,          \
        signed char: nd__number_i64, short: nd__number_i64, int: nd__number_i64,              \
        long: nd__number_i64, long long: nd__number_i64,                                      \
        char: nd__number_i64, bool: nd__number_u64,                                           \
        unsigned char: nd__number_u64, unsigned short: nd__number_u64,                        \
        unsigned: nd__number_u64, unsigned long: nd__number_u64,                              \
        unsigned long long: nd__number_u64,                                                   \
        default: nd__number_f64))(value)
// clang-format on

// clang says of ++i in an argument that the type of it is asked without computing it, which is what
// is meant.
#ifdef __clang__
#define ND__UNEVALUATED(expression)                                                  \
    _Pragma("clang diagnostic push")                                                 \
        _Pragma("clang diagnostic ignored \"-Wunevaluated-expression\"")(expression) \
            _Pragma("clang diagnostic pop")
#else
#define ND__UNEVALUATED(expression) (expression)
#endif

static inline nd_number nd__number_same(nd_number value) {
    return value;
}
static inline nd_number nd__number_f64(double value) {
    nd_number number = {ND_NUMBER_F64, {.f64 = value}};
    return number;
}
static inline nd_number nd__number_long(long double value) {
    return nd__number_f64((double)value);
}
static inline nd_number nd__number_i64(int64_t value) {
    nd_number number = {ND_NUMBER_I64, {.i64 = value}};
    return number;
}
static inline nd_number nd__number_u64(uint64_t value) {
    nd_number number = {ND_NUMBER_U64, {.u64 = value}};
    return number;
}

#endif

#include <nd/detail/numbers.h>
#endif
