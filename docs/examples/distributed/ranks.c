// Ten lines on several processes: docs/distributed.md.
#include <nd/distributed.h>
#include <nd/nd.h>

int main(void) {
    nd_auto nd_communicator *world = nd_communicator_from_world(NULL);
    nd_auto nd_tensor *x = nd_full(ND_SHAPE(3), nd_communicator_get_rank(world) + 1, ND_F32);
    nd_auto nd_tensor *sum = nd_all_reduce(x, world, ND_COLLECTIVE_SUM);
    if (!sum)
        return fprintf(stderr, "%s\n", nd_error_get_message()), 1;
    return nd_communicator_get_rank(world) == 0 && nd_print(sum, stdout) != ND_OK;
}
