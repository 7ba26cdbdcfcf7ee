/// @file
/// Owners for C++17: a handle that releases itself.
///
/// `nd::owned<T>` holds one strong count of an object, or nothing. It is made from an owned handle,
/// which it takes over; a move passes the count on, a copy retains, the destructor releases. Two
/// copies own the same object and not two. It converts to `const T *`, so that it can be handed to
/// every function that borrows:
///
///     nd::tensor a{nd_ones(ND_SHAPE(2, 3), ND_F32)};
///     nd::tensor b{nd_sum(nd::tensor{nd_square(a)}, 0, NULL, false)};
///
/// Every function nd_NAME that makes a tensor (but those of <nd/distributed.h>) is also nd::NAME, which returns an nd::tensor, and
/// + - * / stand for nd::add, sub, mul and div of two tensors, or of a tensor and a number. So this
/// is the same, without a leak in the middle:
///
///     nd::tensor a = nd::ones(ND_SHAPE(2, 3), ND_F32);
///     nd::tensor b = nd::sum(a * a, 0, NULL, false);
///
/// What makes other objects, or writes them to addresses, gives handles of C, for an owner to take
/// over: `nd::manager m{nd_manager_new(NULL, "step")};`. Axes, in C `(int[]){1}`, want a named array.
///
/// Functions that change or consume their argument take `get()` or `steal()`. NULL propagates as in
/// C: an owner of nothing is false, and nd_error_get_message() says why. Nothing here throws.
#ifndef ND_ND_HPP
#define ND_ND_HPP
#include <cstddef>
#include <nd/nd.h>
#include <type_traits>

namespace nd {

/// One strong count of an object of handle type T, or nothing.
///
/// Threads: the object's count is safe beside everything; one owner is used by one thread at a
/// time.
template <typename T> class owned {
  public:
    /// Owns nothing.
    owned() noexcept = default;
    /// Owns nothing.
    owned(std::nullptr_t) noexcept {
    }
    /// Takes over an owned handle, or NULL. A borrowed (const) one does not compile: see retain().
    explicit owned(T *handle) noexcept : handle_(handle) {
    }
    /// A count of its own of the same object.
    owned(const owned &other) noexcept
        : handle_(static_cast<T *>(nd_object_retain(other.handle_))) {
    }
    /// Takes the count of the other, which owns nothing afterwards.
    owned(owned &&other) noexcept : handle_(other.steal()) {
    }
    /// Releases what it owned, and copies or moves the other, which may be itself.
    owned &operator=(owned other) noexcept {
        swap(other);
        return *this;
    }
    ~owned() {
        nd_object_release(handle_);
    }

    /// A count of its own of a borrowed object; of nothing for NULL.
    static owned retain(const T *borrowed) noexcept {
        return owned(static_cast<T *>(nd_object_retain(borrowed)));
    }

    /// The handle, borrowed from this owner: valid while it holds it. Not to be kept from a
    /// temporary.
    operator const T *() const noexcept {
        return handle_;
    }
    /// The handle for functions that change the object. Still this owner's: not to be released or
    /// consumed.
    T *get() const noexcept {
        return handle_;
    }
    /// Gives up the handle, for functions that consume it or for C: the caller owes the release.
    [[nodiscard]] T *steal() noexcept {
        T *handle = handle_;
        handle_ = nullptr;
        return handle;
    }
    /// Releases what it owned and takes over another owned handle, or nothing.
    void reset(T *handle = nullptr) noexcept {
        owned(handle).swap(*this);
    }
    /// Whether it owns an object.
    explicit operator bool() const noexcept {
        return handle_ != nullptr;
    }
    /// Exchanges what two owners own.
    void swap(owned &other) noexcept {
        T *handle = handle_;
        handle_ = other.handle_;
        other.handle_ = handle;
    }

  private:
    T *handle_ = nullptr;
};

/// Exchanges what two owners own.
template <typename T> void swap(owned<T> &a, owned<T> &b) noexcept {
    a.swap(b);
}

using object = owned<nd_object>;               ///< owner of any object
using tensor = owned<nd_tensor>;               ///< owner of a tensor
using manager = owned<nd_manager>;             ///< owner of a manager
using weak = owned<nd_weak>;                   ///< owner of a weak reference
using list = owned<nd_list>;                   ///< owner of a list
using map = owned<nd_map>;                     ///< owner of a map
using resource = owned<nd_resource>;           ///< owner of a resource
using node = owned<nd_node>;                   ///< owner of a graph node
using module = owned<nd_module>;               ///< owner of a module
using optimizer = owned<nd_optimizer>;         ///< owner of an optimizer
using schedule = owned<nd_schedule>;           ///< owner of a schedule
using ema = owned<nd_ema>;                     ///< owner of moving averages
using loss_scaler = owned<nd_loss_scaler>;     ///< owner of a loss scaler
using state = owned<nd_state>;                 ///< owner of a training's state
using dataset = owned<nd_dataset>;             ///< owner of a data set
using stream = owned<nd_stream>;               ///< owner of a stream
using event = owned<nd_event>;                 ///< owner of an event
using graph = owned<nd_graph>;                 ///< owner of captured work
using gguf = owned<nd_gguf>;                   ///< owner of an open GGUF file
using communicator = owned<nd_communicator>;   ///< owner of ranks that compute together
using data_parallel = owned<nd_data_parallel>; ///< owner of a module trained by several ranks

} // namespace nd

#include <nd/detail/functions.hpp>

namespace nd {

// Of two tensors: both broadcast and promote as in <nd/ops.h>.
/// a + b.
inline tensor operator+(const tensor &a, const tensor &b) noexcept {
    return add(a, b);
}
/// a - b.
inline tensor operator-(const tensor &a, const tensor &b) noexcept {
    return sub(a, b);
}
/// a * b, element by element.
inline tensor operator*(const tensor &a, const tensor &b) noexcept {
    return mul(a, b);
}
/// a / b; integers give floats.
inline tensor operator/(const tensor &a, const tensor &b) noexcept {
    return div(a, b);
}
/// -x.
inline tensor operator-(const tensor &x) noexcept {
    return neg(x);
}

/// A tensor where N is a type of numbers; else no type.
template <typename N>
using tensor_with_number =
    typename std::enable_if<std::is_arithmetic<N>::value || std::is_same<N, nd_number>::value,
                            tensor>::type;

// Of a tensor and a number, whose dtype stays the tensor's where that holds the number. A number
// that a tensor is taken from, or divides, becomes a tensor of its shape first.
/// a + number.
template <typename N> tensor_with_number<N> operator+(const tensor &a, N number) noexcept {
    return add_scalar(a, number);
}
/// number + a.
template <typename N> tensor_with_number<N> operator+(N number, const tensor &a) noexcept {
    return add_scalar(a, number);
}
/// a - number.
template <typename N> tensor_with_number<N> operator-(const tensor &a, N number) noexcept {
    return sub_scalar(a, number);
}
/// number - a.
template <typename N> tensor_with_number<N> operator-(N number, const tensor &a) noexcept {
    return sub(add_scalar(zeros_like(a), number), a);
}
/// a * number.
template <typename N> tensor_with_number<N> operator*(const tensor &a, N number) noexcept {
    return mul_scalar(a, number);
}
/// number * a.
template <typename N> tensor_with_number<N> operator*(N number, const tensor &a) noexcept {
    return mul_scalar(a, number);
}
/// a / number; integers give floats.
template <typename N> tensor_with_number<N> operator/(const tensor &a, N number) noexcept {
    return div_scalar(a, number);
}
/// number / a; integers give floats.
template <typename N> tensor_with_number<N> operator/(N number, const tensor &a) noexcept {
    return div(add_scalar(zeros_like(a), number), a);
}

} // namespace nd

#endif
