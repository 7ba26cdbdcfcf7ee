// Writes the files.
#include "bench/workloads/hand_over.h"

#include <stdio.h>
#include <string.h>

static nd_status write_draws(const hand_over *self, const char *folder);

nd_status hand_over_module(const char *folder, const char *name, const nd_module *module) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.safetensors", folder, name);
    return nd_save_parameters(module, path);
}

nd_status hand_over_draw(hand_over *self, const char *name, const nd_tensor *draw) {
    size_t i = 0;
    while (i < self->name_count && strcmp(self->names[i], name) != 0)
        i++;
    if (!draw)
        return nd_error_get_status();
    if (i == HAND_OVER_NAMES || self->counts[i] == HAND_OVER_DRAWS)
        return ND_ERROR_INVALID_ARGUMENT;
    self->names[i] = name;
    self->name_count += i == self->name_count;
    self->draws[i][self->counts[i]++] = nd_retain(draw);
    return ND_OK;
}

nd_status hand_over_finish(hand_over *self, const char *folder, nd_status status) {
    if (status == ND_OK)
        status = write_draws(self, folder);
    for (size_t i = 0; i < self->name_count; i++)
        for (size_t j = 0; j < self->counts[i]; j++)
            nd_release(self->draws[i][j]);
    *self = (hand_over){0};
    return status;
}

static nd_status write_draws(const hand_over *self, const char *folder) {
    char path[4096];
    const nd_tensor *stacked[HAND_OVER_NAMES];
    snprintf(path, sizeof path, "%s/drawn.safetensors", folder);
    nd_auto_scope;
    for (size_t i = 0; i < self->name_count; i++) {
        const nd_tensor *draws[HAND_OVER_DRAWS];
        for (size_t j = 0; j < self->counts[i]; j++)
            draws[j] = self->draws[i][j];
        stacked[i] = nd_tmp(nd_stack(self->counts[i], draws, 0));
        if (!stacked[i])
            return nd_error_get_status();
    }
    return nd_save_safetensors(path, self->name_count, self->names, stacked);
}
