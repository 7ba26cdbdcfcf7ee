// What a program with rights of its own does with its caller's environment: prints the collector's
// mode, and leaves a trace and a leak report where the library was asked for them.
#include <nd/nd.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <unistd.h>

int main(void) {
    nd_tensor *x = nd_ones(ND_SHAPE(64, 64), ND_F32), *y = nd_matmul(x, x);
    printf("secure %lu, user %u, mode %s\n", getauxval(AT_SECURE), (unsigned)geteuid(),
           nd_gc_get_mode() == ND_GC_OFF ? "off" : "on");
    nd_release(x);
    nd_release(y);
    return 0;
}
