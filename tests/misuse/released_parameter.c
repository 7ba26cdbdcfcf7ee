// A module's parameter is the module's.
#include <nd/nd.h>

void forget(const nd_module *module);

void forget(const nd_module *module) {
    nd_release(nd_module_get_parameter(module, "weight"));
}
