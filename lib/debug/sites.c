// Creation sites.
#include "lib/object/object.h"
#include <inttypes.h>
#include <nd/debug.h>
#include <stdio.h>

void nd_debug_track_sites(bool on) {
    nd__object_sites_enabled = on;
}

const char *nd_debug_get_site(const void *handle, char *buffer, size_t size) {
    if (!buffer || size == 0)
        return "";
    buffer[0] = '\0';
    const nd_object *object = handle;
    if (object && object->site)
        snprintf(buffer, size, "%s:%" PRIu32, object->site->file, object->site->line);
    return buffer;
}
