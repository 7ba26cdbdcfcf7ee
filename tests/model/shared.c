// What programs of more than one subject share (shared.h).
#include "tests/model/shared.h"
#include "lib/object/object.h"
#include "tests/model/cells.h"
#include "tests/model/scheduler.h"

void collect(void) {
    nd_gc_report report = ND_GC_REPORT_INIT;
    model_assert(nd_gc_collect(managers[0], &report) == ND_OK);
    model_assert(report.broken_objects == 0);
}

void setup_hop(void) {
    make_managers(1);
    make_ring(managers[0], 0, 1);
    handles[1] = 0;
    handles[0] = 1; // where the thread ends
}

void hop(nd_object *from, nd_object *to) {
    nd__object_keep(to);
    nd_release(from);
}

void hop_thrice(void) {
    hop(cells[1], cells[0]);
    hop(cells[0], cells[1]);
    hop(cells[1], cells[0]);
    must_live(cells[0]);
    must_live(cells[1]);
}

void take_edge(void) {
    nd_object *taken = nd_edge_take(&cell_of(cells[1])->edges[0]);
    model_assert(taken == cells[0]);
    nd_release(cells[1]);
    must_live(taken);
}

void setup_releasers(void) {
    make_managers(1);
    nd_object *first = make(managers[0], 3);
    nd_object *second = make(managers[0], 1);
    nd_edge_set(&cell_of(first)->edges[0], second);
    give_up(second);
    give_up(first);
    handles[0] = 0;
}

void release_first(void) {
    nd_release(cells[0]);
}

void setup_release(void) {
    setup_releasers();
    nd_release(cells[0]);
}

void setup_rewire(void) {
    make_managers(1);
    make_ring(managers[0], 1, 0);
}

void rewire(void) {
    cell *held = cell_of(cells[0]);
    nd_edge_set(&held->edges[1], held->edges[0]);
    nd_edge_clear(&held->edges[0]);
    must_live(cells[1]);
}

void setup_weak_ring(void) {
    make_managers(1);
    make_ring(managers[0], 0, 1);
    weak = nd_weak_new(cells[0]);
    model_name(weak, "weak");
    give_up(cells[1]);
}

void upgrade(void) {
    nd_object *got = nd_weak_get(weak);
    if (!got)
        return;
    must_live(got);
    must_live(cells[1]);
    found = got;
}

void setup_ring_held(void) {
    make_managers(1);
    make_ring(managers[0], 1, 0);
    handles[0] = 0;
}

void setup_attach(void) {
    make_managers(2);
    make(managers[0], 2);
    handles[0] = 0;
}

void collect_all(void) {
    model_assert(nd_gc_collect(NULL, NULL) == ND_OK);
}

void bear(void) {
    nd_object *born = make(managers[0], 1);
    nd_edge_set(&cell_of(born)->edges[0], cells[0]);
    nd_release(cells[0]);
    must_live(cells[0]);
    give_up(born);
}

void close_cell(void) {
    model_assert(nd_close(cells[0]) == ND_OK);
    model_assert(nd_is_closed(cells[0]));
}

void attach_first(void) {
    model_assert(nd_manager_attach(managers[1], cells[0]) == ND_OK);
    must_live(cells[1]);
}

void setup_attach_ring(void) {
    make_managers(2);
    make_ring(managers[0], 1, 0);
}
