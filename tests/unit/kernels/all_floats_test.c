// Every float there is through every function of one operand, in the best instruction set of this
// machine, against the math library in double. Some minutes for each function: on demand.
//
//     ./bazelw test //tests/unit/kernels:all_floats_test --test_arg=sin --test_arg=cos
//
// Without arguments: all functions.
#include "tests/unit/kernels/ulps.h"
#include <string.h>

enum { BLOCK = 1 << 16 };

static int narguments;
static char **arguments;

static bool is_asked_for(const char *name) {
    for (int i = 1; i < narguments; i++)
        if (strcmp(arguments[i], name) == 0)
            return true;
    return narguments <= 1;
}

static void check_all_floats(const promise *promise) {
    static float x[BLOCK], y[BLOCK];
    double worst = 0;
    for (uint64_t begin = 0; begin < UINT64_C(0x100000000); begin += BLOCK) {
        for (uint32_t i = 0; i < BLOCK; i++) {
            uint32_t bits = (uint32_t)begin + i;
            memcpy(&x[i], &bits, sizeof bits);
        }
        run_dense(promise->op, ND_F32, BLOCK, y, x, NULL);
        for (uint32_t i = 0; i < BLOCK; i++) {
            double exact = promise->one_f64((double)x[i]);
            if ((double)y[i] == exact && exact != 0)
                continue;
            double error = ulps_between((double)y[i], exact, ND_F32);
            worst = error > worst ? error : worst;
            if (!(error <= promise->f32))
                fail_msg("%s(%a) gives %a, not %a: %g ulps", promise->name, (double)x[i],
                         (double)y[i], exact, error);
        }
    }
    printf("%s: at most %.3f ulps\n", promise->name, worst);
}

static void test_all_floats(void **unused) {
    (void)unused;
    for (size_t p = 0; p < COUNT_OF(promises); p++)
        if (promises[p].one_f64 && is_asked_for(promises[p].name))
            check_all_floats(&promises[p]);
}

int main(int argc, char **argv) {
    narguments = argc;
    arguments = argv;
    const struct CMUnitTest tests[] = {ND_TEST(test_all_floats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
