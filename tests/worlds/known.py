"""Programs that are neither right nor refused today: each with its outcome and what it would take.  Only to shrink."""

from __future__ import annotations

import attrs


@attrs.frozen
class Known:
    """How a program goes wrong today, and what it would take."""

    outcome: str
    reason: str


CALLABLES = (
    "functions of torch and builtins that names and attributes hold are taken to stay: guard the identity of "
    "every callable that was read"
)
PATCHED = (
    "methods and classes are taken to stay: guard what each look-up of a method found, on the instance, on its "
    "class and in the bases"
)
HOOKS = (
    "hooks are guarded by presence: record what a hook reads as the program's own reads, and guard global and "
    "tensor hooks too"
)
FUNCTIONS = (
    "defaults, code and attributes of a function, and keywords of a partial, are taken to stay: guard those of "
    "every function that ran"
)
FLAGS = "flags of torch other than its modes: record the question while tracing and ask it again, or refuse"
PROTOCOLS = "read by a special method that the walk of names does not enter: record the reads of every frame that ran"
SLOTS = "a slot is in no dictionary: read it again through its descriptor"
PRESENCE = "an absence was read (hasattr, AttributeError, dir): guard that it is still absent"
CONTAINERS = (
    "only lists, dictionaries and sets of up to 1,000 items are compared: guard the items that were read, refuse "
    "other kinds"
)
NUMPY = "data of a NumPy array, buffer or storage became a constant: make it an input, or refuse it"
COMPUTED = "a name that is computed or imported while running: record the read where it happens"
PROCESS = "state of the process: intercept the read while tracing, guard it where it can be asked again, else refuse"
LIBRARY = "what installed code reads of its own is taken to stay: record the reads of its frames like the user's"
NEVER = "gives another value each time: notice the call while tracing (monitoring of calls into C) and refuse"
TAKEN = "reading changes it: notice that the trace changed it, put it back, refuse"
ARGUMENT = "a container given as an argument is written: compare it after the trace, replay or refuse"
WRITES = (
    "a write happens while tracing and never again: record writes, replay those made of the trace's values, "
    "refuse others"
)
POISON = (
    "a stand-in outlives its trace in a place that the walk does not know: find what holds it (referrers), put it"
    " back and refuse"
)
IS = "`is` asks no object: instrument running code to call tracing/intercept/identity.py's Identity.is_same"
CLASS = (
    "Python looks at the class of a symbolic number itself: instrument running code to call class_of and subject_of of "
    "tracing/intercept/identity.py"
)
ATTRIBUTES = "attributes of tensors are not guarded: guard those that were read, note those that were written"
CRASH = "an exception of our own making reaches the user: refuse with a reason, or answer as the original does"
THREADS = (
    "while tracing, a generator of the program's holds a mark that other threads draw from: mark a copy, or refuse"
)
INDUCTOR = (
    "Inductor draws by an algorithm of its own: keep its draws as eager's (fallback_random), or refuse programs "
    "that draw"
)

KNOWN: dict[str, Known] = {
    "1-containers-list_beyond_a_thousand": Known("wrong", CONTAINERS),
    "1-containers-dict_beyond_a_thousand": Known("wrong", CONTAINERS),
    "1-containers-set_beyond_a_thousand": Known("wrong", CONTAINERS),
    "1-containers-list_of_functions_beyond_a_thousand": Known("wrong", CONTAINERS),
    "1-containers-nested_list_in_a_long_tuple": Known("wrong", CONTAINERS),
    "1-containers-list_grows_to_beyond_a_thousand": Known("wrong", CONTAINERS),
    "1-containers-deque_item": Known("wrong", CONTAINERS),
    "1-containers-user_dict": Known("wrong", CONTAINERS),
    "1-containers-user_list": Known("wrong", CONTAINERS),
    "1-containers-chain_map": Known("wrong", CONTAINERS),
    "1-containers-mapping_proxy": Known("wrong", CONTAINERS),
    "1-containers-view_of_a_dict": Known("wrong", CONTAINERS),
    "1-containers-byte_array": Known("wrong", NUMPY),
    "1-containers-memory_view": Known("wrong", NUMPY),
    "1-containers-array_of_numbers": Known("wrong", CONTAINERS),
    "1-containers-c_number": Known("wrong", CONTAINERS),
    "1-containers-numpy_element": Known("wrong", NUMPY),
    "1-containers-numpy_from_numpy": Known("wrong", NUMPY),
    "1-containers-numpy_as_tensor": Known("wrong", NUMPY),
    "1-containers-numpy_sum_of_a_large_array": Known("wrong", NUMPY),
    "1-containers-numpy_array_operand": Known("wrong", NUMPY),
    "1-containers-numpy_object_array": Known("wrong", NUMPY),
    "1-containers-tensor_in_a_dict_resized": Known("wrong", NUMPY),
    "1-containers-tensor_in_a_deque": Known("wrong", NUMPY),
    "1-containers-queue_peeked": Known("wrong", CONTAINERS),
    "1-containers-weak_value_dictionary": Known("wrong", CONTAINERS),
    "1-containers-weak_key_dictionary": Known("wrong", CONTAINERS),
    "1-containers-text_buffer_read_whole": Known("wrong", NUMPY),
    "1-containers-list_subclass_attribute": Known("wrong", CONTAINERS),
    "1-names-and-surroundings-getattr_with_a_computed_name": Known("wrong", COMPUTED),
    "1-names-and-surroundings-getattr_with_a_name_from_a_table": Known("wrong", COMPUTED),
    "1-names-and-surroundings-attrgetter": Known("wrong", COMPUTED),
    "1-names-and-surroundings-globals_by_key": Known("wrong", COMPUTED),
    "1-names-and-surroundings-eval_of_a_name": Known("wrong", COMPUTED),
    "1-names-and-surroundings-module_through_sys_modules": Known("wrong", COMPUTED),
    "1-names-and-surroundings-from_import_inside": Known("wrong", COMPUTED),
    "1-names-and-surroundings-import_inside": Known("wrong", COMPUTED),
    "1-names-and-surroundings-import_inside_finds_another_module": Known("wrong", COMPUTED),
    "1-names-and-surroundings-import_by_importlib": Known("wrong", COMPUTED),
    "1-names-and-surroundings-function_imported_inside": Known("wrong", COMPUTED),
    "1-names-and-surroundings-module_with_getattr": Known("wrong", COMPUTED),
    "1-names-and-surroundings-global_hides_a_builtin": Known("wrong", COMPUTED),
    "1-names-and-surroundings-builtin_added": Known("wrong", COMPUTED),
    "1-names-and-surroundings-global_name_error_is_caught": Known("wrong", COMPUTED),
    "1-names-and-surroundings-function_of_torch_patched": Known("wrong", CALLABLES),
    "1-names-and-surroundings-method_of_tensor_patched": Known("wrong", CALLABLES),
    "1-names-and-surroundings-constant_of_the_standard_library_patched": Known("wrong", CALLABLES),
    "1-names-and-surroundings-function_of_the_standard_library_patched": Known("wrong", CALLABLES),
    "1-names-and-surroundings-environment": Known("wrong", PROCESS),
    "1-names-and-surroundings-environment_by_getenv": Known("wrong", PROCESS),
    "1-names-and-surroundings-environment_by_membership": Known("wrong", PROCESS),
    "1-names-and-surroundings-context_variable": Known("wrong", PROCESS),
    "1-names-and-surroundings-context_variable_reset": Known("wrong", PROCESS),
    "1-names-and-surroundings-name_of_the_thread": Known("wrong", PROCESS),
    "1-names-and-surroundings-arguments_of_the_process": Known("wrong", PROCESS),
    "1-names-and-surroundings-recursion_limit": Known("wrong", PROCESS),
    "1-names-and-surroundings-working_directory": Known("wrong", PROCESS),
    "1-names-and-surroundings-decimal_context": Known("wrong", PROCESS),
    "1-names-and-surroundings-level_of_a_logger": Known("wrong", PROCESS),
    "1-names-and-surroundings-warnings_filter": Known("wrong", PROCESS),
    "1-names-and-surroundings-garbage_collector_switch": Known("wrong", PROCESS),
    "1-names-and-surroundings-name_of_the_caller": Known("wrong", PROCESS),
    "1-names-and-surroundings-file_changes": Known("wrong", PROCESS),
    "1-names-and-surroundings-file_appears": Known("wrong", PROCESS),
    "1-names-and-surroundings-global_of_an_installed_package": Known("wrong", LIBRARY),
    "1-names-and-surroundings-function_in_a_global_of_an_installed_package": Known("wrong", LIBRARY),
    "1-names-and-surroundings-table_of_an_installed_package": Known("wrong", LIBRARY),
    "1-names-and-surroundings-constant_of_an_installed_package": Known("wrong", LIBRARY),
    "1-names-and-surroundings-instance_of_a_class_of_an_installed_package": Known("wrong", LIBRARY),
    "1-names-and-surroundings-class_of_an_installed_package": Known("wrong", LIBRARY),
    "1-names-and-surroundings-closure_of_an_installed_package": Known("wrong", LIBRARY),
    "1-names-and-surroundings-function_attribute_of_an_installed_package": Known("wrong", LIBRARY),
    "1-names-and-surroundings-function_of_an_installed_package_patched": Known("wrong", LIBRARY),
    "1-names-and-surroundings-module_of_an_installed_package": Known("wrong", LIBRARY),
    "1-names-and-surroundings-list_attribute_of_a_module_of_an_installed_package": Known("wrong", LIBRARY),
    "1-names-and-surroundings-underscored_attribute_of_a_module_of_an_installed_package": Known("wrong", LIBRARY),
    "1-names-and-surroundings-registry_of_an_installed_package": Known("wrong", LIBRARY),
    "1-objects-read_through_call": Known("wrong", PROTOCOLS),
    "1-objects-read_through_getitem": Known("wrong", PROTOCOLS),
    "1-objects-read_through_len": Known("wrong", PROTOCOLS),
    "1-objects-read_through_iter": Known("wrong", PROTOCOLS),
    "1-objects-read_through_unpacking": Known("wrong", PROTOCOLS),
    "1-objects-read_through_bool": Known("wrong", PROTOCOLS),
    "1-objects-read_through_contains": Known("wrong", PROTOCOLS),
    "1-objects-read_through_float": Known("wrong", PROTOCOLS),
    "1-objects-read_through_index": Known("wrong", PROTOCOLS),
    "1-objects-read_through_int": Known("wrong", PROTOCOLS),
    "1-objects-read_through_getattr": Known("wrong", PROTOCOLS),
    "1-objects-read_through_getattribute": Known("wrong", PROTOCOLS),
    "1-objects-read_through_operator": Known("wrong", PROTOCOLS),
    "1-objects-read_through_reflected_operator": Known("wrong", PROTOCOLS),
    "1-objects-read_through_matmul_with_a_tensor": Known("wrong", PROTOCOLS),
    "1-objects-read_through_comparison": Known("wrong", PROTOCOLS),
    "1-objects-read_through_equality": Known("wrong", PROTOCOLS),
    "1-objects-read_through_hash": Known("wrong", PROTOCOLS),
    "1-objects-read_through_str": Known("wrong", PROTOCOLS),
    "1-objects-read_through_format": Known("wrong", PROTOCOLS),
    "1-objects-read_through_context_manager": Known("wrong", PROTOCOLS),
    "1-objects-read_through_exit": Known("wrong", PROTOCOLS),
    "1-objects-read_through_missing": Known("wrong", PROTOCOLS),
    "1-objects-read_through_descriptor": Known("wrong", PROTOCOLS),
    "1-objects-read_through_torch_function": Known("wrong", PROTOCOLS),
    "1-objects-slots": Known("wrong", SLOTS),
    "1-objects-slotted_dataclass": Known("wrong", SLOTS),
    "1-objects-slotted_attrs_class": Known("wrong", SLOTS),
    "1-objects-function_in_a_slot": Known("wrong", SLOTS),
    "1-objects-tensor_in_a_slot_replaced": Known("wrong", SLOTS),
    "1-objects-list_in_a_slot": Known("wrong", SLOTS),
    "1-objects-class_assigned_to_object": Known("wrong", PATCHED),
    "1-objects-class_asked_by_isinstance": Known("wrong", PATCHED),
    "1-objects-bases_assigned": Known("wrong", PATCHED),
    "1-objects-attribute_of_a_metaclass": Known("wrong", PATCHED),
    "1-objects-int_subclass_with_an_attribute": Known("wrong", PROTOCOLS),
    "1-objects-weak_reference_dies": Known("wrong", PROTOCOLS),
    "1-objects-attribute_through_vars": Known("wrong", PROTOCOLS),
    "1-objects-attribute_appears_for_hasattr": Known("wrong", PRESENCE),
    "1-objects-attribute_error_is_caught": Known("wrong", PRESENCE),
    "1-objects-attribute_by_the_order_of_dir": Known("wrong", PRESENCE),
    "1-objects-subclasses_counted": Known("wrong", PATCHED),
    "1-objects-bound_method_as_the_function": Known("wrong", SLOTS),
    "1-functions-modules-hooks-function_in_module_attribute": Known("wrong", CALLABLES),
    "1-functions-modules-hooks-builtin_in_module_attribute": Known("wrong", CALLABLES),
    "1-functions-modules-hooks-function_in_global": Known("wrong", CALLABLES),
    "1-functions-modules-hooks-builtin_in_global": Known("wrong", CALLABLES),
    "1-functions-modules-hooks-function_in_closure": Known("wrong", CALLABLES),
    "1-functions-modules-hooks-function_two_closures_deep": Known("wrong", CALLABLES),
    "1-functions-modules-hooks-forward_patched_on_instance": Known("wrong", PATCHED),
    "1-functions-modules-hooks-forward_of_child_patched_on_instance": Known("wrong", PATCHED),
    "1-functions-modules-hooks-forward_patched_on_class": Known("wrong", PATCHED),
    "1-functions-modules-hooks-forward_of_child_patched_on_class": Known("wrong", PATCHED),
    "1-functions-modules-hooks-call_patched_on_module_class": Known("wrong", PATCHED),
    "1-functions-modules-hooks-library_forward_patched_on_instance": Known("wrong", PATCHED),
    "1-functions-modules-hooks-hook_reads_closure": Known("wrong", HOOKS),
    "1-functions-modules-hooks-hook_reads_global": Known("wrong", HOOKS),
    "1-functions-modules-hooks-hook_object_with_state": Known("wrong", HOOKS),
    "1-functions-modules-hooks-global_forward_hook_added": Known("wrong", HOOKS),
    "1-functions-modules-hooks-global_forward_pre_hook_added": Known("wrong", HOOKS),
    "1-functions-modules-hooks-global_hook_reads_closure": Known("wrong", HOOKS),
    "1-functions-modules-hooks-tensor_hook_on_parameter": Known("wrong", HOOKS),
    "1-functions-modules-hooks-hook_on_an_argument": Known("wrong", HOOKS),
    "1-functions-modules-hooks-defaults_of_the_function": Known("wrong", FUNCTIONS),
    "1-functions-modules-hooks-defaults_of_a_helper": Known("wrong", FUNCTIONS),
    "1-functions-modules-hooks-keyword_defaults_of_a_helper": Known("wrong", FUNCTIONS),
    "1-functions-modules-hooks-code_of_the_function": Known("wrong", FUNCTIONS),
    "1-functions-modules-hooks-code_of_a_helper": Known("wrong", FUNCTIONS),
    "1-functions-modules-hooks-attribute_of_a_helper_function": Known("wrong", FUNCTIONS),
    "1-functions-modules-hooks-attribute_of_the_function_itself": Known("wrong", FUNCTIONS),
    "1-functions-modules-hooks-keywords_of_a_partial": Known("wrong", FUNCTIONS),
    "1-functions-modules-hooks-keywords_of_the_partial_itself": Known("wrong", FUNCTIONS),
    "1-functions-modules-hooks-class_based_decorator": Known("wrong", PROTOCOLS),
    "1-functions-modules-hooks-singledispatch_gains_an_implementation": Known("wrong", FUNCTIONS),
    "1-functions-modules-hooks-builtin_bound_method_in_global": Known("wrong", CALLABLES),
    "1-functions-modules-hooks-memoised_helper_cleared": Known("wrong", FUNCTIONS),
    "1-functions-modules-hooks-private_attribute_of_a_library_module": Known("wrong", LIBRARY),
    "1-functions-modules-hooks-class_of_a_module_assigned": Known("wrong", PATCHED),
    "1-functions-modules-hooks-attribute_of_a_parameter": Known("wrong", ATTRIBUTES),
    "1-functions-modules-hooks-attribute_of_a_buffer_appears": Known("wrong", ATTRIBUTES),
    "1-functions-modules-hooks-flags_of_torch_read": Known("wrong", FLAGS),
    "1-functions-modules-hooks-number_of_threads_read": Known("wrong", FLAGS),
    "1-functions-modules-hooks-torch_backend_flag_read": Known("wrong", FLAGS),
    "1-functions-modules-hooks-anomaly_mode_read": Known("wrong", FLAGS),
    "1-functions-modules-hooks-custom_autograd_function_patched": Known("wrong", PATCHED),
    "2-reads-that-never-repeat-random_generator_in_an_attribute": Known("wrong", NEVER),
    "2-reads-that-never-repeat-random_generator_in_a_closure": Known("wrong", NEVER),
    "2-reads-that-never-repeat-random_generator_in_a_list": Known("wrong", NEVER),
    "2-reads-that-never-repeat-random_method_bound_earlier": Known("wrong", NEVER),
    "2-reads-that-never-repeat-random_inside_a_call_method": Known("wrong", NEVER),
    "2-reads-that-never-repeat-system_random": Known("wrong", NEVER),
    "2-reads-that-never-repeat-numpy_generator_in_a_closure": Known("wrong", NEVER),
    "2-reads-that-never-repeat-numpy_generator_in_an_attribute": Known("wrong", NEVER),
    "2-reads-that-never-repeat-numpy_random_state": Known("wrong", NEVER),
    "2-reads-that-never-repeat-iterator_in_a_closure": Known("wrong", TAKEN),
    "2-reads-that-never-repeat-iterator_in_a_global": Known("wrong", TAKEN),
    "2-reads-that-never-repeat-iterator_exhausted": Known("wrong", TAKEN),
    "2-reads-that-never-repeat-iterator_argument": Known("wrong", TAKEN),
    "2-reads-that-never-repeat-generator_in_a_closure": Known("wrong", TAKEN),
    "2-reads-that-never-repeat-generator_sent_to": Known("wrong", TAKEN),
    "2-reads-that-never-repeat-counter_of_itertools": Known("wrong", TAKEN),
    "2-reads-that-never-repeat-cycle_of_itertools": Known("wrong", TAKEN),
    "2-reads-that-never-repeat-map_object": Known("wrong", TAKEN),
    "2-reads-that-never-repeat-loop_over_a_shared_iterator": Known("wrong", TAKEN),
    "2-reads-that-never-repeat-queue_taken_from": Known("wrong", TAKEN),
    "2-reads-that-never-repeat-deque_taken_from": Known("wrong", TAKEN),
    "2-reads-that-never-repeat-long_list_taken_from": Known("wrong", TAKEN),
    "2-reads-that-never-repeat-counter_in_a_slot": Known("wrong", WRITES),
    "2-reads-that-never-repeat-counter_in_an_array": Known("wrong", WRITES),
    "2-reads-that-never-repeat-counter_in_a_numpy_array": Known("wrong", WRITES),
    "2-reads-that-never-repeat-counter_in_a_bytearray": Known("wrong", WRITES),
    "2-reads-that-never-repeat-counter_in_a_function_attribute": Known("wrong", WRITES),
    "2-reads-that-never-repeat-counter_in_a_helpers_attribute": Known("wrong", WRITES),
    "2-reads-that-never-repeat-counter_in_a_context_variable": Known("wrong", WRITES),
    "2-reads-that-never-repeat-counter_in_the_environment": Known("wrong", WRITES),
    "2-reads-that-never-repeat-counter_in_a_tensor_attribute": Known("wrong", WRITES),
    "2-reads-that-never-repeat-counter_in_an_installed_package": Known("wrong", WRITES),
    "2-reads-that-never-repeat-counter_in_an_instance_of_a_package": Known("wrong", WRITES),
    "2-reads-that-never-repeat-lru_cache_counts": Known("wrong", WRITES),
    "2-reads-that-never-repeat-the_time": Known("wrong", NEVER),
    "2-reads-that-never-repeat-the_performance_counter": Known("wrong", NEVER),
    "2-reads-that-never-repeat-the_process_time": Known("wrong", NEVER),
    "2-reads-that-never-repeat-the_date": Known("wrong", NEVER),
    "2-reads-that-never-repeat-secrets_of_the_system": Known("wrong", NEVER),
    "2-reads-that-never-repeat-bytes_of_the_system": Known("wrong", NEVER),
    "2-reads-that-never-repeat-unique_identifier": Known("wrong", NEVER),
    "2-reads-that-never-repeat-file_read_on": Known("wrong", TAKEN),
    "2-reads-that-never-repeat-text_buffer_read_on": Known("wrong", TAKEN),
    "2-reads-that-never-repeat-fields_read_on_by_csv": Known("wrong", TAKEN),
    "3-lost-writes-dict_argument_gains_an_item": Known("wrong", ARGUMENT),
    "3-lost-writes-dict_argument_loses_an_item": Known("wrong", ARGUMENT),
    "3-lost-writes-dict_argument_number_counts": Known("wrong", ARGUMENT),
    "3-lost-writes-list_argument_appended_to": Known("wrong", ARGUMENT),
    "3-lost-writes-list_argument_item_replaced": Known("wrong", ARGUMENT),
    "3-lost-writes-list_argument_reversed": Known("wrong", ARGUMENT),
    "3-lost-writes-list_argument_cleared": Known("wrong", ARGUMENT),
    "3-lost-writes-list_argument_extended_in_place": Known("wrong", ARGUMENT),
    "3-lost-writes-nested_argument_appended_to": Known("wrong", ARGUMENT),
    "3-lost-writes-deque_argument_appended_to": Known("wrong", ARGUMENT),
    "3-lost-writes-list_argument_is_returned": Known("wrong", ARGUMENT),
    "3-lost-writes-long_list_outside_appended_to": Known("wrong", WRITES),
    "3-lost-writes-deque_outside_appended_to": Known("wrong", WRITES),
    "3-lost-writes-ring_outside_appended_to": Known("wrong", WRITES),
    "3-lost-writes-user_dict_outside_updated": Known("wrong", WRITES),
    "3-lost-writes-numpy_array_outside_written": Known("wrong", WRITES),
    "3-lost-writes-array_outside_written": Known("wrong", WRITES),
    "3-lost-writes-bytes_outside_written": Known("wrong", WRITES),
    "3-lost-writes-queue_outside_filled": Known("wrong", WRITES),
    "3-lost-writes-printed_to_the_screen": Known("wrong", WRITES),
    "3-lost-writes-printed_size": Known("wrong", WRITES),
    "3-lost-writes-printed_to_a_file": Known("wrong", WRITES),
    "3-lost-writes-written_to_the_screen": Known("wrong", WRITES),
    "3-lost-writes-written_to_a_text_buffer": Known("wrong", WRITES),
    "3-lost-writes-written_to_a_file": Known("wrong", WRITES),
    "3-lost-writes-written_by_json": Known("wrong", WRITES),
    "3-lost-writes-logged": Known("wrong", WRITES),
    "3-lost-writes-warned": Known("wrong", WRITES),
    "3-lost-writes-callback_called": Known("wrong", WRITES),
    "3-lost-writes-grad_mode_left_off": Known("wrong", WRITES),
    "3-lost-writes-autocast_left_on": Known("wrong", WRITES),
    "3-lost-writes-determinism_left_on": Known("wrong", WRITES),
    "3-lost-writes-number_of_threads_left_changed": Known("wrong", WRITES),
    "3-lost-writes-attribute_of_a_parameter_set": Known("wrong", ATTRIBUTES),
    "3-lost-writes-function_attribute_set": Known("wrong", WRITES),
    "3-lost-writes-slot_set": Known("wrong", WRITES),
    "3-lost-writes-slot_keeps_a_tensor": Known("poisoned", POISON),
    "3-lost-writes-descriptor_set": Known("wrong", WRITES),
    "3-lost-writes-setattr_method_notes": Known("wrong", WRITES),
    "3-lost-writes-environment_set": Known("wrong", WRITES),
    "3-lost-writes-context_variable_set": Known("wrong", WRITES),
    "3-lost-writes-global_set_by_key": Known("wrong", WRITES),
    "3-lost-writes-global_of_an_installed_package_set": Known("wrong", WRITES),
    "3-lost-writes-write_by_leaving_a_context": Known("wrong", WRITES),
    "3-lost-writes-write_by_a_finaliser": Known("wrong", WRITES),
    "3-lost-writes-write_by_a_module_hook": Known("wrong", WRITES),
    "3-lost-writes-activations_kept_by_a_hook": Known("poisoned", POISON),
    "3-lost-writes-write_from_a_thread": Known("wrong", WRITES),
    "5-stand-ins-argument_is_a_global": Known("wrong", IS),
    "5-stand-ins-argument_is_a_global_first": Known("wrong", IS),
    "5-stand-ins-number_matched": Known("wrong", CLASS),
    "5-stand-ins-number_is_itself": Known("wrong", IS),
    "5-stand-ins-number_dispatched_on": Known("wrong", CLASS),
    "5-stand-ins-number_is_one": Known("wrong", IS),
    "5-stand-ins-comparison_is_true": Known("wrong", IS),
    "5-stand-ins-mode_held_outside": Known("wrong", PROTOCOLS),
    "6-equal-but-not-alike-dataclass_is_the_default": Known("wrong", IS),
    "6-equal-but-not-alike-one_list_twice_is_written": Known("wrong", ARGUMENT),
    "7-later-eager-calls-lru_cache_of_a_method": Known("poisoned", POISON),
    "7-later-eager-calls-lru_cache_in_an_installed_package": Known("poisoned", POISON),
    "7-later-eager-calls-lru_cache_behind_an_object": Known("poisoned", POISON),
    "7-later-eager-calls-slot_keeps_a_tensor_for_later": Known("poisoned", POISON),
    "7-later-eager-calls-slot_keeps_a_size": Known("wrong", POISON),
    "7-later-eager-calls-deque_keeps_a_tensor": Known("poisoned", POISON),
    "7-later-eager-calls-deque_keeps_a_size": Known("wrong", POISON),
    "7-later-eager-calls-function_attribute_keeps_a_tensor": Known("poisoned", POISON),
    "7-later-eager-calls-helper_attribute_keeps_a_tensor": Known("poisoned", POISON),
    "7-later-eager-calls-large_dict_keeps_a_tensor": Known("poisoned", POISON),
    "7-later-eager-calls-large_list_keeps_a_size": Known("wrong", POISON),
    "7-later-eager-calls-user_dict_keeps_a_tensor": Known("poisoned", POISON),
    "7-later-eager-calls-chain_map_keeps_a_tensor": Known("poisoned", POISON),
    "7-later-eager-calls-class_keeps_a_tensor": Known("poisoned", POISON),
    "7-later-eager-calls-metaclass_keeps_a_tensor": Known("poisoned", POISON),
    "7-later-eager-calls-context_variable_keeps_a_tensor": Known("poisoned", POISON),
    "7-later-eager-calls-weak_dictionary_keeps_a_tensor": Known("poisoned", POISON),
    "7-later-eager-calls-exception_keeps_a_tensor": Known("poisoned", POISON),
    "7-later-eager-calls-generator_keeps_a_tensor": Known("poisoned", POISON),
    "7-later-eager-calls-globals_keep_a_tensor_by_key": Known("poisoned", POISON),
    "7-later-eager-calls-installed_package_keeps_a_tensor": Known("poisoned", POISON),
    "7-later-eager-calls-installed_package_keeps_a_size_in_a_global": Known("wrong", POISON),
    "7-later-eager-calls-numpy_array_of_objects_keeps_a_tensor": Known("poisoned", POISON),
    "7-later-eager-calls-queue_keeps_a_tensor": Known("poisoned", POISON),
    "7-later-eager-calls-keywords_of_a_partial_keep_a_tensor": Known("poisoned", POISON),
    "7-later-eager-calls-attribute_of_a_parameter_keeps_a_tensor": Known("poisoned", POISON),
    "7-later-eager-calls-callbacks_of_an_exit_stack_keep_a_tensor": Known("poisoned", POISON),
    "7-later-eager-calls-log_record_keeps_a_size": Known("wrong", POISON),
    "7-later-eager-calls-argument_object_keeps_a_tensor": Known("poisoned", POISON),
    "7-later-eager-calls-kept_and_then_refused": Known("poisoned", POISON),
    "7-later-eager-calls-kept_and_then_an_exception": Known("poisoned", POISON),
    "7-later-eager-calls-hook_keeps_activations_in_a_slot": Known("poisoned", POISON),
    "8-random-numbers-exception_after_a_draw": Known("wrong", ERRORS),
    "8-random-numbers-thread_draws_from_a_shared_generator": Known("wrong", WRITES),  # it wakes the thread by an Event
    "11-messages-and-layouts-warning_becomes_an_error": Known("wrong", WRITES),
}

DIFFERENT_BY_DEFAULT: dict[str, Known] = {
    "7-later-eager-calls-argument_object_keeps_a_tensor": Known("crash", POISON),
    "7-later-eager-calls-chain_map_keeps_a_tensor": Known("crash", POISON),
    "7-later-eager-calls-user_dict_keeps_a_tensor": Known("crash", POISON),
    "7-later-eager-calls-weak_dictionary_keeps_a_tensor": Known("crash", POISON),
    "8-random-numbers-thread_draws_from_a_shared_generator": Known("wrong", THREADS),
}
"""What falls back differs in these from what ``fullgraph=True`` raises: wrong in another way."""
