// holders, in C++. To reports and the collector an nd::tensor is a handle of the program; an nd::weak
// only asks whether something lives. A cycle of std::shared_ptr would be nobody's to find: one of
// objects is, because these say what they hold.
#include <cstdio>
#include <nd/nd.hpp>

/// A step that records its backward pass, and with it makes a cycle: w holds its gradient, that its
/// record, and that w. Also adds the loss to the history, if there is one.
///
/// @return a reference that tells whether w lives, and does not keep it alive
static nd::weak train(nd_list *history) {
    nd::tensor w = nd::randn(nd_key_new(7), ND_SHAPE(64, 64), ND_F32);
    nd_set_name(w.get(), "w"); // for reports
    nd_set_requires_grad(w.get(), true);
    nd::tensor loss = nd::sum(nd::tanh(w), 0, nullptr, false);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    if (nd_backward(loss, &options) == ND_OK && history)
        nd_list_append(history, loss); // "only for the plot"
    return nd::weak(nd_weak_new(w));
}

/// One step in a manager of its own, and what was found when that closed.
static nd::weak run_step(nd_list *history) {
    nd::manager manager(nd_manager_new(nullptr, "step"));
    nd::weak w;
    nd_with_manager(manager) w = train(history);
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    nd_manager_close(manager.get(), &report); // the collector runs here; the weak reference escapes
    std::printf("%d objects collected, %d escaped\n", static_cast<int>(report.collected_objects),
                static_cast<int>(report.escaped_objects));
    return w;
}

/// Says who holds the target of a weak reference.
static void explain(const nd::weak &weak) {
    nd::tensor target(nd_weak_get_tensor(weak)); // nothing when it is dead, which is no error
    if (target)
        nd_debug_holders(target, stdout);
    else
        std::puts("it is dead");
}

static void show() {
    nd::list history(nd_list_new());
    nd_set_name(history.get(), "history");
    std::puts("-- a step without a history");
    nd::weak first = run_step(nullptr);
    explain(first);
    std::puts("-- a step with one");
    nd::weak second = run_step(history.get());
    explain(second);
    std::puts("-- the list is emptied: now there is only the cycle");
    nd_list_clear(history.get());
    explain(second);
    std::puts("-- and collected on request");
    nd_gc_collect(nullptr, nullptr);
    explain(second);
}

int main() {
    nd_gc_set_mode(ND_GC_ON); // it is off by default; ND_GC=on in the environment does the same
    show();
    std::printf("%d objects left; %s\n", static_cast<int>(nd_manager_get_total_objects(nullptr)),
                nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
