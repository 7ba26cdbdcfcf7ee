// Texts of numbers: what is read, what is refused and where, and exact round trips.
#include "tests/comma.h"
#include "tests/unit/io/files.h"
#include "tests/unit/io/memory.h"

#include <float.h>
#include <math.h>

static const char *write_text(const char *text) {
    const char *path = nd_test_path("text.csv");
    nd_test_write(path, text, strlen(text));
    return path;
}

/// The text gives these numbers as f64.
static void accept(const char *text, const nd_csv_options *options, int64_t rows, int64_t columns,
                   const double *numbers) {
    nd_auto nd_tensor *x = nd_load_csv(write_text(text), ND_F64, options);
    if (!x)
        fail_msg("%s", nd_error_get_message());
    assert_int_equal(nd_get_ndim(x), 2);
    assert_int_equal(nd_get_size(x, 0), rows);
    assert_int_equal(nd_get_size(x, 1), columns);
    const double *read = nd_get_data(x);
    for (int64_t i = 0; i < rows * columns; i++)
        assert_true(read[i] == numbers[i] || (isnan(read[i]) && isnan(numbers[i])));
}

static void refuse(const char *text, nd_dtype dtype, const nd_csv_options *options,
                   const char *fragment) {
    nd_tensor *x = nd_load_csv(write_text(text), dtype, options);
    if (x)
        fail_msg("accepted: %s", text);
    assert_non_null(strstr(nd_error_get_message(), "text.csv"));
    assert_failed(ND_ERROR_FORMAT, fragment);
}

static nd_csv_options separated(char separator) {
    nd_csv_options options = ND_CSV_OPTIONS_INIT;
    options.separator = separator;
    return options;
}

static void test_lines_fields_and_numbers(void **state) {
    (void)state;
    accept("1,2.5,-3e-4\n.5,+4.,1E2\n", NULL, 2, 3, (double[]){1, 2.5, -3e-4, .5, 4, 100});
    accept("1,2\r\n3,4", NULL, 2, 2, (double[]){1, 2, 3, 4});
    accept("\xef\xbb\xbf 1 ,\t2 \n\n  \n\r\n3,4\n\n", NULL, 2, 2, (double[]){1, 2, 3, 4});
    accept("inf,-INF\nInfinity,nan\n1e999,-NaN", NULL, 3, 2,
           (double[]){HUGE_VAL, -HUGE_VAL, HUGE_VAL, (double)NAN, HUGE_VAL, (double)NAN});
    accept("7", NULL, 1, 1, (double[]){7});
    accept("", NULL, 0, 0, NULL);
    accept("\n \n", NULL, 0, 0, NULL);
    nd_csv_options options = separated(';');
    accept("1;2\n3;4", &options, 2, 2, (double[]){1, 2, 3, 4});
    options = separated('\t');
    accept("1\t2\n 3\t4 ", &options, 2, 2, (double[]){1, 2, 3, 4});
    options = separated(' ');
    accept("  1   2 \n3\t 4\n", &options, 2, 2, (double[]){1, 2, 3, 4});
}

/// A line that a separator divides is a row, whatever the separator and wherever the line is; only
/// a space divides nothing where there are no numbers.
static void test_a_line_of_separators_is_a_row(void **state) {
    (void)state;
    static const char separators[] = {',', ';', '\t'};
    static const char *const before[] = {"1%c2\n", "1%c2\r\n", "", " \n", "\r\n"};
    static const char *const after[] = {"\n3%c4\n", "\r\n3%c4\r\n", "", "\n", "\r\n \n", "\r"};
    const double nan = (double)NAN;
    for (size_t i = 0; i < sizeof separators; i++)
        for (size_t b = 0; b < sizeof before / sizeof *before; b++)
            for (size_t a = 0; a < sizeof after / sizeof *after; a++) {
                char form[40], text[40];
                nd_csv_options options = separated(separators[i]);
                snprintf(form, sizeof form, "%s%%c%s", before[b], after[a]);
                snprintf(text, sizeof text, form, separators[i], separators[i], separators[i]);
                refuse(text, ND_F64, &options, "'' stands where a number is missing");
                refuse(text, ND_I32, &options, "column 1 of");
                options.missing = true;
                const double all[] = {1, 2, nan, nan, 3, 4};
                accept(text, &options, 1 + (b < 2) + (a < 2), 2, b < 2 ? all : all + 2);
            }
    nd_csv_options options = separated('\t');
    refuse("1\t2\n\t\t\n", ND_F64, &options, "line 2 of");
    refuse("1\t2\n3\n", ND_F64, &options, "line 2 of");
    accept("1\t2\n  \n3\t4\n", &options, 2, 2, (double[]){1, 2, 3, 4});
    refuse("\"\"\t\"\"\n", ND_F64, &options, "is no number");
    options.missing = true;
    accept(" \t \t \n", &options, 1, 3, (double[]){nan, nan, nan});
    options.separator = ' ';
    accept("1 2\n \t \n3 4\n ", &options, 2, 2, (double[]){1, 2, 3, 4});
}

static void test_lines_left_out_and_numbers_missing(void **state) {
    (void)state;
    nd_csv_options options = ND_CSV_OPTIONS_INIT;
    options.skip = 2;
    accept("name,other\nx\n1,2\n", &options, 1, 2, (double[]){1, 2});
    options.skip = 9;
    accept("name,other\nx\n1,2\n", &options, 0, 0, NULL);
    options.skip = 0;
    options.missing = true;
    accept("1,,3\n , ,\n,5,6", &options, 3, 3,
           (double[]){1, (double)NAN, 3, (double)NAN, (double)NAN, (double)NAN, (double)NAN, 5, 6});
    refuse("1,,3\n", ND_F64, NULL, "line 1, column 2 of");
    refuse("1,2\n3,\n", ND_F32, NULL, "line 2, column 2 of");
    refuse("1,2\n3,\n", ND_I32, &options, "a number is missing");
}

static void test_F25_what_is_no_number(void **state) {
    (void)state;
    static const char *const fields[] = {"x",   "1x",    "0x10",  "1e",   "1e+",  "--1",
                                         "1 2", "\"1\"", "nan()", "infx", "1,5.", "1_0",
                                         ".",   "e5",    "+",     "in"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char text[40];
        snprintf(text, sizeof text, "1;2\n3;%s\n", fields[i]);
        nd_csv_options options = separated(';');
        refuse(text, ND_F64, &options, "line 2, column 2 of");
        refuse(text, ND_F32, &options, "is no number");
        refuse(text, ND_I64, &options, "is no integer");
    }
    const char *path = nd_test_path("text.csv");
    nd_test_write(path, "1,2\0,3\n", 7);
    assert_null(nd_load_csv(path, ND_F64, NULL));
    assert_failed(ND_ERROR_FORMAT, "line 1, column 2");
    refuse("1,2\n\n3\n", ND_F64, NULL, "line 3 of");
    refuse("1,2\n3,4,5\n", ND_F64, NULL, "has 3 fields, those before have 2");
    refuse("1.0\n", ND_I64, NULL, "is no integer");
}

static void test_F48_messages_quote_what_is_printable(void **state) {
    (void)state;
    const char *path = nd_test_path("text.csv");
    nd_test_write(path, "1,\0\x1b]0;x\a\xff\n", 11);
    assert_null(nd_load_csv(path, ND_F64, NULL));
    assert_failed(ND_ERROR_FORMAT, ": '\\x00\\x1b]0;x\\x07\\xff' is no number");
    nd_test_write(path, "1,\0\x1b]0;x\a\xff\n", 11);
    assert_null(nd_load_csv(path, ND_I8, NULL));
    assert_failed(ND_ERROR_FORMAT, ": '\\x00\\x1b]0;x\\x07\\xff' is no integer");
    refuse("123456789.123456789.123456789.123456789.1\n", ND_F64, NULL,
           ": '123456789.123456789.123456789.123456789....' is no number");
}

static void test_integers_of_every_dtype(void **state) {
    (void)state;
    static const struct {
        nd_dtype dtype;
        const char *least, *most, *less, *more;
    } cases[] = {
        {ND_I8, "-128", "127", "-129", "128"},
        {ND_U8, "-0", "255", "-1", "256"},
        {ND_I16, "-32768", "32767", "-32769", "32768"},
        {ND_U16, "0", "+65535", "-1", "65536"},
        {ND_I32, "-2147483648", "2147483647", "-2147483649", "2147483648"},
        {ND_U32, "0", "4294967295", "-1", "4294967296"},
        {ND_I64, "-9223372036854775808", "9223372036854775807", "-9223372036854775809",
         "9223372036854775808"},
        {ND_U64, "0", "18446744073709551615", "-1", "18446744073709551616"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[100];
        snprintf(text, sizeof text, "%s,%s\n", cases[i].least, cases[i].most);
        nd_auto nd_tensor *x = nd_load_csv(write_text(text), cases[i].dtype, NULL);
        assert_handle(x);
        const char *path = nd_test_path("integers.csv");
        assert_ok(nd_save_csv(path, x, NULL));
        nd_auto nd_tensor *again = nd_load_csv(path, cases[i].dtype, NULL);
        assert_memory_equal(nd_get_data(again), nd_get_data(x),
                            2 * nd_dtype_get_size(cases[i].dtype));
        size_t bytes;
        char *content = nd_test_read(path, &bytes);
        assert_true(strncmp(content, strcmp(cases[i].least, "-0") ? cases[i].least : "0",
                            strcspn(content, ",")) == 0);
        free(content);
        snprintf(text, sizeof text, "%s", cases[i].less);
        refuse(text, cases[i].dtype, NULL, "does not fit the dtype");
        snprintf(text, sizeof text, "%s", cases[i].more);
        refuse(text, cases[i].dtype, NULL, "does not fit the dtype");
    }
}

/// Random bits of floats come back as they were.
static void test_floats_come_back_exactly(void **state) {
    (void)state;
    enum { ROWS = 500, COLUMNS = 4 };
    const char *path = nd_test_path("floats.csv");
    static double wide[ROWS * COLUMNS];
    static float narrow[ROWS * COLUMNS];
    uint64_t bits = 88172645463325252u;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        memcpy(&wide[i], &bits, 8);
        memcpy(&narrow[i], &bits, 4);
        wide[i] = isnan(wide[i]) ? 0.1 : wide[i];
        narrow[i] = isnan(narrow[i]) ? 0.1f : narrow[i];
    }
    const double special[] = {0, -0.0, DBL_MAX, DBL_MIN, 0x1p-1074, HUGE_VAL, 1.0 / 3};
    memcpy(wide, special, sizeof special);
    nd_auto nd_tensor *x = nd_from_data(wide, 2, (int64_t[]){ROWS, COLUMNS}, ND_F64);
    nd_auto nd_tensor *y = nd_from_data(narrow, 2, (int64_t[]){ROWS, COLUMNS}, ND_F32);
    assert_ok(nd_save_csv(path, x, NULL));
    nd_auto nd_tensor *read = nd_load_csv(path, ND_F64, NULL);
    assert_memory_equal(nd_get_data(read), wide, sizeof wide);
    assert_ok(nd_save_csv(path, y, NULL));
    nd_auto nd_tensor *read_narrow = nd_load_csv(path, ND_F32, NULL);
    assert_memory_equal(nd_get_data(read_narrow), narrow, sizeof narrow);
}

static void test_what_is_written(void **state) {
    (void)state;
    const char *path = nd_test_path("written.csv");
    nd_auto nd_tensor *x = nd_from_data((double[]){0.1, -2, 1e300, (double)NAN, -0.0, HUGE_VAL}, 2,
                                        (int64_t[]){2, 3}, ND_F64);
    nd_auto nd_tensor *turned = nd_transpose(x, 0, 1);
    nd_csv_options options = separated(';');
    assert_ok(nd_save_csv(path, turned, &options));
    size_t bytes;
    char *content = nd_test_read(path, &bytes);
    assert_string_equal(content, "0.1;nan\n-2;-0\n1e+300;inf\n");
    free(content);
    static const nd_dtype dtypes[] = {ND_BOOL, ND_F16, ND_BF16};
    for (int i = 0; i < 3; i++) {
        nd_auto nd_tensor *numbers = nd_arange(0, 2, 1, ND_F32);
        nd_auto nd_tensor *narrow = nd_cast(numbers, dtypes[i]);
        assert_ok(nd_save_csv(path, narrow, NULL));
        content = nd_test_read(path, &bytes);
        assert_string_equal(content, "0\n1\n");
        free(content);
    }
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(0, 3), ND_F32);
    assert_ok(nd_save_csv(path, none, NULL));
    nd_auto nd_tensor *read = nd_load_csv(path, ND_F32, NULL);
    assert_int_equal(nd_get_numel(read), 0);
}

/// In a locale whose decimal point is a comma.
static void test_the_locale_is_that_of_the_file(void **state) {
    (void)state;
    if (!nd_test_comma_begin())
        return;
    const char *path = nd_test_path("locale.csv");
    nd_auto nd_tensor *x = nd_from_data((float[]){0.5f, 1.25f}, 2, (int64_t[]){1, 2}, ND_F32);
    assert_ok(nd_save_csv(path, x, NULL));
    nd_auto nd_tensor *read = nd_load_csv(path, ND_F32, NULL);
    char text[16];
    snprintf(text, sizeof text, "%.1f", 0.5);
    nd_test_comma_end();
    assert_string_equal(text, "0,5"); // the program's locale is as it was
    size_t bytes;
    char *content = nd_test_read(path, &bytes);
    assert_string_equal(content, "0.5,1.25\n");
    free(content);
    assert_memory_equal(nd_get_data(read), nd_get_data(x), 8);
}

static void test_F25_texts_cost_a_multiple_of_their_size(void **state) {
    (void)state;
    enum { FIELDS = 200000 };
    char *text = malloc(2 * FIELDS + 1);
    for (int i = 0; i < FIELDS; i++)
        memcpy(text + 2 * i, i % 2 ? "1\n" : "1,", 2);
    text[2 * FIELDS] = 0;
    const char *path = write_text(text);
    reset_memory();
    nd_auto nd_tensor *x = nd_load_csv(path, ND_F64, NULL);
    assert_true(stop_memory() < MEMORY_MAX(2 * FIELDS));
    assert_int_equal(nd_get_numel(x), FIELDS);
    free(text);
}

static void test_F24_files_that_are_not_there_or_full(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(20000), ND_F32);
    assert_null(nd_load_csv(nd_test_path("missing.csv"), ND_F32, NULL));
    assert_failed(ND_ERROR_IO, "No such file");
    assert_int_equal(nd_save_csv("/dev/full", x, NULL), ND_ERROR_IO);
    assert_failed(ND_ERROR_IO, "No space left");
}

static void test_F30_bad_arguments(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1), ND_F32);
    nd_auto nd_tensor *scalar = nd_scalar(1, ND_F32);
    nd_auto nd_tensor *cube = nd_ones(ND_SHAPE(1, 1, 1), ND_F32);
    const char *path = nd_test_path("never.csv");
    assert_null(nd_load_csv(NULL, ND_F32, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "path is NULL");
    static const nd_dtype dtypes[] = {ND_BOOL, ND_F16, ND_BF16, (nd_dtype)99};
    for (int i = 0; i < 4; i++) {
        assert_null(nd_load_csv(path, dtypes[i], NULL));
        assert_failed(ND_ERROR_DTYPE, "numbers are read as f32, f64 or integers");
    }
    static const char separators[] = "1aE.+-\n\r\"'(\x7f\x80";
    for (size_t i = 0; i + 1 < sizeof separators; i++) {
        nd_csv_options options = separated(separators[i]);
        assert_null(nd_load_csv(path, ND_F32, &options));
        assert_failed(ND_ERROR_INVALID_ARGUMENT, "cannot separate numbers");
    }
    assert_null(nd_load_csv(path, ND_F32, &(nd_csv_options){.size = 0}));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "ND_CSV_OPTIONS_INIT");
    assert_int_not_equal(nd_save_csv(NULL, x, NULL), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "path is NULL");
    assert_int_not_equal(nd_save_csv(path, NULL, NULL), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "is NULL");
    assert_int_not_equal(nd_save_csv(path, scalar, NULL), ND_OK);
    assert_failed(ND_ERROR_SHAPE, "a tensor of 0 dimensions");
    assert_int_not_equal(nd_save_csv(path, cube, NULL), ND_OK);
    assert_failed(ND_ERROR_SHAPE, "a tensor of 3 dimensions");
    assert_int_not_equal(access(path, F_OK), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_lines_fields_and_numbers),
        ND_TEST(test_a_line_of_separators_is_a_row),
        ND_TEST(test_lines_left_out_and_numbers_missing),
        ND_TEST(test_F25_what_is_no_number),
        ND_TEST(test_F48_messages_quote_what_is_printable),
        ND_TEST(test_integers_of_every_dtype),
        ND_TEST(test_floats_come_back_exactly),
        ND_TEST(test_what_is_written),
        ND_TEST(test_the_locale_is_that_of_the_file),
        ND_TEST(test_F25_texts_cost_a_multiple_of_their_size),
        ND_TEST(test_F24_files_that_are_not_there_or_full),
        ND_TEST(test_F30_bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
