// The way up (lib/base/seam.h): each function hands on to the room that answers.
#include "lib/base/seam.h"
#include "lib/gc/collect.h"
#include "lib/gc/policy.h"
#include "lib/gc/steps.h"
#include "lib/manager/destroy.h"
#include "lib/manager/member.h"
#include "lib/manager/place.h"
#include "lib/object/block.h"
#include "lib/object/object.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/pressure/pressure_callback.h"
#include "lib/pressure/pressure_error.h"
#include <nd/scope.h>

void nd__seam_thread_ends(nd_thread *thread) {
    while (thread->scope)
        nd_scope_end(thread->scope);
    nd__block_thread_end();
}

void nd__seam_died(nd_object *object) {
    nd__destroy_died(object);
}

bool nd__seam_release_alone(nd_object *object) {
    return nd__destroy_alone(object);
}

nd_status nd__seam_publish(const char *operation, nd_object *object) {
    return nd__place_publish_current(operation, object);
}

void nd__seam_unlink(nd_object *object) {
    nd__member_unlink_dead(object);
}

void nd__seam_destroy_list(nd_object *list) {
    nd__destroy_list(list);
}

bool nd__seam_suspect_may_live(void) {
    return nd__steps_suspect_may_live();
}

const char *nd__seam_manager_name(const nd_object *manager) {
    return nd_manager_get_name((const nd_manager *)manager);
}

void *nd__seam_manager_places(const nd_object *manager) {
    return ((const nd_manager *)manager)->places;
}

void *nd__seam_alloc(size_t bytes) {
    return nd__pressure_alloc(bytes);
}

void *nd__seam_alloc_zeroed(size_t bytes) {
    return nd__pressure_alloc_zeroed(bytes);
}

void *nd__seam_alloc_object(const nd_type *type, size_t bytes) {
    return nd__pressure_alloc_object(type, bytes);
}

void nd__seam_collect_boundary(nd_manager *manager, nd_manager *outside, bool cyclic,
                               nd_close_report *report) {
    nd__collect_boundary(manager, outside, cyclic, report);
}

void nd__seam_gc_tell(nd_manager *manager, int kind) {
    nd__policy_tell(manager, kind);
}

nd_gc_mode nd__seam_gc_mode(const nd_manager *manager) {
    return nd__policy_mode(manager);
}

void nd__seam_gc_domain_free(nd_manager *manager) {
    nd__policy_domain_free(manager);
}

nd_status nd__seam_pressure_walk(nd_pressure *pressure, nd_status failure) {
    return nd__pressure_walk(pressure, failure);
}

nd_status nd__seam_pressure_error(const nd_pressure *pressure, nd_status status) {
    return nd__pressure_error(pressure, status);
}

void nd__seam_pressure_forget(nd_manager *manager) {
    nd__pressure_forget(manager);
}
