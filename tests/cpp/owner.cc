// nd::owned of <nd/nd.hpp>. cpp_test.sh compiles this with warnings as errors and runs it.
#include <cstdio>
#include <map>
#include <nd/nd.hpp>
#include <type_traits>
#include <utility>
#include <vector>

static int failures;

static void check(bool condition, const char *what) {
    if (!condition) {
        printf("failed: %s (%s)\n", what, nd_error_get_message());
        failures++;
    }
}
#define CHECK(condition) check((condition), #condition)

static_assert(sizeof(nd::tensor) == sizeof(nd_tensor *), "an owner is a pointer");
static_assert(std::is_nothrow_move_constructible<nd::tensor>::value,
              "vectors move and do not copy");
static_assert(std::is_convertible<nd::tensor, const nd_tensor *>::value, "it is borrowed from");
static_assert(!std::is_convertible<nd::tensor, nd_tensor *>::value, "and not given away silently");
static_assert(!std::is_convertible<nd_tensor *, nd::tensor>::value, "taking over is written out");
static_assert(!std::is_constructible<nd::tensor, const nd_tensor *>::value,
              "nor is a borrowed one taken");
static_assert(!std::is_constructible<nd::tensor, nd_module *>::value, "types are kept apart");
static_assert(std::is_standard_layout<nd_backward_options>::value, "options are C's");

static nd::tensor ones() {
    return nd::tensor{nd_ones(ND_SHAPE(2, 3), ND_F32)};
}

static void copies_and_moves() {
    nd::tensor a = ones();
    CHECK(a && nd_get_count(a) == 1);
    {
        nd::tensor b = a;
        CHECK(b.get() == a.get() && nd_get_count(a) == 2);
        nd::tensor c = std::move(b);
        CHECK(!b && c.get() == a.get() && nd_get_count(a) == 2);
        nd::tensor &same = c;
        c = same;
        CHECK(nd_get_count(a) == 2);
        c = std::move(same);
        CHECK(c && nd_get_count(a) == 2);
        b = ones();
        const nd_tensor *second = b;
        swap(b, c);
        CHECK(c.get() == second && b.get() == a.get());
        c = nullptr;
        CHECK(!c && nd_get_count(a) == 2);
    }
    CHECK(nd_get_count(a) == 1);
    a.reset(nd_zeros(ND_SHAPE(1), ND_F32));
    CHECK(nd_get_count(a) == 1 && nd_get_ndim(a) == 1);
    a.reset();
    CHECK(!a && a.get() == nullptr && nd_get_count(a) == 0);
}

static void borrowing() {
    nd::tensor a = ones();
    nd::tensor sum{nd_sum(nd::tensor{nd_square(a)}, 0, NULL, false)};
    CHECK(nd_get_item(sum) == 6);
    nd::tensor kept = nd::tensor::retain(static_cast<const nd_tensor *>(a));
    CHECK(nd_get_count(a) == 2);
    CHECK(nd_mul_scalar_(kept.get(), 2) == ND_OK);
    nd_tensor *plain = kept.steal();
    CHECK(!kept && nd_get_count(plain) == 2);
    nd_release(plain);
    nd_tensor *retained = nd_retain(a);
    nd_release(retained);
    CHECK(nd_get_count(a) == 1);
    CHECK(!nd::tensor::retain(nullptr));
}

static void containers() {
    nd::tensor a = ones();
    {
        std::vector<nd::tensor> many(10, a);
        CHECK(nd_get_count(a) == 11);
        many.push_back(ones());
        many.erase(many.begin(), many.begin() + 5);
        CHECK(nd_get_count(a) == 6);
        std::map<int, nd::tensor> by_number;
        by_number[3] = a;
        by_number.emplace(4, nd_zeros(ND_SHAPE(1), ND_F32));
        CHECK(nd_get_count(a) == 7);
    }
    CHECK(nd_get_count(a) == 1);
}

static nd::tensor throws(const nd::tensor &x) {
    nd::tensor copy = x;
    throw 1;
}

static void exceptions() {
    nd::tensor a = ones();
    try {
        nd::tensor b = throws(a);
        CHECK(false);
    } catch (int) {
        CHECK(nd_get_count(a) == 1);
    }
    try {
        ND_SCOPE {
            nd_auto nd_tensor *b = nd_retain(a);
            nd_tmp(nd_retain(a));
            CHECK(nd_get_count(a) == 3);
            throw 1;
        }
    } catch (int) {
        CHECK(nd_get_count(a) == 1 && nd_scope_get_current() == nullptr);
    }
}

static void failing() {
    nd::tensor a = ones();
    nd::tensor b{nd_zeros(ND_SHAPE(7), ND_F32)};
    nd::tensor sum{nd_add(a, b)};
    CHECK(!sum && nd_error_get_status() == ND_ERROR_SHAPE);
    nd::tensor square{nd_square(sum)};
    CHECK(!square && nd_error_get_status() == ND_ERROR_SHAPE);
    nd_error_clear();
}

/// The value of a tensor with one element.
static double value_of(const nd_tensor *x) {
    nd::tensor wide = nd::cast(x, ND_F64);
    return wide ? *static_cast<const double *>(nd_get_data(wide)) : -1e300;
}

static void functions() {
    nd::tensor a = nd::full(ND_SHAPE(1), 6, ND_F32), b = nd::full(ND_SHAPE(1), 4, ND_F32);
    CHECK(value_of(nd::add(a, b)) == 10 && value_of(nd::maximum(a, b)) == 6);
    CHECK(value_of(nd::exp(nd::sub(a, a))) == 1);
    CHECK(value_of(nd::sum(nd::square(a), 0, nullptr, false)) == 36);
    CHECK(value_of(nd::clip(a, 1, 2.5)) == 2.5 && value_of(nd::isfinite(a)) == 1);
    const nd_tensor *both[] = {a, b};
    CHECK(value_of(nd::sum(nd::concat(2, both, 0), 0, nullptr, false)) == 10);
    CHECK(value_of(a + b) == 10 && value_of(a - b) == 2 && value_of(a * b) == 24);
    CHECK(value_of(a / b) == 1.5 && value_of(-a) == -6);
    CHECK(value_of(a + 2) == 8 && value_of(2 + a) == 8 && value_of(a - 2u) == 4);
    CHECK(value_of(a * 0.5) == 3 && value_of(0.5f * a) == 3 && value_of(a / 4) == 1.5);
    CHECK(value_of(a + 0) == 6 && value_of(a + ND_NUMBER(1)) == 7);
    CHECK(value_of((a + b) * (a - b) / 2 - 1) == 9);
    CHECK(value_of(0 - a) == -6 && value_of(1.5 - a) == -4.5 && value_of(ND_NUMBER(7) - a) == 1);
    CHECK(value_of(0 / a) == 0 && value_of(3 / a) == 0.5 && value_of(9.0f / a) == 1.5);
    nd::tensor integer = nd::scalar(7, ND_I64);
    CHECK(nd_get_dtype(integer * 2) == ND_I64 && nd_get_dtype(integer / 2) == ND_F32);
    CHECK(nd_get_dtype(2 - integer) == ND_I64 && nd_get_dtype(2.5 - integer) == ND_F32);
    CHECK(nd_get_dtype(2 / integer) == ND_F32);
    CHECK(nd_get_count(a) == 1 && nd_get_count(b) == 1);
    nd::tensor none;
    CHECK(!(a + none) && nd_error_get_status() == ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
}

static void other_types() {
    nd::manager manager{nd_manager_new(NULL, "step")};
    {
        nd::module net{
            ND_SEQUENTIAL(nd_linear_module(nd_key_new(1), 3, 2, true), nd_relu_module())};
        nd::optimizer optimizer{nd_sgd(net, nullptr)};
        nd::list list{nd_list_new()};
        CHECK(nd_list_append(list.get(), net) == ND_OK);
        nd::weak weak{nd_weak_new(net)};
        net = nullptr;
        nd::object alive{nd_weak_get(weak)};
        CHECK(alive && nd_get_count(alive) >= 2);
    }
    CHECK(nd_manager_close(manager.get(), NULL) == ND_OK);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    CHECK(options.size == sizeof(options) && options.version == 1 && !options.grad);
}

int main() {
    copies_and_moves();
    borrowing();
    containers();
    exceptions();
    failing();
    functions();
    other_types();
    CHECK(nd_error_get_status() == ND_OK);
    CHECK(nd_manager_get_total_objects(NULL) == 0);
    return failures != 0;
}
