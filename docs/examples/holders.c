// Managers: what a piece of work may use, what it used, and what escaped from it, with the lines.
#define ND_TRACK_SITES
#include <nd/nd.h>
#include <stdio.h>

int main(void) {
    nd_manager *request = nd_manager_new(NULL, "request");
    nd_manager_set_quota(request, ND_CPU, 8 << 20);
    nd_tensor *kept = NULL;
    nd_with_manager(request) {
        nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1024, 256), ND_F32);
        kept = nd_mul_scalar(x, 2.0); // somebody forgets this one
        nd_auto nd_tensor *large = nd_zeros(ND_SHAPE(4096, 4096), ND_F32);
        if (!large)
            printf("%s: %s\n", nd_status_get_name(nd_error_get_status()), nd_error_get_message());
    }
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    nd_manager_close(request, &report);
    nd_release(request);
    printf("escaped: %d objects, %d bytes, made at %s\n", (int)report.escaped_objects,
           (int)report.escaped_bytes, report.escaped_sites[0]);
    nd_debug_dump(NULL, stdout);
    nd_release(kept);
    return 0;
}
