// Every macro of the public headers, in C++. cpp_test.sh compiles this with warnings as errors and
// runs it.
#include <climits>
#include <cstdio>
#include <cstring>
#include <nd/nd.h>

static int failures;

static void check(bool condition, const char *what) {
    if (!condition) {
        printf("failed: %s (%s)\n", what, nd_error_get_message());
        failures++;
    }
}
#define CHECK(condition) check((condition), #condition)

struct pair {
    nd_tensor *first;
    nd_list *second;
};
#define PAIR_EDGES(ONE, MANY) ONE(first) ONE(second)
ND_TYPE_EDGES(pair, PAIR_EDGES)

static nd_type pair_type() {
    nd_type type{};
    type.size = sizeof(type);
    type.version = 1;
    type.name = "pair";
    type.traverse = pair_traverse;
    type.clear = pair_clear;
    return type;
}

static nd_tensor *sum_of_squares(const nd_tensor *x) {
    nd_auto nd_tensor *squares = nd_square(x);
    nd_auto nd_tensor *sum = nd_sum(squares, 0, NULL, false);
    return nd_steal(&sum);
}

static void counts() {
    nd_tensor *x = nd_ones(ND_SHAPE(2, 3), ND_F32);
    const nd_tensor *borrowed = x;
    nd_tensor *again = nd_retain(borrowed);
    nd_tensor *third = nd_retain(x);
    CHECK(again == x && third == x && nd_get_count(x) == 3);
    nd_release(third);
    nd_release(again);
    CHECK(nd_get_count(x) == 1);

    nd_tensor *taken = nd_steal(&x);
    CHECK(x == nullptr && nd_get_count(taken) == 1);
    nd_auto nd_tensor *kept = taken;
    nd_auto nd_tensor *unused = sum_of_squares(kept);
    nd_tensor *nothing = nullptr;
    nd_auto nd_tensor *still_nothing = nd_retain(nothing);
    CHECK(still_nothing == nullptr);
    nd_release(nothing);
}

static void shapes() {
    const size_t rows = 3;
    const int columns = 4;
    nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(rows, columns, 5), ND_F64);
    CHECK(nd_get_ndim(x) == 3);
    CHECK(nd_get_shape(x)[0] == 3 && nd_get_shape(x)[1] == 4 && nd_get_shape(x)[2] == 5);
    nd_auto nd_tensor *scalar = nd_ones(ND_SHAPE(), ND_F32);
    CHECK(nd_get_ndim(scalar) == 0);
    int evaluated = 0;
    nd_auto nd_tensor *once = nd_zeros(ND_SHAPE(++evaluated), ND_F32);
    CHECK(evaluated == 1 && nd_get_shape(once)[0] == 1);
}

static void scopes() {
    nd_auto nd_tensor *kept = nullptr;
    ND_SCOPE {
        const nd_tensor *x = nd_tmp(nd_ones(ND_SHAPE(4), ND_F32));
        ND_SCOPE {
            const nd_tensor *y = nd_tmp(nd_square(nd_tmp(nd_neg(x))));
            kept = nd_retain(y);
            CHECK(nd_scope_get_size(nd_scope_get_current()) == 2);
        }
        CHECK(nd_scope_get_size(nd_scope_get_current()) == 1);
    }
    nd_auto_scope;
    {
        nd_auto_scope;
        const nd_list *list = nd_tmp(nd_list_new());
        CHECK(nd_list_get_size(list) == 0);
    }
    CHECK(nd_scope_get_current() && nd_get_count(kept) == 1);
}

static void blocks() {
    nd_manager *outer = nd_manager_new(NULL, "outer");
    nd_manager *inner = nd_manager_new(outer, "inner");
    nd_expect_balanced(outer) {
        nd_with_manager(outer) {
            nd_with_manager(inner) {
                nd_no_grad {
                    CHECK(!nd_is_grad_enabled());
                    nd_enable_grad {
                        CHECK(nd_is_grad_enabled());
                    }
                }
                nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1), ND_F32);
                CHECK(nd_manager_get_total_objects(inner) > 0);
            }
        }
    }
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    CHECK(nd_manager_close(outer, &report) == ND_OK && report.escaped_objects == 0);
    nd_release(inner);
    nd_release(outer);
}

static void modules() {
    nd_auto nd_module *net =
        ND_SEQUENTIAL(nd_linear_module(nd_key_new(1), 3, 2, true), nd_relu_module());
    CHECK(nd_module_get_child_count(net) == 2);
    nd_auto nd_module *empty = ND_SEQUENTIAL();
    CHECK(nd_module_get_child_count(empty) == 0);
    nd_sgd_options sgd = ND_SGD_OPTIONS_INIT;
    sgd.rate = 0.1;
    nd_auto nd_optimizer *optimizer = nd_sgd(net, &sgd);
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(5, 3), ND_F32);
    nd_auto nd_tensor *y = nd_module_forward(net, x);
    nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = false;
    CHECK(nd_backward(loss, &options) == ND_OK);
    CHECK(nd_optimizer_step(optimizer) == ND_OK);
}

static void types() {
    static const nd_type type = pair_type();
    nd_auto nd_object *object = nd_object_new(&type, sizeof(pair));
    pair *data = static_cast<pair *>(nd_object_get_data(object));
    CHECK(data && !data->first);
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1), ND_F32);
    nd_edge_set(&data->first, x);
    CHECK(nd_get_count(x) == 2);
}

// Each begins with its size and version, and is zero or as said beyond; the library takes it.
static void initialisers() {
    nd_gc_report collected = ND_GC_REPORT_INIT;
    CHECK(nd_gc_collect(NULL, &collected) == ND_OK);
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    CHECK(policy.size == sizeof(policy) && policy.version == 1);
    for (uint64_t bytes : policy.allocated_bytes)
        CHECK(bytes == ND_GC_INHERITED);
    CHECK(policy.tracked_objects == ND_GC_INHERITED && policy.interval_ns == ND_GC_INHERITED);
    CHECK(policy.pause_ns == ND_GC_INHERITED && policy.boundary == ND_GC_INHERITED);
    CHECK(policy.pressure == ND_GC_INHERITED);
    nd_manager *manager = nd_manager_new(NULL, "policy");
    CHECK(nd_manager_set_gc_policy(manager, &policy) == ND_OK);
    nd_manager_stats of_manager = ND_MANAGER_STATS_INIT;
    CHECK(nd_manager_get_stats(manager, &of_manager) == ND_OK);
    nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
    CHECK(callback.size == sizeof(callback) && !callback.give_up && !callback.free);
    nd_release(manager);
    nd_gc_stats totals = ND_GC_STATS_INIT;
    CHECK(nd_gc_get_stats(&totals) == ND_OK);
    nd_memory_stats memory = ND_MEMORY_STATS_INIT;
    CHECK(nd_memory_get_stats(&memory) == ND_OK);
    nd_holders holders = ND_HOLDERS_INIT;
    nd_difference difference = ND_DIFFERENCE_INIT;
    CHECK(holders.size == sizeof(holders) && difference.size == sizeof(difference));
    nd_dataset_options data = ND_DATASET_OPTIONS_INIT;
    data.batch = 3;
    CHECK(data.size == sizeof(data) && data.version == 1 && data.batch == 3 && !data.shuffle);
    nd_conv2d_options windows = ND_CONV2D_OPTIONS_INIT;
    windows.padding[1] = 1;
    CHECK(windows.size == sizeof(windows) && windows.stride[1] == 1 && windows.groups == 1);
    nd_auto nd_tensor *image = nd_ones(ND_SHAPE(1, 1, 3, 3), ND_F32);
    nd_auto nd_tensor *y = nd_conv2d(image, image, NULL, &windows);
    CHECK(nd_get_numel(y) == 3);
    nd_max_pool2d_options pooling = ND_MAX_POOL2D_OPTIONS_INIT;
    pooling.kernel[0] = pooling.kernel[1] = 2;
    CHECK(pooling.size == sizeof(pooling) && pooling.stride[0] == 0 && pooling.dilation[1] == 1);
    nd_auto nd_module *pool = nd_max_pool2d_module(&pooling);
    nd_auto nd_module *convolution = nd_conv2d_module(nd_key_new(1), 1, 2, 3, 3, true, &windows);
    CHECK(pool && convolution);
}

enum plain { NEGATIVE = -5 };
enum class scoped_enum : uint8_t { MOST = 255 };

static int64_t made_of(nd_number number) {
    nd_auto nd_tensor *x = nd_scalar(number, ND_I64);
    int64_t value = 0;
    CHECK(nd_get_item_i64(x, &value) == ND_OK);
    return value;
}

// Numbers convert by themselves, each to its kind, and cross to C as its struct does.
static void numbers() {
    CHECK(made_of(INT64_MAX) == INT64_MAX && made_of(LLONG_MIN) == INT64_MIN);
    CHECK(made_of('x') == 'x' && made_of(true) == 1 && made_of(static_cast<short>(-3)) == -3);
    CHECK(made_of(2.5f) == 2 && made_of(-7.0L) == -7 && made_of(200u) == 200);
    CHECK(made_of(NEGATIVE) == -5 && made_of(scoped_enum::MOST) == 255);
    constexpr nd_number most = UINT64_MAX;
    static_assert(most.kind == ND_NUMBER_U64 && most.value.u64 == UINT64_MAX, "kept as it is");
    nd_number again = ND_NUMBER(ND_NUMBER(1.5));
    CHECK(again.kind == ND_NUMBER_F64 && again.value.f64 == 1.5);
    nd_number zero{};
    CHECK(zero.kind == ND_NUMBER_F64 && zero.value.f64 == 0);
    const int64_t odd = (int64_t(1) << 53) + 1;
    const size_t rows = 2;
    nd_auto nd_tensor *x = nd_full(ND_SHAPE(rows, 3), odd, ND_I64);
    nd_auto nd_tensor *y = nd_add_scalar(x, INT64_MAX - odd);
    nd_auto nd_tensor *counted = nd_arange(0, 6, 1, ND_I64);
    nd_auto nd_tensor *flat = nd_reshape(counted, ND_SHAPE(2, 3));
    nd_auto nd_tensor *mask = nd_less(flat, flat);
    CHECK(static_cast<const int64_t *>(nd_get_data(y))[5] == INT64_MAX);
    int evaluated = 0;
    CHECK(nd_fill_(x, ++evaluated) == ND_OK && evaluated == 1);
    CHECK(nd_mul_scalar_(x, odd) == ND_OK && nd_masked_fill_(x, mask, -1) == ND_OK);
    CHECK(nd_add_scalar_out(x, ++evaluated, x) == ND_OK && evaluated == 2);
    CHECK(nd_clip_out(x, -1, odd, x) == ND_OK && nd_maximum_out(x, x, x) == ND_OK);
    CHECK(static_cast<const int64_t *>(nd_get_data(x))[5] == odd);
    nd_tensor *(*function)(const nd_tensor *, nd_number) = nd_mul_scalar;
    nd_auto nd_tensor *half = function(x, 0.5);
    nd_auto nd_tensor *inside = nd_clip(x, 0, UINT64_MAX);
    nd_auto nd_tensor *masked = nd_masked_fill(inside, mask, 3);
    CHECK(nd_get_dtype(half) == ND_F32 && nd_get_dtype(masked) == ND_I64);
}

// With ND_TRACK_SITES objects remember this file, and nested calls their own lines.
static void sites() {
#ifdef ND_TRACK_SITES
    nd_auto nd_tensor *x = nd_add(nd_tmp(nd_ones(ND_SHAPE(1), ND_F32)), NULL);
    CHECK(x == nullptr);
    nd_error_clear();
    nd_auto nd_tensor *y = nd_ones(ND_SHAPE(1), ND_F32);
    char text[8192] = {};
    FILE *stream = fmemopen(text, sizeof(text) - 1, "w");
    nd_debug_holders(y, stream);
    fclose(stream);
    CHECK(strstr(text, "language.cc:"));
#endif
}

int main() {
    counts();
    shapes();
    scopes();
    blocks();
    modules();
    types();
    initialisers();
    numbers();
    ND_SCOPE {
        sites();
    }
    CHECK(nd_error_get_status() == ND_OK);
    CHECK(nd_manager_get_total_objects(NULL) == 0);
    return failures != 0;
}
