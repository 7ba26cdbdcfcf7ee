// Callbacks behind queued work: a staging buffer lives until the device has passed it.
#include <nd/nd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static void free_staging(void *pointer, size_t bytes) {
    printf("freed %d bytes\n", (int)bytes);
    free(pointer);
}

/// On a thread of the device's driver: nothing but retain, release and the program's own business.
static void sent(void *data) {
    atomic_fetch_add((atomic_int *)data, 1);
}

int main(void) {
    // Where there is a GPU, there; the CPU queues nothing, so it calls at once.
    nd_device device = {nd_get_device_count(ND_CUDA) ? ND_CUDA : ND_CPU, 0};
    static const nd_resource_callbacks callbacks = {
        .size = sizeof callbacks, .version = 1, .free = free_staging};
    atomic_int count = 0;
    for (int batch = 0; batch < 2; batch++) {
        void *memory = malloc(4096);
        nd_resource *staging = nd_resource_new("staging", memory, 4096, &callbacks);
        if (!staging)
            free(memory);
        // ... work that uses it is queued here ...
        nd_queue_callback(device, sent, &count, staging); // borrowed; kept until `sent` returned
        nd_release(staging);
    }
    nd_synchronize(device); // what was released in callbacks is destroyed here at the latest
    printf("sent %d, %d objects left; %s\n", atomic_load(&count),
           (int)nd_manager_get_total_objects(NULL), nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
