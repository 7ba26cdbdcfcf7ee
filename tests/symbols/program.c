// Any program with the library linked statically (protection_test.sh).
#include <nd/nd.h>

int main(void) {
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(16), ND_F32);
    return x ? 0 : 1;
}
