/// @file
/// Names that functions had before 0.1.0, for programs that were written with them. They go with
/// 0.2.0; where ND_NO_OLD_NAMES is defined they are gone already.
#ifndef ND_DETAIL_OLD_NAMES_H
#define ND_DETAIL_OLD_NAMES_H

// clang-format off
#define nd_attach                 nd_manager_attach
#define nd_dataset_batches        nd_dataset_get_batches
#define nd_dataset_size           nd_dataset_get_size
#define nd_debug_site             nd_debug_get_site
#define nd_device_count           nd_get_device_count
#define nd_dtype_name             nd_dtype_get_name
#define nd_dtype_size             nd_dtype_get_size
#define nd_error_message          nd_error_get_message
#define nd_error_status           nd_error_get_status
#define nd_grad_enabled           nd_is_grad_enabled
#define nd_item                   nd_get_item
#define nd_list_size              nd_list_get_size
#define nd_manager_current        nd_manager_get_current
#define nd_manager_name           nd_manager_get_name
#define nd_manager_of             nd_get_manager
#define nd_manager_parent         nd_manager_get_parent
#define nd_manager_root           nd_manager_get_root
#define nd_manager_total_bytes    nd_manager_get_total_bytes
#define nd_manager_total_objects  nd_manager_get_total_objects
#define nd_map_size               nd_map_get_size
#define nd_module_child           nd_module_get_child
#define nd_module_child_count     nd_module_get_child_count
#define nd_module_data            nd_module_get_data
#define nd_module_parameter       nd_module_get_parameter
#define nd_module_parameter_at    nd_module_get_parameter_at
#define nd_module_parameter_count nd_module_get_parameter_count
#define nd_node_name              nd_node_get_name
#define nd_object_data            nd_object_get_data
#define nd_object_manager         nd_get_manager_retained
#define nd_object_type            nd_object_get_type
#define nd_scope_current          nd_scope_get_current
#define nd_scope_detach           nd_scope_leave
#define nd_scope_size             nd_scope_get_size
#define nd_status_name            nd_status_get_name
#define nd_temp_attach            nd_manager_lend
// clang-format on

#endif
