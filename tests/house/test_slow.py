"""Every test that only `ci/test --all` runs is in the table, which names a faster test of its property."""

from __future__ import annotations

import re
import sys

from harness.core.processes import process
from harness.core.strict_toml import ROOT


def test_every_slow_test_is_in_the_table() -> None:
    collected = {
        option: process.run(
            [sys.executable, "-m", "pytest", "--collect-only", "-q", *option, ROOT / "tests" / "end_to_end"],
            deadline_seconds=300,
            folder=ROOT,
        )
        for option in ((), ("--all",))
    }
    names = {
        option: {line for line in result.text.splitlines() if "::" in line} for option, result in collected.items()
    }
    slow = names["--all",] - names[()]
    assert slow, collected["--all",].text
    table = (ROOT / "docs" / "TESTS.md").read_text("utf-8")
    files = set(re.findall(r"^\| `(test_\w+\.py)`", table, re.MULTILINE))
    assert {name.partition("::")[0].rpartition("/")[2] for name in slow} == files
    # What is left is run on something: no test function is slow whole, but those that the table names.
    functions = {option: {name.partition("[")[0] for name in found} for option, found in names.items()}
    gone = {name.rpartition("::")[2] for name in functions["--all",] - functions[()]}
    assert gone == {
        "test_an_overread_that_libc_hides_is_reported_as_missed",
        "test_what_omitted_tests_entered_in_an_earlier_run_is_checked",
        "test_a_premerge_regenerates_a_table_made_from_a_changed_file",
        "test_a_server_is_built_with_its_own_jemalloc_for_a_board",
        "test_objects_show_which_changes_have_no_effect",
        "test_a_release_that_does_not_start_is_not_sampled",
        "test_the_same_tree_twice_shows_no_difference",
        "test_an_inherited_bug_passes_and_so_does_its_fix",
        "test_tests_are_omitted_only_with_regard_to_a_run_of_the_same_request_that_passed",
        "test_a_sanitizers_finding_is_replayed_and_is_gone_where_it_was_fixed",
        "test_features_that_a_release_lacks_are_skipped_and_another_suite_still_passes",
        "test_a_bug_of_the_clusters_bus_is_found_by_its_suite",
        "test_a_long_save_dies_in_debians_service_on_32_bit_arm_and_its_replay_does",
        "test_a_measurement_on_workers_has_the_rows_of_the_same_measurement_alone",
        "test_fail_overs_are_tested_although_they_wait_for_time_outs",
        "test_of_the_server_with_tls_the_edited_lines_are_named_that_no_test_executes",
        "test_on_a_real_kernel_a_request_costs_what_it_costs_alone_and_the_kernels_share",
        "test_a_program_ends_well_while_its_last_thread_ends",
        "test_a_native_server_is_counted_in_an_emulated_machine",
        "test_the_emulator_translates_what_orders_and_protects_accesses_that_devices_see",
        "test_a_device_and_the_processor_of_s390x_undo_nothing_of_each_other_in_one_word",
        "test_reserved_bits_of_mffs_are_ignored_as_by_processors_before_power_isa_3_0",
        "test_devices_of_malta_have_interrupts_of_their_own",
        "test_a_machine_that_stands_still_makes_its_cell_unknown_within_minutes",
        "test_a_push_to_unstable_says_what_a_check_of_the_release_says",
        "test_another_effect_of_a_68000s_instruction_is_told",
        "test_a_bug_is_found_behind_a_failure_of_the_release",
        "test_the_changed_function_is_where_values_part",
        "test_a_sample_finds_what_shows_drops_what_is_equivalent_and_resumes",
        "test_a_hundred_lost_workers_and_five_lost_schedulers_change_no_verdict",
        "test_a_package_of_the_archive_is_fetched_and_its_tests_pass",
        "test_a_tree_as_before_2_8_8_compiles",
        "test_a_tree_as_in_early_2014_compiles",
        "test_a_check_that_a_compiler_drops_is_found",
        "test_a_check_for_overflow_that_a_compiler_drops_is_found",
        "test_what_is_optimised_when_it_is_linked_is_watched_as_well",
        "test_the_added_atomic_functions_are_right",
        "test_a_static_program_finds_its_own_symbols_by_name_and_no_others",
        "test_threads_of_programs_with_musl_have_its_small_stacks",
        "test_a_demand_that_a_static_c_library_does_not_meet_is_refused",
        "test_a_planted_misalignment_is_found_and_replayed_with_the_compiler_that_showed_it",
        "test_a_planted_misalignment_is_one_finding_and_what_it_hinders_is_none",
        "test_a_planted_wrong_value_is_a_finding_with_the_test_and_its_words",
        "test_a_report_in_a_program_that_a_test_waits_for_is_a_finding",
        "test_what_is_told_is_what_happens",
        "test_other_kernels_differ_in_what_their_signal_tells_alone",
        "test_a_misaligned_compare_and_swap_kills_on_a_real_kernel_where_it_kills_under_the_user_tier",
        "test_the_counter_of_loongarch_has_the_rate_that_its_cpu_tells",
        "test_the_hash_of_memcached_1_6_18_is_found",
        "test_the_tests_of_zlib_pass",
        "test_the_tracer_of_an_aarch64_host_sees_what_that_of_this_one_sees",
        "test_an_emulator_that_was_compiled_for_aarch64_enforces_and_records_there",
        "test_tests_in_googletest_find_a_missing_byte_swap_and_a_dereference_where_they_show",
    }
    assert all(name in table for name in gone)
