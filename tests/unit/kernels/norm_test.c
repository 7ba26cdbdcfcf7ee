// Layer, group and batch norm and their gradients against long doubles, in every instruction set that
// the machine has: of numbers around 30, whose variance is small beside them.
#include "kernels/cpu/cpu.h"
#include "tests/testing.h"
#include <math.h>
#include <stdlib.h>

static const char *const isas[] = {"baseline", "x86_64_v3", "x86_64_v4"};

typedef struct norm_case {
    int64_t samples, channels, places, groups;
    bool weighted, centered;
    nd_dtype dtype;
} norm_case;

static const norm_case cases[] = {
    {1, 1, 7, 1, false, true, ND_F32},    {33, 100, 1, 1, true, true, ND_F32},
    {5, 1000, 1, 1, true, false, ND_F64}, {300, 8, 1, 2, true, true, ND_F64},
    {3, 6, 35, 2, true, true, ND_F32},    {70, 4, 9, 4, false, true, ND_F64},
    {9, 300, 1, 0, true, true, ND_F32},   {40, 17, 1, 0, false, true, ND_F64},
    {4, 5, 77, 0, true, true, ND_F32},    {6, 3, 2, 0, true, true, ND_F64},
    {40, 1037, 1, 1, true, true, ND_F32}, {40, 1037, 1, 1, false, true, ND_F64},
    {7, 3, 1, 1, true, true, ND_F32},     {5, 16, 1, 1, false, false, ND_F32},
    {3, 17, 1, 1, true, true, ND_F64},    {2, 1, 1, 1, true, true, ND_F32},
};

enum { X, GRAD, WEIGHT, BIAS, OUT, STATISTICS, GIVEN, ARRAYS };

/// A case's arrays in its dtype, and what they must be.
typedef struct norm_data {
    const norm_case *of;
    int64_t numbers, sets, size[ARRAYS];
    void *array[ARRAYS];
    long double *y, *dx, *sums, *mean, *variance;
} norm_data;

static long double get(const norm_data *data, int array, int64_t at) {
    return data->of->dtype == ND_F64 ? (long double)((double *)data->array[array])[at]
                                     : (long double)((float *)data->array[array])[at];
}

static void put(const norm_data *data, int array, int64_t at, double value) {
    if (data->of->dtype == ND_F64)
        ((double *)data->array[array])[at] = value;
    else
        ((float *)data->array[array])[at] = (float)value;
}

static double random_part(void) {
    static uint64_t state = UINT64_C(0x9E3779B97F4A7C15);
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(int32_t)state * 0x1p-31;
}

static int64_t channel_of(const norm_case *of, int64_t at) {
    return at / of->places % of->channels;
}

static int64_t set_of(const norm_case *of, int64_t at) {
    int64_t channel = channel_of(of, at), sample = at / (of->channels * of->places);
    return of->groups ? sample * of->groups + channel / (of->channels / of->groups) : channel;
}

static long double weight_at(const norm_data *data, int64_t at) {
    return data->of->weighted ? get(data, WEIGHT, channel_of(data->of, at)) : 1.0L;
}

static void make_data(norm_data *data, const norm_case *of) {
    *data = (norm_data){.of = of, .numbers = of->samples * of->channels * of->places};
    data->sets = of->groups ? of->samples * of->groups : of->channels;
    const int64_t size[] = {
        data->numbers,   data->numbers, of->channels,
        of->channels,    data->numbers, 2 * (data->sets > of->channels ? data->sets : of->channels),
        2 * of->channels};
    for (int array = 0; array < ARRAYS; array++) {
        data->size[array] = size[array];
        data->array[array] = calloc((size_t)size[array], sizeof(double));
        for (int64_t i = 0; i < size[array]; i++)
            put(data, array, i, array == X ? 30.0 + random_part() : random_part() + 0.2);
    }
    data->y = calloc((size_t)data->numbers, sizeof(long double));
    data->dx = calloc((size_t)data->numbers, sizeof(long double));
    data->sums = calloc((size_t)(2 * of->channels), sizeof(long double));
    data->mean = calloc((size_t)data->sets, sizeof(long double));
    data->variance = calloc((size_t)data->sets, sizeof(long double));
}

static void free_data(norm_data *data) {
    for (int array = 0; array < ARRAYS; array++)
        free(data->array[array]);
    free(data->y);
    free(data->dx);
    free(data->sums);
    free(data->mean);
    free(data->variance);
}

/// Everything as it is defined.
static void expect(norm_data *data) {
    const norm_case *of = data->of;
    long double n = (long double)data->numbers / (long double)data->sets;
    long double *plain = calloc((size_t)data->sets, sizeof *plain);
    long double *along = calloc((size_t)data->sets, sizeof *along);
    for (int64_t i = 0; of->centered && i < data->numbers; i++)
        data->mean[set_of(of, i)] += get(data, X, i) / n;
    for (int64_t i = 0; i < data->numbers; i++) {
        long double away = get(data, X, i) - data->mean[set_of(of, i)];
        data->variance[set_of(of, i)] += away * away / n;
    }
    for (int64_t i = 0; i < data->numbers; i++) {
        int64_t set = set_of(of, i), channel = channel_of(of, i);
        long double normal =
            (get(data, X, i) - data->mean[set]) / sqrtl(data->variance[set] + 1e-3L);
        long double g = get(data, GRAD, i), w = g * weight_at(data, i);
        data->y[i] = normal * weight_at(data, i) + (of->weighted ? get(data, BIAS, channel) : 0);
        data->sums[channel] += g * normal;
        data->sums[of->channels + channel] += g;
        plain[set] += w / n;
        along[set] += w * normal / n;
    }
    for (int64_t i = 0; i < data->numbers; i++) {
        int64_t set = set_of(of, i);
        long double deviation = sqrtl(data->variance[set] + 1e-3L);
        long double normal = (get(data, X, i) - data->mean[set]) / deviation;
        long double w = get(data, GRAD, i) * weight_at(data, i);
        data->dx[i] = (w - (of->centered ? plain[set] : 0) - normal * along[set]) / deviation;
    }
    free(plain);
    free(along);
}

static void assert_array(const norm_data *data, const char *what, int array, int64_t first,
                         int64_t count, const long double *expected) {
    double allowed = data->of->dtype == ND_F64 ? 1e-12 : 1e-4;
    for (int64_t i = 0; i < count; i++) {
        long double got = get(data, array, first + i);
        if (!(fabsl(got - expected[i]) <= (long double)allowed * fmaxl(1.0L, fabsl(expected[i]))))
            fail_msg("%s, case %d: %s %d is %.17Lg, not %.17Lg", nd__cpu_isa(),
                     (int)(data->of - cases), what, (int)i, got, expected[i]);
    }
}

static void launch_with(const norm_data *data, nd_op op, int count, const int *arrays) {
    const norm_case *of = data->of;
    nd_kernel_call call = {.op = op, .noperands = count};
    for (int i = 0; i < count; i++) {
        call.operand[i].dtype = of->dtype;
        if (arrays[i] >= 0)
            call.operand[i].data = data->array[arrays[i]];
    }
    call.attrs = (nd_op_attrs){
        .f = {1e-3}, .i = {of->samples, of->channels, of->places, of->groups, of->centered}};
    assert_int_equal(nd__cpu_launch(&call), ND_OK);
}

static void launch(const norm_data *data, nd_op op, const int *arrays) {
    launch_with(data, op, 5, arrays);
}

static void check_forward(const norm_data *data) {
    int weight = data->of->weighted ? WEIGHT : -1, bias = data->of->weighted ? BIAS : -1;
    launch(data, ND_OP_layer_norm, (const int[]){OUT, STATISTICS, X, weight, bias});
    assert_array(data, "result", OUT, 0, data->numbers, data->y);
    assert_array(data, "mean", STATISTICS, 0, data->sets, data->mean);
    assert_array(data, "variance", STATISTICS, data->sets, data->sets, data->variance);
    if (data->of->groups == 0) { // and the same with these statistics given
        launch(data, ND_OP_channel_norm, (const int[]){OUT, X, weight, STATISTICS, bias});
        assert_array(data, "result with statistics", OUT, 0, data->numbers, data->y);
    }
    launch(data, ND_OP_layer_norm, (const int[]){OUT, -1, X, weight, bias});
    assert_array(data, "result alone", OUT, 0, data->numbers, data->y);
}

static void check_backward(const norm_data *data) {
    int weight = data->of->weighted ? WEIGHT : -1;
    for (int way = 0; way < 3; way++) {
        for (int64_t i = 0; i < data->numbers; i++)
            put(data, OUT, i, (double)NAN);
        launch(data, ND_OP_layer_norm_grad,
               (const int[]){way == 2 ? -1 : OUT, way == 1 ? -1 : STATISTICS, GRAD, X, weight});
        if (way != 2)
            assert_array(data, "gradient", OUT, 0, data->numbers, data->dx);
        if (way != 1)
            assert_array(data, "sum", STATISTICS, 0, 2 * data->of->channels, data->sums);
    }
}

/// dx = g w / deviation, and the sums of g (x - mean) / deviation and of g, of statistics that x does
/// not have.
static void expect_given(norm_data *data) {
    const norm_case *of = data->of;
    for (int64_t i = 0; i < 2 * of->channels; i++) {
        put(data, GIVEN, i, i < of->channels ? 30.1 + random_part() : 1.2 + random_part());
        data->sums[i] = 0;
    }
    for (int64_t i = 0; i < data->numbers; i++) {
        int64_t channel = channel_of(of, i);
        long double g = get(data, GRAD, i), away = get(data, X, i) - get(data, GIVEN, channel);
        long double deviation = sqrtl(get(data, GIVEN, of->channels + channel) + 1e-3L);
        data->dx[i] = g * weight_at(data, i) / deviation;
        data->sums[channel] += g * away / deviation;
        data->sums[of->channels + channel] += g;
    }
}

static void check_given(const norm_data *data) {
    int weight = data->of->weighted ? WEIGHT : -1;
    for (int way = 0; way < 3; way++) {
        for (int64_t i = 0; i < data->numbers; i++)
            put(data, OUT, i, (double)NAN);
        for (int64_t i = 0; i < 2 * data->of->channels; i++)
            put(data, STATISTICS, i, (double)NAN);
        launch_with(
            data, ND_OP_channel_norm_grad, 6,
            (const int[]){way == 2 ? -1 : OUT, way == 1 ? -1 : STATISTICS, GRAD, X, weight, GIVEN});
        if (way != 2)
            assert_array(data, "gradient with statistics", OUT, 0, data->numbers, data->dx);
        if (way != 1)
            assert_array(data, "sum with statistics", STATISTICS, 0, 2 * data->of->channels,
                         data->sums);
    }
}

static void in_every_isa(const norm_data *data, void (*check)(const norm_data *)) {
    for (size_t isa = 0; isa < sizeof isas / sizeof *isas; isa++)
        if (nd__cpu_use_isa(isas[isa]))
            check(data);
}

static void test_norms_as_defined(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        norm_data data;
        make_data(&data, &cases[i]);
        expect(&data);
        in_every_isa(&data, check_forward);
        in_every_isa(&data, check_backward);
        expect_given(&data);
        in_every_isa(&data, check_given);
        free_data(&data);
    }
    nd__cpu_use_isa(NULL);
}

/// A set with NaN or infinity in it is NaN, and no other; equal numbers have a variance of 0.
static void test_norms_of_special_values(void **state) {
    (void)state;
    float x[] = {1,    2,    (float)NAN, 4,   (float)INFINITY, 1, 2, 3, 1, 2, 3, 4, 5, 6,
                 0.1f, 0.1f, 0.1f,       0.1f};
    float y[18], statistics[12];
    nd_kernel_call call = {.op = ND_OP_layer_norm, .noperands = 5};
    void *const data[] = {y, statistics, x, NULL, NULL};
    for (int i = 0; i < 5; i++)
        call.operand[i] = (nd_operand){.data = data[i], .dtype = ND_F32};
    call.attrs = (nd_op_attrs){.f = {1e-5}, .i = {6, 3, 1, 1, 1}};
    for (size_t isa = 0; isa < sizeof isas / sizeof *isas; isa++) {
        if (!nd__cpu_use_isa(isas[isa]))
            continue;
        assert_int_equal(nd__cpu_launch(&call), ND_OK);
        for (int i = 0; i < 18; i++)
            assert_int_equal(isnan(y[i]) != 0, i < 6);
        assert_true(y[15] == 0.0f && statistics[5] == 0.1f && statistics[11] == 0.0f);
    }
    nd__cpu_use_isa(NULL);
}

/// The gradients of a set with NaN or infinity in it are NaN, and of no other one; so are those of all
/// weights, and of no bias.
static void test_gradients_of_special_values(void **state) {
    (void)state;
    enum { SETS = 5, NUMBERS = 37 };
    float x[SETS * NUMBERS], grad[SETS * NUMBERS], weight[NUMBERS], out[SETS * NUMBERS];
    float sums[2 * NUMBERS];
    for (int i = 0; i < SETS * NUMBERS; i++) {
        x[i] = (float)random_part();
        grad[i] = (float)random_part();
        weight[i % NUMBERS] = (float)random_part();
    }
    x[1 * NUMBERS + 20] = (float)NAN;
    x[3 * NUMBERS + 36] = (float)INFINITY;
    nd_kernel_call call = {.op = ND_OP_layer_norm_grad, .noperands = 5};
    void *const data[] = {out, sums, grad, x, weight};
    for (int i = 0; i < 5; i++)
        call.operand[i] = (nd_operand){.data = data[i], .dtype = ND_F32};
    call.attrs = (nd_op_attrs){.f = {1e-5}, .i = {SETS, NUMBERS, 1, 1, 1}};
    for (size_t isa = 0; isa < sizeof isas / sizeof *isas; isa++) {
        if (!nd__cpu_use_isa(isas[isa]))
            continue;
        assert_int_equal(nd__cpu_launch(&call), ND_OK);
        for (int i = 0; i < SETS * NUMBERS; i++)
            assert_int_equal(isnan(out[i]) != 0, i / NUMBERS == 1 || i / NUMBERS == 3);
        for (int i = 0; i < 2 * NUMBERS; i++)
            assert_int_equal(isnan(sums[i]) != 0, i < NUMBERS);
    }
    nd__cpu_use_isa(NULL);
}

/// Of no sample the sums are 0.
static void test_sums_of_nothing(void **state) {
    (void)state;
    float weight[3] = {1, 2, 3}, sums[6] = {1, 1, 1, 1, 1, 1}, nothing[1];
    nd_kernel_call call = {.op = ND_OP_layer_norm_grad, .noperands = 5};
    void *const data[] = {nothing, sums, nothing, nothing, weight};
    for (int i = 0; i < 5; i++)
        call.operand[i] = (nd_operand){.data = data[i], .dtype = ND_F32};
    call.attrs = (nd_op_attrs){.f = {1e-5}, .i = {0, 3, 1, 1, 1}};
    assert_int_equal(nd__cpu_launch(&call), ND_OK);
    for (int i = 0; i < 6; i++)
        assert_true(sums[i] == 0.0f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_norms_as_defined),
        ND_TEST(test_norms_of_special_values),
        ND_TEST(test_gradients_of_special_values),
        ND_TEST(test_sums_of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
