// holders: why is this still alive? A cycle, which counts cannot free and the collector does, and a
// list that was forgotten, which no collector may free: there a report says who holds what.
#include <nd/nd.h>
#include <stdio.h>

/// A step that records its backward pass, and with it makes a cycle: w holds its gradient, that its
/// record, and that w. Also adds the loss to the history, if there is one.
///
/// @return a weak reference to w, owned: it tells whether w lives, and does not keep it alive
static nd_weak *train(nd_list *history) {
    nd_auto nd_tensor *w = nd_randn(nd_key_new(7), ND_SHAPE(64, 64), ND_F32);
    nd_set_name(w, "w"); // for reports
    nd_set_requires_grad(w, true);
    nd_auto nd_tensor *y = nd_tanh(w);
    nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    if (nd_backward(loss, &options) == ND_OK && history)
        nd_list_append(history, loss); // "only for the plot"
    return nd_weak_new(w);
}

/// One step in a manager of its own, and what was found when that closed.
static nd_weak *run_step(nd_list *history) {
    nd_auto nd_manager *manager = nd_manager_new(NULL, "step");
    nd_weak *w = NULL;
    nd_with_manager(manager) w = train(history);
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    nd_manager_close(manager, &report); // the collector runs here; the weak reference escapes
    printf("%d objects collected, %d escaped\n", (int)report.collected_objects,
           (int)report.escaped_objects);
    return w;
}

/// Says who holds the target of a weak reference.
static void explain(const nd_weak *weak) {
    nd_auto nd_tensor *target = nd_weak_get_tensor(weak); // NULL when it is dead, which is no error
    if (target)
        nd_debug_holders(target, stdout);
    else
        puts("it is dead");
}

static void show(void) {
    nd_auto nd_list *history = nd_list_new();
    nd_set_name(history, "history");
    puts("-- a step without a history");
    nd_auto nd_weak *first = run_step(NULL);
    explain(first);
    puts("-- a step with one");
    nd_auto nd_weak *second = run_step(history);
    explain(second);
    puts("-- the list is emptied: now there is only the cycle");
    nd_list_clear(history);
    explain(second);
    puts("-- and collected on request");
    nd_gc_collect(NULL, NULL);
    explain(second);
}

int main(void) {
    nd_gc_set_mode(ND_GC_ON); // it is off by default; ND_GC=on in the environment does the same
    show();
    printf("%d objects left; %s\n", (int)nd_manager_get_total_objects(NULL),
           nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
