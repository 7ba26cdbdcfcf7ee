#include <nd/nd.h>
#include <stdio.h>

int main(void) {
    nd_gc_set_mode(ND_GC_ON); // or ND_GC=on in the environment
    for (int step = 0; step < 3; step++) {
        nd_manager *manager = nd_manager_new(NULL, "step");
        nd_with_manager(manager) {
            nd_auto nd_tensor *w = nd_randn(nd_key_new(7), ND_SHAPE(512, 512), ND_F32);
            nd_set_requires_grad(w, true);
            nd_auto nd_tensor *y = nd_tanh(w);
            nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
            nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
            options.create_graph = true;
            nd_backward(loss, &options); // w -> its gradient -> the graph -> w: a cycle
        }
        nd_close_report report = ND_CLOSE_REPORT_INIT;
        nd_manager_close(manager, &report); // the boundary
        nd_release(manager);
        printf("step %d: %d objects, %.1f MiB collected, %d escaped\n", step,
               (int)report.collected_objects, (double)report.collected_bytes / 1048576,
               (int)report.escaped_objects);
    }
    printf("%d objects left; %s\n", (int)nd_manager_get_total_objects(NULL),
           nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
